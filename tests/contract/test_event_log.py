"""The event log in memory and on a server: the same promises, and writers that rely on them."""

import pytest

from agent_worker import events as writers
from agent_worker import settings
from agent_worker.events import EventWriter
from agent_worker.ports import Conflict
from posthouse import events
from posthouse.errors import PermanentError, Unavailable
from posthouse.events import StreamEvent
from tests.support.feeds import Feed, JetStreamFeed, LosesAcks, MemoryFeed
from tests.support.servers import Nats, crash

SUBJECT = "events.im.cli.local.w1"
OTHER = "events.im.cli.local.w2"
PATIENCE_S = 20.0


@pytest.fixture
def memory() -> MemoryFeed:
    """The log in memory."""
    return MemoryFeed()


@pytest.fixture
async def jetstream(bus: Nats) -> JetStreamFeed:
    """The log on a server."""
    return JetStreamFeed(await bus.jetstream())


@pytest.fixture(params=["memory", "jetstream"])
def feed(request: pytest.FixtureRequest) -> Feed:
    """Each of the two in turn."""
    found: Feed = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "RETRY_S", 0)


async def test_an_event_stands_behind_the_expected_one(feed: Feed) -> None:
    assert await feed.log.last(SUBJECT) is None
    first = await feed.log.append(SUBJECT, b"one", 0)
    assert await feed.log.last(SUBJECT) == (first, b"one")
    second = await feed.log.append(SUBJECT, b"two", first)
    assert second > first
    assert await feed.log.last(SUBJECT) == (second, b"two")


async def test_another_event_in_its_place_is_a_conflict(feed: Feed) -> None:
    first = await feed.log.append(SUBJECT, b"one", 0)
    second = await feed.log.append(SUBJECT, b"two", first)
    for expected in (0, first, second + 1):
        with pytest.raises(Conflict):
            await feed.log.append(SUBJECT, b"three", expected)
    assert await feed.log.last(SUBJECT) == (second, b"two")


async def test_workflows_do_not_disturb_each_other(feed: Feed) -> None:
    first = await feed.log.append(SUBJECT, b"one", 0)
    await feed.log.append(OTHER, b"other", 0)
    second = await feed.log.append(SUBJECT, b"two", first)
    assert await feed.log.last(SUBJECT) == (second, b"two")


async def test_a_purged_subject_starts_at_nothing(feed: Feed) -> None:
    first = await feed.log.append(SUBJECT, b"one", 0)
    await feed.purge()
    assert await feed.log.last(SUBJECT) is None
    with pytest.raises(Conflict):
        await feed.log.append(SUBJECT, b"two", first)
    assert await feed.log.append(SUBJECT, b"two", 0) > first


async def test_a_missing_stream_is_there_at_the_next_try(feed: Feed) -> None:
    await feed.log.append(SUBJECT, b"one", 0)
    await feed.delete()
    assert await feed.log.last(SUBJECT) is None
    with pytest.raises(Unavailable):
        await feed.log.append(SUBJECT, b"two", 0)
    seq = await feed.log.append(SUBJECT, b"two", 0)
    assert await feed.log.last(SUBJECT) == (seq, b"two")


async def test_what_never_fits_is_not_tried_again(feed: Feed) -> None:
    with pytest.raises(PermanentError):
        await feed.log.append(SUBJECT, b"x" * (2 * 1024 * 1024), 0)
    assert await feed.log.last(SUBJECT) is None


async def test_without_a_server_it_is_unavailable(
    jetstream: JetStreamFeed, bus: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "EVENT_TIMEOUT_S", 0.2)
    await crash(bus.server)
    with pytest.raises(Unavailable):
        await jetstream.log.append(SUBJECT, b"one", 0)


def _types(found: list[StreamEvent]) -> list[str]:
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    return [event.event_type for event in found]


async def _write(
    feed: Feed, epoch: int, *types: str, last_seq: int = 0, resumed: bool = False
) -> None:
    writer = EventWriter(feed.log, SUBJECT, "w1", epoch, last_seq, resumed)
    for event_type in types:
        writer.emit(event_type)
    await writer.close(PATIENCE_S)


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_lost_ack_repeats_nothing(feed: Feed, lost: int) -> None:
    writer = EventWriter(LosesAcks(feed.log, lost), SUBJECT, "w1", epoch=1)
    for event_type in ("a", "b", events.WORKFLOW_COMPLETED):
        writer.emit(event_type)
    await writer.close(PATIENCE_S)
    assert _types(await feed.events(SUBJECT)) == ["a", "b", events.WORKFLOW_COMPLETED]
    assert writer.seq == 3


async def test_a_new_owner_goes_on_behind_the_old_one(feed: Feed) -> None:
    """The steps know of one event, the stream of three."""
    await _write(feed, 1, "a", "b", "c")
    await _write(feed, 2, events.RUN_RESUMED, "d", last_seq=1, resumed=True)
    found = await feed.events(SUBJECT)
    assert _types(found) == ["a", "b", "c", events.RUN_RESUMED, "d"]
    assert [event.epoch for event in found] == [1, 1, 1, 2, 2]


async def test_an_owner_that_does_not_know_of_the_old_one_too(feed: Feed) -> None:
    await _write(feed, 1, "a")
    await _write(feed, 2, "b")
    assert _types(await feed.events(SUBJECT)) == ["a", "b"]


async def test_a_fenced_owner_writes_nothing_more(feed: Feed) -> None:
    old = EventWriter(feed.log, SUBJECT, "w1", epoch=1)
    old.emit("a")
    await old.close(PATIENCE_S)
    await _write(feed, 2, events.RUN_RESUMED, last_seq=1, resumed=True)
    for event_type in ("late", "later", events.WORKFLOW_COMPLETED):
        old.emit(event_type)
    await old.close(PATIENCE_S)
    old.emit("after all")
    await old.close(PATIENCE_S)
    assert _types(await feed.events(SUBJECT)) == ["a", events.RUN_RESUMED]


@pytest.mark.parametrize("loss", ["purge", "delete"])
async def test_a_lost_feed_goes_on_and_says_so(feed: Feed, loss: str) -> None:
    writer = EventWriter(feed.log, SUBJECT, "w1", epoch=3)
    writer.emit("a")
    writer.emit("b")
    await writer.close(PATIENCE_S)
    await getattr(feed, loss)()
    writer.emit("c")
    writer.emit(events.WORKFLOW_COMPLETED)
    await writer.close(PATIENCE_S)
    found = await feed.events(SUBJECT)
    assert [(event.seq, event.event_type) for event in found] == [
        (3, events.RUN_RESUMED),
        (4, "c"),
        (5, events.WORKFLOW_COMPLETED),
    ]
    assert found[0].payload == {"epoch": 3, "iteration": 0, "text": "", "lines": []}


@pytest.mark.parametrize("loss", ["purge", "delete"])
async def test_a_new_owner_of_a_lost_feed_resumes_once(feed: Feed, loss: str) -> None:
    await _write(feed, 1, "a", "b", "c")
    await getattr(feed, loss)()
    await _write(feed, 2, events.RUN_RESUMED, "d", last_seq=2, resumed=True)
    found = await feed.events(SUBJECT)
    assert [(event.seq, event.event_type) for event in found] == [
        (3, events.RUN_RESUMED),
        (4, "d"),
    ]


async def test_a_feed_lost_before_its_first_event_is_not_resumed(feed: Feed) -> None:
    await feed.delete()
    await _write(feed, 1, events.WORKFLOW_ACCEPTED, "a")
    assert _types(await feed.events(SUBJECT)) == [events.WORKFLOW_ACCEPTED, "a"]


@pytest.mark.parametrize("loss", ["purge", "delete"])
async def test_a_lost_feed_starts_with_the_text_that_readers_saw(feed: Feed, loss: str) -> None:
    writer = EventWriter(feed.log, SUBJECT, "w1", epoch=3)
    writer.emit(events.WORKFLOW_ACCEPTED)
    writer.emit_text(1, "old")
    writer.emit(events.PROGRESS_UPDATED, {"lines": ["> look"]})
    writer.emit_text(2, "你")
    writer.emit_text(2, "好")
    await writer.close(PATIENCE_S)
    await getattr(feed, loss)()
    writer.emit_text(2, "!")
    await writer.close(PATIENCE_S)
    found = await feed.events(SUBJECT)
    opened = {"iteration": 2, "text": "你好", "lines": ["> look"]}
    assert found[0].payload == {"epoch": 3, **opened}
    assert (found[1].event_type, found[1].payload) == (
        events.TEXT_DELTA,
        {"iteration": 2, "text": "!"},
    )


async def test_behind_a_final_event_nothing_is_written(feed: Feed) -> None:
    writer = EventWriter(feed.log, SUBJECT, "w1", epoch=3)
    writer.emit(events.WORKFLOW_ACCEPTED)
    await writer.close(PATIENCE_S)
    relay = EventWriter(feed.log, SUBJECT, "w1", epoch=3, resumed=True)
    relay.emit(events.WORKFLOW_COMPLETED)
    await relay.close(PATIENCE_S)
    writer.emit_text(1, "late")
    writer.emit(events.WORKFLOW_COMPLETED)
    writer.emit("more")
    await writer.close(PATIENCE_S)
    found = await feed.events(SUBJECT)
    assert [(event.seq, event.final) for event in found] == [(1, False), (2, True)]
