"""What one durable turn costs: inbound → open → one model call → commit → outbound.

CPU is user and system time by process, warm; latency runs from publishing the question to seeing
the stored answer. The floor runs on the same servers in the same minute, so that ratios carry
over to other machines.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from tests.bench.floor import Floor, floor
from tests.bench.load import People, people
from tests.bench.measure import Measurement, measure
from tests.bench.system import PYTHON, SERVERS, Servers, servers, system

WARM_UP_TURNS = 40
COLUMNS = "{:<28}{:>7}{:>9}{:>9}{:>9}{:>11}{:>9}{:>9}{:>9}{:>10}"
HEADINGS = (
    *("", "turns", "turns/s", "p50 ms", "p99 ms", "our CPU ms"),
    *("memory", "worker", "nats", "postgres"),
)


async def measured(
    who: People | Floor, prefix: str, pids: dict[str, int], turns: int, conversations: int
) -> list[Measurement]:
    """Both loads, each after a warm-up of its own conversations' kind."""
    await who.talk(f"{prefix}-warm", WARM_UP_TURNS, min(conversations, 8))
    loads = (("one conversation", "one", 1), (f"{conversations} at once", "many", conversations))
    return [
        await measure(
            f"{prefix}, {title}", pids, lambda n=name, c=count: who.talk(f"{prefix}-{n}", turns, c)
        )
        for title, name, count in loads
    ]


async def run(turns: int, conversations: int) -> list[Measurement]:
    """Turns first, then the floor with the services gone."""
    async with servers() as below:
        found = await _turns(below, turns, conversations)
        async with floor(below) as bare:
            pids = {"floor": os.getpid(), **below.pids}
            found += await measured(bare, "floor", pids, turns, conversations)
    return found


async def _turns(below: Servers, turns: int, conversations: int) -> list[Measurement]:
    async with system(below) as running, people(below.nats) as crowd:
        return await measured(crowd, "turn", running.pids, turns, conversations)


def our_cpu(found: Measurement) -> float:
    """CPU of the Python processes, servers left out, in ms a turn."""
    return found.cpu_of(*(PYTHON if PYTHON[0] in found.cpu else ("floor",)))


def table(found: list[Measurement]) -> str:
    """The plain table, and the ratios below it."""
    lines = [COLUMNS.format(*HEADINGS)]
    for one in found:
        parts = [f"{one.cpu[p]:.2f}" if p in one.cpu else "-" for p in (*PYTHON, *SERVERS)]
        turns, rate = len(one.latencies), len(one.latencies) / one.seconds
        times = (f"{one.quantile(0.5):.1f}", f"{one.quantile(0.99):.1f}", f"{our_cpu(one):.2f}")
        lines.append(COLUMNS.format(one.name, turns, f"{rate:.0f}", *times, *parts))
    for turn, bare in zip(found[:2], found[2:], strict=True):
        ratio = our_cpu(turn) / our_cpu(bare)
        servers_ratio = turn.cpu_of(*SERVERS) / bare.cpu_of(*SERVERS)
        lines.append(
            f"{turn.name}: our CPU {ratio:.1f} x floor, servers {servers_ratio:.1f} x floor"
        )
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Measure the cost of a durable turn.")
    parser.add_argument("--turns", type=int, default=300, metavar="N", help="turns of each load")
    parser.add_argument("--conversations", type=int, default=50, metavar="M", help="at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here too")
    given = parser.parse_args()
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
