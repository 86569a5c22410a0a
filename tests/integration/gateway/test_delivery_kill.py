"""A delivery process is killed with kill -9 in the middle of a message; another goes on."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from gateway.delivery.record import Unknown
from tests.integration.gateway.post_office import PostOffice, Sent, message, open_office
from tests.support.servers import Nats
from tests.support.wait import eventually

ROOT = Path(__file__).parents[3]
PROGRAM = "tests.integration.gateway.replica"


@pytest.fixture
async def office(bus: Nats) -> PostOffice:
    return await open_office(bus)


@asynccontextmanager
async def replica(
    nats: Nats, log: Path, kind: str, hang_after: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A replica process, gone when the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", PROGRAM, nats.url, str(log), kind),
        cwd=ROOT,
        env={**os.environ, "HANG_AFTER": hang_after},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def sends(log: Path) -> list[Sent]:
    """What all processes sent, in order."""
    if not log.exists():
        return []
    return [Sent(*line.split()) for line in log.read_text(encoding="utf-8").splitlines()]


def sent_at_least(log: Path, count: int) -> bool:
    return len(sends(log)) >= count


@pytest.mark.parametrize("kind", ["idempotent", "plain"])
async def test_killed_after_part_3_of_5(
    bus: Nats, office: PostOffice, tmp_path: Path, kind: str
) -> None:
    log = tmp_path / "sends.txt"
    await office.publish(message("a", 1, "p1 p2 p3 p4 p5"))
    await office.publish(message("a", 2, "next"))
    async with replica(bus, log, kind, hang_after="p3") as first:
        await eventually(lambda: len(sends(log)) == 3, 20)
        first.kill()
        await first.wait()

    async def over() -> bool:
        return await office.last("a") == 2

    async with replica(bus, log, kind):
        await eventually(over, 30)

    texts = [sent.text for sent in sends(log)]
    record = await office.record("a")
    assert record is not None
    if kind == "idempotent":
        assert texts == ["p1", "p2", "p3", "p3", "p4", "p5", "next"]
        keys = [sent.key for sent in sends(log)]
        assert keys[2] == keys[3]
        assert len(set(keys)) == 6
        assert record.unknown == ()
    else:
        assert texts == ["p1", "p2", "p3", "p4", "p5", "next"]
        assert record.unknown == (Unknown(seq=1, part=3),)


async def test_killed_again_and_again_among_many_conversations(
    bus: Nats, office: PostOffice, tmp_path: Path
) -> None:
    log = tmp_path / "sends.txt"
    names = [f"c{n}" for n in range(8)]
    for seq in range(1, 6):
        for name in names:
            await office.publish(message(name, seq, f"{seq}a {seq}b"))

    async def over() -> bool:
        return all([await office.last(name) == 5 for name in names])

    for count in (10, 40):
        async with replica(bus, log, "plain") as victim:
            await eventually(partial(sent_at_least, log, count), 20)
            victim.kill()
            await victim.wait()
    async with replica(bus, log, "plain"):
        await eventually(over, 30)

    wanted = [f"{seq}{part}" for seq in range(1, 6) for part in "ab"]
    for name in names:
        texts = [sent.text for sent in sends(log) if sent.chat == name]
        record = await office.record(name)
        assert record is not None
        unknown = [f"{note.seq}{'ab'[note.part - 1]}" for note in record.unknown]
        assert texts == sorted(set(texts))
        assert sorted({*texts, *unknown}) == wanted
