"""What a worker holds, and how much more it may take."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.turns import HeldLease
from tests.unit.agent_worker.beating import Worker
from tests.unit.agent_worker.ports import KEY


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    """A worker with room for two."""
    worker = Worker(limit=2)
    yield worker
    await worker.stop()


async def test_the_older_holder_of_a_conversation_ends(worker: Worker) -> None:
    old = worker.hold(epoch=1)
    await asyncio.sleep(0)
    new = worker.hold(epoch=2)
    await asyncio.wait_for(old.ended.wait(), 10)
    assert worker.is_working(new)
    assert (await worker.beat()).leases == [HeldLease(key=KEY, epoch=2)]


async def test_an_older_holder_may_end_its_commit(worker: Worker) -> None:
    old = worker.hold(epoch=1)
    old.committing = True
    worker.hold(epoch=2)
    assert worker.is_working(old)


async def test_room_is_waited_for(worker: Worker) -> None:
    holder = worker.hold()
    await worker.conversations.reserve()
    waiting = asyncio.create_task(worker.conversations.reserve())
    await asyncio.sleep(0)
    assert not waiting.done()
    holder.ended.set()
    await asyncio.wait_for(waiting, 10)
    assert worker.conversations.room == 0


async def test_handing_over_waits_and_then_cuts_short(worker: Worker) -> None:
    quick, stubborn = worker.hold("im.cli.a"), worker.hold("im.cli.b")
    await asyncio.sleep(0)
    quick.ended.set()
    await worker.conversations.hand_over(0.05)
    assert stubborn.ended.is_set()
    assert worker.conversations.tasks == {}
    await worker.conversations.hand_over(0.05)
