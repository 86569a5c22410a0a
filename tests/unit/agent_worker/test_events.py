"""The event writer when the log fails (R16). Both real and fake logs: tests/contract."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker import events as writers
from agent_worker.events import MAX_BUFFERED, EventWriter
from posthouse import events
from posthouse.errors import Unavailable
from posthouse.events import StreamEvent
from tests.support.feeds import MemoryEventLog, MemoryFeed
from tests.support.wait import eventually

SUBJECT = "events.im.cli.local.w1"
PATIENCE_S = 20.0
FAULTS = ("lost before", "lost after", "look fails")


class FaultyLog(MemoryEventLog):
    """Fails as the given faults say, one a call; ``None`` is no fault. ``away`` fails always."""

    def __init__(self, *faults: str | None) -> None:
        super().__init__()
        self._faults = iter(faults)
        self.away = False
        self.tried = asyncio.Event()

    async def append(self, subject: str, body: bytes, expected: int) -> int:
        """See EventLog."""
        self.tried.set()
        fault = "lost before" if self.away else next(self._faults, None)
        if fault == "lost before":
            raise Unavailable("the event was lost")
        seq = await super().append(subject, body, expected)
        if fault == "lost after":
            raise Unavailable("the PubAck was lost")
        return seq

    async def last(self, subject: str) -> tuple[int, bytes] | None:
        """See EventLog."""
        if self.away or next(self._faults, None) == "look fails":
            raise Unavailable("no answer")
        return await super().last(subject)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "RETRY_S", 0)


def written(log: MemoryEventLog) -> list[StreamEvent]:
    """All events in the log."""
    return [StreamEvent.model_validate_json(body) for _, _, body in log.stored]


async def test_an_event_says_all_that_a_reader_needs() -> None:
    feed = MemoryFeed()
    writer = EventWriter(feed.log, SUBJECT, "w1", epoch=4)
    writer.emit(events.TOOL_STARTED, {"tool": "x", "nothing": None})
    writer.emit(events.WORKFLOW_COMPLETED)
    await writer.close(PATIENCE_S)
    first, last = await feed.events(SUBJECT)
    assert (first.workflow_id, first.epoch, first.seq, first.final) == ("w1", 4, 1, False)
    assert (first.event_type, first.payload) == (
        events.TOOL_STARTED,
        {"tool": "x", "nothing": None},
    )
    assert (last.seq, last.final) == (2, True)
    assert first.event_id != last.event_id
    assert writer.seq == 2


async def test_emitting_does_not_wait() -> None:
    log = FaultyLog()
    log.away = True
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    writer.emit("a")
    assert writer.seq == 0
    await asyncio.wait_for(log.tried.wait(), PATIENCE_S)
    writer.emit("b")
    log.away = False
    await writer.close(PATIENCE_S)
    assert [event.event_type for event in written(log)] == ["a", "b"]
    assert written(log)[0].timestamp < written(log)[1].timestamp


async def test_an_outage_loses_nothing_and_keeps_the_order() -> None:
    log = FaultyLog()
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    writer.emit("before")
    await writer.close(PATIENCE_S)
    log.away = True
    log.tried.clear()
    for n in range(50):
        writer.emit(f"during {n}")
    await asyncio.wait_for(log.tried.wait(), PATIENCE_S)
    log.away = False
    writer.emit("after")
    await writer.close(PATIENCE_S)
    found = written(log)
    assert [event.seq for event in found] == list(range(1, 53))
    assert [event.event_type for event in found] == [
        "before",
        *(f"during {n}" for n in range(50)),
        "after",
    ]


async def test_a_full_buffer_drops_progress_and_keeps_the_final() -> None:
    log = FaultyLog()
    log.away = True
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    for n in range(MAX_BUFFERED + 5):
        writer.emit(f"progress {n}")
    writer.emit(events.WORKFLOW_FAILED)
    log.away = False
    await writer.close(PATIENCE_S)
    found = written(log)
    assert len(found) == MAX_BUFFERED + 1
    assert found[0].event_type == "progress 0"
    assert (found[-1].event_type, found[-1].final) == (events.WORKFLOW_FAILED, True)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))


async def test_closing_gives_up_in_the_end() -> None:
    log = FaultyLog()
    log.away = True
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    writer.emit("a")
    await writer.close(0.01)
    log.away = False
    await asyncio.sleep(0)
    assert log.stored == []


async def test_closing_a_silent_writer_waits_for_nothing() -> None:
    await EventWriter(MemoryEventLog(), SUBJECT, "w1", epoch=1).close(PATIENCE_S)


@pytest.mark.parametrize("payload", [{"a": object()}, {"a": "\ud800"}, {"a": "x" * 2_000_000}])
async def test_an_event_that_cannot_go_out_holds_up_none(payload: object) -> None:
    log = MemoryEventLog()
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    writer.emit("bad", payload)
    writer.emit(events.WORKFLOW_COMPLETED)
    await writer.close(PATIENCE_S)
    assert [(event.seq, event.event_type) for event in written(log)] == [
        (1, events.WORKFLOW_COMPLETED)
    ]


@pytest.mark.parametrize("fault", ["lost before", "lost after"])
async def test_a_feed_lost_in_an_outage_says_so(fault: str) -> None:
    """Fails when the ``run.resumed`` goes out: behind the refused event and the look."""
    log = FaultyLog(None, None, None, fault)
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    writer.emit("a")
    await writer.close(PATIENCE_S)
    log.stored.clear()
    writer.emit("b")
    await writer.close(PATIENCE_S)
    assert [event.event_type for event in written(log)] == [events.RUN_RESUMED, "b"]


faults = st.lists(st.sampled_from([None, *FAULTS]), max_size=12)


@given(faults, st.integers(1, 4))
def test_whatever_gets_lost_each_event_is_there_once(given: list[str | None], count: int) -> None:
    log = FaultyLog(*given)

    async def write() -> None:
        writer = EventWriter(log, SUBJECT, "w1", epoch=1)
        for n in range(count):
            writer.emit(str(n))
        await writer.close(PATIENCE_S)

    asyncio.run(write())
    assert [(e.seq, e.event_type) for e in written(log)] == [(n + 1, str(n)) for n in range(count)]


@given(faults, st.lists(st.booleans(), max_size=12))
def test_two_owners_leave_one_story(given: list[str | None], turns: list[bool]) -> None:
    """However their writing mixes: no gap, and nothing of the old owner behind the new one's."""
    log = FaultyLog(*given)

    async def write() -> None:
        old = EventWriter(log, SUBJECT, "w1", epoch=1)
        new = EventWriter(log, SUBJECT, "w1", epoch=2, resumed=True)
        for is_new in turns:
            (new if is_new else old).emit("event")
            await asyncio.sleep(0)
        await old.close(PATIENCE_S)
        await new.close(PATIENCE_S)

    asyncio.run(write())
    found = written(log)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    epochs = [event.epoch for event in found]
    assert epochs == sorted(epochs)
    assert epochs.count(2) == turns.count(True)


def said(log: MemoryEventLog) -> list[tuple[int, str]]:
    """Iteration and text of each delta in the log."""
    deltas = [event for event in written(log) if event.event_type == events.TEXT_DELTA]
    return [(event.payload["iteration"], event.payload["text"]) for event in deltas]


async def test_the_first_piece_goes_out_at_once_and_fast_ones_together() -> None:
    log = MemoryEventLog()
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    for character in "hello, 世界":
        writer.emit_text(1, character)
    await writer.close(PATIENCE_S)
    assert said(log) == [(1, "h"), (1, "ello, 世界")]


async def test_much_text_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "TEXT_PAUSE_S", 3600)
    log = MemoryEventLog()
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    for _ in range(5):
        writer.emit_text(1, "x" * 100)
        await asyncio.sleep(0)
    assert [len(text) for _, text in said(log)] == [100, 300]
    await writer.close(PATIENCE_S)
    assert "".join(text for _, text in said(log)) == "x" * 500


async def test_text_waits_no_longer_than_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "TEXT_PAUSE_S", 0.01)
    log = MemoryEventLog()
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    writer.emit_text(1, "a")
    writer.emit_text(1, "b")
    await eventually(lambda: said(log) == [(1, "a"), (1, "b")])
    await writer.close(PATIENCE_S)


async def test_text_keeps_its_place_between_other_events() -> None:
    log = MemoryEventLog()
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    writer.emit_text(1, "a")
    writer.emit_text(1, "b")
    writer.emit(events.TOOL_STARTED)
    writer.emit_text(2, "c")
    writer.emit_text(3, "d")
    writer.emit(events.WORKFLOW_COMPLETED)
    await writer.close(PATIENCE_S)
    assert [event.event_type for event in written(log)] == [
        events.TEXT_DELTA,
        events.TEXT_DELTA,
        events.TOOL_STARTED,
        events.TEXT_DELTA,
        events.TEXT_DELTA,
        events.WORKFLOW_COMPLETED,
    ]
    assert said(log) == [(1, "a"), (1, "b"), (2, "c"), (3, "d")]


async def test_text_does_not_pile_up_while_the_log_is_away() -> None:
    log = FaultyLog()
    log.away = True
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    for _ in range(3000):
        writer.emit_text(1, "x" * writers.TEXT_CHARACTERS)
    writer.emit(events.WORKFLOW_COMPLETED)
    log.away = False
    await writer.close(PATIENCE_S)
    assert "".join(text for _, text in said(log)) == "x" * writers.TEXT_CHARACTERS * 3000
    assert max(len(text) for _, text in said(log)) <= writers.MAX_MERGED_CHARACTERS


PIECES = st.lists(st.tuples(st.integers(1, 3), st.text("ab好", min_size=1)), max_size=30)


async def test_a_lost_feed_of_a_long_text_gets_its_final_event_too() -> None:
    feed = MemoryFeed()
    writer = EventWriter(feed.log, SUBJECT, "w1", epoch=1)
    for _ in range(5):
        writer.emit_text(1, "字" * 100_000)
        writer.emit(events.TOOL_STARTED)
    await eventually(lambda: writer.seq == 10, PATIENCE_S)
    await feed.purge()
    writer.emit(events.WORKFLOW_COMPLETED, {"answer": "好"})
    await writer.close(PATIENCE_S)
    resumed, final = await feed.events(SUBJECT)
    assert resumed.payload["text"].startswith("字字")
    assert (final.event_type, final.payload) == (events.WORKFLOW_COMPLETED, {"answer": "好"})


@given(PIECES, st.lists(st.sampled_from([*FAULTS, None]), max_size=10))
async def test_whatever_fails_all_text_arrives_in_order(
    pieces: list[tuple[int, str]], faults: list[str | None]
) -> None:
    pieces = sorted(pieces, key=lambda piece: piece[0])
    log = FaultyLog(*faults)
    writer = EventWriter(log, SUBJECT, "w1", epoch=1)
    for iteration, text in pieces:
        writer.emit_text(iteration, text)
    await writer.close(PATIENCE_S)
    for iteration in (1, 2, 3):
        arrived = "".join(text for n, text in said(log) if n == iteration)
        assert arrived == "".join(text for n, text in pieces if n == iteration)
    assert [event.seq for event in written(log)] == list(range(1, len(log.stored) + 1))
