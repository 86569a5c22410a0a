"""The heartbeat: what a beat asks for, and what becomes of its answer (R11)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.errors import Fenced, Unavailable
from posthouse.turns import Controls, HeldCall, HeldLease, Published
from tests.support.wait import eventually
from tests.unit.agent_worker.beating import PLACE, Held, Worker, lease
from tests.unit.agent_worker.ports import KEY, outgoing

NEVER = 10**6


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

    async def free() -> None:
        holder.freed = True

    worker.memory.meanwhile = free
    await worker.beat(lost=[KEY])
    assert worker.is_working(holder)


async def test_a_lease_taken_anew_meanwhile_is_not_lost(worker: Worker) -> None:
    worker.hold(epoch=1)
    again: list[Held] = []

    async def take_anew() -> None:
        again.append(worker.hold(epoch=2))

    worker.memory.meanwhile = take_anew
    await worker.beat(lost=[KEY])
    assert worker.is_working(again[0])


async def test_a_holder_that_ended_meanwhile_is_no_trouble(worker: Worker) -> None:
    holder = worker.hold()
    holder.ended.set()
    await eventually(lambda: not worker.conversations.tasks)
    assert (await worker.beat()).leases == []
    await worker.beat(controls={KEY: Controls(stop_upto=PLACE)})


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
    worker.memory.meanwhile = lambda: worker.outbox.publish([outgoing(2)])
    assert [report.seq for report in (await worker.beat()).published] == [1]
    assert [report.seq for report in (await worker.beat()).published] == [2]


async def test_left_messages_are_relayed_and_reported(worker: Worker) -> None:
    await worker.beat(relay=[outgoing(1), outgoing(2)])
    await eventually(lambda: len(worker.outbox.reports()) == 2)
    assert [report.seq for report in (await worker.beat()).published] == [1, 2]


async def test_a_slow_stream_does_not_hold_up_the_beat(worker: Worker) -> None:
    worker.publisher.open.clear()
    await asyncio.wait_for(worker.beat(relay=[outgoing(1)]), 10)
    await asyncio.wait_for(worker.beat(), 10)
    assert worker.publisher.published == []
    worker.publisher.open.set()
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
