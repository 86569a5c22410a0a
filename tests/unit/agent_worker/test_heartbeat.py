"""The heartbeat: what a beat asks for, and what becomes of its answer (R11)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from agent_worker.ports import TurnApi
from agent_worker.turns.heartbeat import Conversations, Heartbeat
from agent_worker.turns.holder import Holder
from agent_worker.turns.outbox import Outbox
from posthouse.errors import Fenced, Unavailable
from posthouse.turns import (
    Controls,
    HeartbeatRequest,
    HeartbeatResult,
    HeldCall,
    HeldLease,
    Lease,
    Outgoing,
    Position,
    Published,
)
from tests.support.wait import eventually
from tests.unit.agent_worker.ports import FakePublisher, FakeTurnApi
from tests.unit.agent_worker.test_outbox import outgoing

KEY = "im.cli.local"
PLACE = Position(generation=1, seq=1)
NEVER = 10**6


def lease(key: str = KEY, epoch: int = 1) -> Lease:
    """A lease on a conversation."""
    return Lease(key=key, address="im://cli/local", tenant_id=1, epoch=epoch, checked=PLACE)


class Held(Holder):
    """A holder that works until it is ended."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.committing = False
        self.freed = False
        self.obeyed: list[Controls] = []
        self.ended = asyncio.Event()

    def obey(self, controls: Controls) -> None:
        """See Holder."""
        self.obeyed.append(controls)

    async def run(self) -> None:
        """See Holder."""
        try:
            await self.ended.wait()
        finally:
            self.ended.set()


class Memory:
    """The memory service: answers as told, or fails; notes what it was asked."""

    def __init__(self) -> None:
        self.requests: list[HeartbeatRequest] = []
        self.answer = HeartbeatResult()
        self.error: Exception | None = None
        self.before_answer: Callable[[], object] = lambda: None

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResult:
        """One beat."""
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        self.before_answer()
        return self.answer


class Worker:
    """A heartbeat and all that hangs on it."""

    def __init__(self, limit: int = 100) -> None:
        self.memory = Memory()
        self.publisher = FakePublisher()
        self.outbox = Outbox(self.publisher)
        self.conversations = Conversations(limit)
        self.calls: dict[str, int] = {}
        self.cancelled: list[str] = []
        self.heartbeat = Heartbeat(
            "worker-1",
            cast(TurnApi, FakeTurnApi(self.memory.heartbeat)),
            self.outbox,
            self.conversations,
            self.calls,
            lambda lease: self.conversations.start(Held(lease)),
            self.cancelled.append,
        )

    def hold(self, key: str = KEY, epoch: int = 1) -> Held:
        """Hold a conversation."""
        holder = Held(lease(key, epoch))
        self.conversations.start(holder)
        return holder

    def is_working(self, holder: Held) -> bool:
        """Whether it was not told to end."""
        return (
            holder in self.conversations.tasks and not self.conversations.tasks[holder].cancelling()
        )

    async def beat(self, **answer: object) -> HeartbeatRequest:
        """One beat with this answer; what was asked."""
        self.memory.answer = HeartbeatResult.model_validate(answer)
        await self.heartbeat.beat()
        return self.memory.requests[-1]

    async def stop(self) -> None:
        """Leave nothing running."""
        for task in self.conversations.tasks.values():
            task.cancel()
        await asyncio.gather(*self.conversations.tasks.values(), return_exceptions=True)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    """A worker with room."""
    worker = Worker()
    yield worker
    await worker.stop()


async def test_a_beat_renews_all_that_is_held(worker: Worker) -> None:
    worker.hold("im.cli.a", 3)
    worker.hold("im.cli.b", 5)
    worker.calls["c1"] = 7
    worker.hold("im.cli.freed").freed = True
    asked = await worker.beat()
    assert asked.worker == "worker-1"
    assert asked.leases == [HeldLease(key="im.cli.a", epoch=3), HeldLease(key="im.cli.b", epoch=5)]
    assert asked.calls == [HeldCall(call_id="c1", epoch=7)]


async def test_a_lost_lease_ends_its_holder_alone(worker: Worker) -> None:
    lost, other = worker.hold("im.cli.a"), worker.hold("im.cli.b")
    await asyncio.sleep(0)
    await worker.beat(lost=["im.cli.a"])
    await asyncio.wait_for(lost.ended.wait(), 10)
    assert worker.is_working(other)
    assert not worker.is_working(lost)
    assert [held.key for held in (await worker.beat()).leases] == ["im.cli.b"]


async def test_a_commit_under_way_decides_by_itself(worker: Worker) -> None:
    holder = worker.hold()
    holder.committing = True
    await worker.beat(lost=[KEY])
    assert worker.is_working(holder)


async def test_a_lease_freed_while_the_beat_was_on_its_way_is_not_lost(worker: Worker) -> None:
    holder = worker.hold()
    worker.memory.before_answer = lambda: setattr(holder, "freed", True)
    await worker.beat(lost=[KEY])
    assert worker.is_working(holder)


async def test_a_lease_taken_anew_meanwhile_is_not_lost(worker: Worker) -> None:
    worker.hold(epoch=1)
    again: list[Held] = []
    worker.memory.before_answer = lambda: again.append(worker.hold(epoch=2))
    await worker.beat(lost=[KEY])
    assert worker.is_working(again[0])


async def test_a_holder_that_ended_meanwhile_is_no_trouble(worker: Worker) -> None:
    holder = worker.hold()
    holder.ended.set()
    await eventually(lambda: not worker.conversations.tasks)
    assert (await worker.beat()).leases == []
    await worker.beat(controls={KEY: Controls(stop_upto=PLACE)})


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


async def test_commands_reach_their_holder(worker: Worker) -> None:
    mine, other = worker.hold("im.cli.a"), worker.hold("im.cli.b")
    stop = Controls(stop_upto=PLACE)
    await worker.beat(controls={"im.cli.a": stop})
    assert (mine.obeyed, other.obeyed) == ([stop], [])


async def test_calls_that_were_lost_or_cancelled_end(worker: Worker) -> None:
    worker.calls |= {"c1": 1, "c2": 1, "c3": 1}
    await worker.beat(lost_calls=["c1"], cancels=["c2", "c1"])
    assert sorted(worker.cancelled) == ["c1", "c2"]


async def test_it_adopts_only_after_two_good_beats(worker: Worker) -> None:
    assert [(await worker.beat()).adopt for _ in range(3)] == [0, 0, 8]
    worker.memory.error = Unavailable("away")
    await worker.beat()
    worker.memory.error = None
    assert [(await worker.beat()).adopt for _ in range(3)] == [0, 0, 8]


async def test_it_adopts_no_more_than_there_is_room_for() -> None:
    worker = Worker(limit=4)
    worker.hold("im.cli.a")
    await worker.conversations.reserve()
    asked = [(await worker.beat()).adopt for _ in range(3)]
    assert asked[-1] == 2
    worker.conversations.unreserve()
    assert (await worker.beat()).adopt == 3
    await worker.stop()


async def test_it_adopts_nothing_while_it_stops(worker: Worker) -> None:
    await worker.beat()
    await worker.beat()
    worker.heartbeat.stopping = True
    assert (await worker.beat()).adopt == 0


async def test_what_was_adopted_is_held(worker: Worker) -> None:
    await worker.beat(adopted=[lease("im.cli.a", 9), lease("im.cli.b", 4)])
    assert (await worker.beat()).leases == [
        HeldLease(key="im.cli.a", epoch=9),
        HeldLease(key="im.cli.b", epoch=4),
    ]


async def test_reports_are_repeated_until_a_beat_arrives(worker: Worker) -> None:
    await worker.outbox.publish([outgoing(1)])
    report = Published(key=KEY, generation=1, seq=1)
    for error in (Unavailable("away"), Fenced("odd")):
        worker.memory.error = error
        assert (await worker.beat()).published == [report]
    worker.memory.error = None
    assert (await worker.beat()).published == [report]
    assert (await worker.beat()).published == []


async def test_what_was_published_during_a_beat_is_reported_next(worker: Worker) -> None:
    await worker.outbox.publish([outgoing(1)])

    async def slow(request: HeartbeatRequest) -> HeartbeatResult:
        await worker.outbox.publish([outgoing(2)])
        return await Memory().heartbeat(request)

    heartbeat = Heartbeat(
        "worker-1",
        cast(TurnApi, FakeTurnApi(slow)),
        worker.outbox,
        worker.conversations,
        {},
        lambda lease: None,
        lambda call_id: None,
    )
    await heartbeat.beat()
    assert [report.seq for report in (await worker.beat()).published] == [2]


async def test_left_messages_are_relayed_and_reported(worker: Worker) -> None:
    await worker.beat(relay=[outgoing(1), outgoing(2)])
    await eventually(lambda: len(worker.outbox.reports()) == 2)
    assert [report.seq for report in (await worker.beat()).published] == [1, 2]


async def test_a_slow_stream_does_not_hold_up_the_beat(worker: Worker) -> None:
    go_on = asyncio.Event()

    class Slow(Outbox):
        async def publish(self, outgoing: list[Outgoing]) -> None:
            await go_on.wait()
            await super().publish(outgoing)

    worker.heartbeat = Heartbeat(
        "worker-1",
        cast(TurnApi, FakeTurnApi(worker.memory.heartbeat)),
        Slow(worker.publisher),
        worker.conversations,
        {},
        lambda lease: None,
        lambda call_id: None,
    )
    await asyncio.wait_for(worker.beat(relay=[outgoing(1)]), 10)
    await asyncio.wait_for(worker.beat(), 10)
    assert worker.publisher.published == []
    go_on.set()
    await eventually(lambda: len(worker.publisher.published) == 1)


async def test_a_hint_brings_the_next_beat_at_once(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_worker.settings.HEARTBEAT_S", NEVER)
    worker.heartbeat.start()
    await eventually(lambda: len(worker.memory.requests) == 1)
    worker.heartbeat.hint()
    await eventually(lambda: len(worker.memory.requests) == 2)
    await worker.heartbeat.stop()


async def test_the_last_beat_reports(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_worker.settings.HEARTBEAT_S", NEVER)
    worker.heartbeat.start()
    await eventually(lambda: len(worker.memory.requests) == 1)
    await worker.outbox.publish([outgoing(1)])
    await worker.heartbeat.stop()
    assert [report.seq for report in worker.memory.requests[-1].published] == [1]


async def test_room_is_waited_for() -> None:
    worker = Worker(limit=1)
    holder = worker.hold()
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
