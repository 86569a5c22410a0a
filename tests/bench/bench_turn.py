"""What one durable turn costs: inbound → open → one model call → commit → outbound.

CPU is user and system time by process, warm; latency runs from publishing the question to seeing
the stored answer. The one conversation grows while it is measured, up to the history that a turn
reads. The floor runs on the same servers in the same minute, so that ratios carry over to other
machines.
"""

import argparse
import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path

from posthouse import logs
from tests.bench.floor import Floor, floor
from tests.bench.load import People, people
from tests.bench.measure import Measurement, measure
from tests.bench.system import Servers, servers, services

OURS = ("memory", "worker")
SERVERS = ("nats", "postgres")
WARM_UP_TURNS = 40
WARM_UP_CONVERSATIONS = 8
ROW = "{:<24}" + "{:>9}" * 9
HEADINGS = (
    *("", "turns", "turns/s", "p50 ms", "p99 ms"),
    *("CPU ms:", "memory", "worker", "nats", "postgres"),
)


async def run(turns: int, conversations: int) -> list[Measurement]:
    """Both loads on the system, then on the floor with the services gone."""
    async with servers() as below:
        found = await _system(below, turns, conversations)
        async with floor(below) as bare:
            pids = {"floor": os.getpid(), **below.pids}
            return found + await _loads(bare, "floor", pids, turns, conversations)


async def _system(below: Servers, turns: int, conversations: int) -> list[Measurement]:
    async with services(below) as ours, people(below.nats) as crowd:
        return await _loads(crowd, "turn", ours | below.pids, turns, conversations)


async def _loads(
    who: People | Floor, name: str, pids: dict[str, int], turns: int, conversations: int
) -> list[Measurement]:
    await who.talk("warm", WARM_UP_TURNS, WARM_UP_CONVERSATIONS)
    one = partial(who.talk, "one", turns)
    many = partial(who.talk, "many", turns, conversations)
    return [
        await measure(f"{name}, one conversation", pids, one),
        await measure(f"{name}, {conversations} at once", pids, many),
    ]


def table(found: list[Measurement]) -> str:
    """One row a measurement, then the ratios."""
    half = len(found) // 2
    ratios = [_ratio(*pair) for pair in zip(found[:half], found[half:], strict=True)]
    return "\n".join([ROW.format(*HEADINGS), *map(_row, found), *ratios])


def _row(one: Measurement) -> str:
    parts = [f"{one.cpu[name]:.2f}" if name in one.cpu else "-" for name in (*OURS, *SERVERS)]
    numbers = one.to_dict()
    measured = (numbers[column] for column in ("turns", "turns_per_s", "p50_ms", "p99_ms"))
    return ROW.format(one.name, *measured, f"{_python_ms(one):.2f}", *parts)


def _ratio(turn: Measurement, bare: Measurement) -> str:
    python = _python_ms(turn) / _python_ms(bare)
    below = turn.cpu_of(SERVERS) / bare.cpu_of(SERVERS)
    return f"{turn.name}: Python {python:.1f} x floor, servers {below:.1f} x floor"


def _python_ms(one: Measurement) -> float:
    return one.cpu_of(one.cpu.keys() - set(SERVERS))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Measure the cost of a durable turn.")
    parser.add_argument("--turns", type=int, default=200, metavar="N", help="turns of each load")
    parser.add_argument("--conversations", type=int, default=50, metavar="M", help="at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here too")
    given = parser.parse_args()
    logs.configure("bench", "ERROR")
    found = asyncio.run(run(given.turns, given.conversations))
    print(table(found))
    if given.json:
        numbers = {
            "python": sys.version.split()[0],
            "cores": os.cpu_count(),
            "measurements": [one.to_dict() for one in found],
        }
        given.json.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
