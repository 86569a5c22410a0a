"""The outbox: in order, once, and reported until the report has arrived (R12)."""

import asyncio
from typing import cast

import pytest

from agent_worker.events import EventWriter
from agent_worker.turns import outbox as outboxes
from agent_worker.turns.feeds import Feeds
from agent_worker.turns.outbox import Outbox
from posthouse import events
from posthouse.errors import PermanentError, PosthouseError, Unavailable
from posthouse.events import StreamEvent
from posthouse.turns import Outgoing, Published
from tests.support.feeds import MemoryEventLog
from tests.support.wait import eventually
from tests.unit.agent_worker.ports import KEY, FakePublisher, outgoing

FEED = f"events.{KEY}.w1"


def report(seq: int, failed: str | None = None) -> Published:
    """What the memory service is told of it."""
    return Published(key=KEY, generation=1, seq=seq, failed=failed)


@pytest.fixture
def publisher() -> FakePublisher:
    """JetStream."""
    return FakePublisher()


@pytest.fixture
def outbox(publisher: FakePublisher) -> Outbox:
    """The outbox before it."""
    return Outbox(publisher, Feeds(MemoryEventLog()))


async def test_messages_go_out_in_order_and_are_reported(
    outbox: Outbox, publisher: FakePublisher
) -> None:
    messages = [outgoing(seq) for seq in (1, 2, 3)]
    await outbox.publish(messages)
    assert [(subject, body) for subject, body, _ in publisher.published] == [
        ("outbound.im.cli.local", message.body.to_wire()) for message in messages
    ]
    assert outbox.reports() == [report(1), report(2), report(3)]


async def test_the_stream_can_tell_a_repeat(outbox: Outbox, publisher: FakePublisher) -> None:
    await outbox.publish([outgoing(1, generation=7)])
    ((_, _, headers),) = publisher.published
    assert headers["Nats-Msg-Id"] == "im.cli.local:7:1"
    assert headers["Posthouse-Generation"] == "7"


async def test_what_waits_for_its_report_is_not_sent_again(
    outbox: Outbox, publisher: FakePublisher
) -> None:
    await outbox.publish([outgoing(1)])
    await outbox.publish([outgoing(1), outgoing(2), outgoing(1, key="im.cli.other")])
    assert [subject for subject, _, _ in publisher.published] == [
        *("outbound.im.cli.local", "outbound.im.cli.local"),
        "outbound.im.cli.other",
    ]


async def test_a_report_is_kept_until_it_arrived(outbox: Outbox) -> None:
    await outbox.publish([outgoing(1), outgoing(2)])
    under_way = outbox.reports()
    await outbox.publish([outgoing(3)])
    outbox.reported(under_way)
    assert outbox.reports() == [report(3)]
    outbox.reported(under_way)
    outbox.reported([report(3)])
    assert outbox.reports() == []


async def test_a_lost_report_does_not_bring_the_message_again(
    outbox: Outbox, publisher: FakePublisher
) -> None:
    """Postgres still calls it unpublished: it wants to hear of it, not to see it again."""
    await outbox.publish([outgoing(1)])
    outbox.reported(outbox.reports())
    await outbox.publish([outgoing(1)])
    assert outbox.reports() == [report(1)]
    assert len(publisher.published) == 1


async def test_a_turn_and_a_relay_do_not_mix_up_their_order(
    outbox: Outbox, publisher: FakePublisher
) -> None:
    await asyncio.gather(
        outbox.publish([outgoing(1), outgoing(2)]),
        outbox.publish([outgoing(1), outgoing(2), outgoing(3)]),
        outbox.publish([outgoing(2), outgoing(3)]),
    )
    ids = [headers["Nats-Msg-Id"] for _, _, headers in publisher.published]
    assert ids == [outgoing(seq).id for seq in (1, 2, 3)]


@pytest.mark.parametrize("away_at", [1, 2, 3])
async def test_an_outage_stops_at_the_message_it_meets(
    outbox: Outbox, publisher: FakePublisher, away_at: int
) -> None:
    """A later message must not overtake it."""
    publisher.errors[f"im.cli.local:1:{away_at}"] = Unavailable("away")
    messages = [outgoing(seq) for seq in (1, 2, 3)]
    await outbox.publish(messages)
    assert outbox.reports() == [report(seq) for seq in range(1, away_at)]
    publisher.errors.clear()
    await outbox.publish(messages)
    assert outbox.reports() == [report(1), report(2), report(3)]
    assert len(publisher.published) == 3


async def test_what_can_never_go_out_is_reported_failed(
    outbox: Outbox, publisher: FakePublisher
) -> None:
    publisher.errors["im.cli.local:1:1"] = PermanentError("too large")
    await outbox.publish([outgoing(1), outgoing(2)])
    assert outbox.reports() == [report(1, failed="too large"), report(2)]
    assert publisher.buried == [outgoing(1).id]


async def test_a_fault_is_no_report(outbox: Outbox, publisher: FakePublisher) -> None:
    publisher.errors["im.cli.local:1:1"] = PosthouseError("neither way")
    with pytest.raises(PosthouseError):
        await outbox.publish([outgoing(1)])
    assert outbox.reports() == []


async def test_the_report_of_an_answer_waits_for_its_feed(outbox: Outbox) -> None:
    over = asyncio.Event()

    async def feed() -> None:
        await over.wait()

    task = asyncio.create_task(feed())
    await outbox.publish([outgoing(1)], task)
    assert outbox.reports() == []
    over.set()
    await eventually(lambda: outbox.reports() == [report(1)])
    outbox.reported([report(1)])
    assert outbox.reports() == []


async def test_a_feed_that_cannot_be_written_does_not_hold_the_report(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outboxes, "FEED_PATIENCE_S", 0.01)
    stuck = asyncio.create_task(asyncio.Event().wait())
    await outbox.publish([outgoing(1)], cast("asyncio.Task[None]", stuck))
    await eventually(lambda: outbox.reports() == [report(1)])
    outbox.reported([report(1)])
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)
    assert outbox.reports() == []


def answer(workflow_id: str | None = "w1", **more: object) -> Outgoing:
    """A final answer that somebody left behind."""
    message = outgoing(1)
    named = {} if workflow_id is None else {"workflow_id": workflow_id}
    body = message.body.model_copy(update={"metadata": named, "content": "42", **more})
    return message.model_copy(update={"body": body})


async def abandoned(log: MemoryEventLog, *types: str) -> None:
    """A feed whose writer died."""
    writer = EventWriter(log, FEED, "w1", epoch=3)
    for event_type in types:
        writer.emit(event_type)
    await writer.close(10)


async def test_who_relays_an_answer_ends_its_feed(publisher: FakePublisher) -> None:
    log = MemoryEventLog()
    feeds = Feeds(log)
    await abandoned(log, events.WORKFLOW_ACCEPTED, events.AGENT_STARTED)
    await Outbox(publisher, feeds).publish([answer()])
    await feeds.settled(10)
    last = StreamEvent.model_validate_json(log.stored[-1][2])
    assert (last.seq, last.epoch, last.final) == (3, 3, True)
    assert last.payload == {"answer": "42", "error": None, "waiting_user": False}


@pytest.mark.parametrize("last", [events.WORKFLOW_COMPLETED, events.WORKFLOW_CANCELED])
async def test_a_feed_has_one_end(publisher: FakePublisher, last: str) -> None:
    log = MemoryEventLog()
    feeds = Feeds(log)
    await abandoned(log, events.WORKFLOW_ACCEPTED, last)
    await Outbox(publisher, feeds).publish([answer()])
    await feeds.settled(10)
    assert len(log.stored) == 2


@pytest.mark.parametrize("workflow_id", ["other", None])
async def test_a_feed_that_is_not_there_is_not_begun(
    publisher: FakePublisher, workflow_id: str | None
) -> None:
    log = MemoryEventLog()
    feeds = Feeds(log)
    await Outbox(publisher, feeds).publish([answer(workflow_id)])
    await feeds.settled(10)
    assert log.stored == []
    assert len(publisher.published) == 1


async def test_an_event_of_a_stranger_does_not_hold_up_the_answer(
    publisher: FakePublisher,
) -> None:
    log = MemoryEventLog()
    await log.append(FEED, b"garbage", 0)
    outbox = Outbox(publisher, Feeds(log))
    await outbox.publish([answer()])
    assert outbox.reports() == [report(1)]
    assert len(log.stored) == 1
