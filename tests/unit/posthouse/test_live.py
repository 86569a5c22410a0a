"""What a reader shows of a workflow, whatever it sees twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse import events
from posthouse.events import StreamEvent
from posthouse.live import LiveTurn

PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "iteration", "lines", "message_ids", "answer", "error"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
TYPES = [
    events.WORKFLOW_ACCEPTED,
    events.RUN_RESUMED,
    events.TEXT_DELTA,
    events.PROGRESS_UPDATED,
    events.WORKFLOW_COMPLETED,
    "acme.else",
]


def event(seq: int, event_type: str, epoch: int = 1, **payload: Any) -> StreamEvent:
    return StreamEvent(
        event_id=f"w:{epoch}:{seq}",
        workflow_id="w",
        seq=seq,
        event_type=event_type,
        payload=payload,
        final=event_type in events.FINAL,
        epoch=epoch,
    )


def delta(seq: int, text: str, iteration: int = 1, epoch: int = 1) -> StreamEvent:
    return event(seq, events.TEXT_DELTA, epoch, text=text, iteration=iteration)


def shown(*stream: StreamEvent) -> LiveTurn:
    turn = LiveTurn("w")
    for one in stream:
        turn.take(one)
    return turn


def test_text_grows_and_begins_anew_with_each_iteration() -> None:
    turn = shown(delta(1, "我"), delta(2, "想"), delta(3, "二十", iteration=2))
    assert (turn.text, turn.iteration) == ("二十", 2)


def test_words_beside_a_tool_call_are_shown_once() -> None:
    progress = event(2, events.PROGRESS_UPDATED, lines=["我先算一下。", "> ⏳ calculator ..."])
    turn = shown(delta(1, "我先算一下。\n"), progress)
    assert (turn.text, turn.lines) == ("", ["我先算一下。", "> ⏳ calculator ..."])
    turn.take(delta(3, "395", iteration=2))
    assert turn.text == "395"


def test_the_whole_answer_is_kept_when_it_is_over() -> None:
    accepted = event(1, events.WORKFLOW_ACCEPTED, message_ids=["a", "b"])
    progress = event(2, events.PROGRESS_UPDATED, lines=["calculator ..."])
    final = event(4, events.WORKFLOW_COMPLETED, answer="395", error=None, waiting_user=True)
    turn = shown(accepted, progress, delta(3, "39"), final)
    assert turn.message_ids == ("a", "b")
    assert turn.lines == ["calculator ..."]
    assert (turn.over, turn.answer, turn.error, turn.waiting_user) == (True, "395", None, True)
    assert not turn.take(delta(5, "late"))


def test_a_takeover_below_the_seq_of_the_lost_attempt() -> None:
    turn = shown(
        delta(1, "lost "),
        delta(2, "words"),
        event(2, events.RUN_RESUMED, epoch=2, iteration=1, text="", lines=["again"]),
        delta(3, "new", epoch=2),
    )
    assert (turn.text, turn.lines) == ("new", ["again"])


def test_a_stream_that_was_lost_is_mended_by_its_owner() -> None:
    resumed = event(7, events.RUN_RESUMED, iteration=2, text="all of it", lines=[])
    turn = shown(delta(1, "all"), resumed, delta(8, " again", iteration=2))
    assert turn.text == "all of it again"


def test_what_is_known_or_of_another_is_refused() -> None:
    turn = LiveTurn("w")
    assert turn.take(delta(1, "a"))
    assert not turn.take(delta(1, "a"))
    assert not turn.take(delta(2, "b").model_copy(update={"workflow_id": "other"}))
    assert turn.take(event(1, events.RUN_RESUMED, epoch=2, iteration=1, text="x"))
    assert not turn.take(delta(9, "old epoch"))
    assert turn.text == "x"


def attempts(texts: list[list[str]], resumes: list[int]) -> list[StreamEvent]:
    """The stream of a workflow whose owner was lost between the attempts."""
    stream: list[StreamEvent] = []
    seq = 0
    for number, deltas in enumerate(texts):
        epoch = number + 1
        if number:
            # The new owner knows the seq of a step, at most what was written.
            seq = max(1, seq - resumes[number - 1])
            stream.append(event(seq, events.RUN_RESUMED, epoch, iteration=1, text=""))
        for text in deltas:
            seq += 1
            stream.append(delta(seq, text, epoch=epoch))
    return stream


@given(
    texts=st.lists(st.lists(st.text(max_size=3), max_size=6), min_size=1, max_size=3),
    resumes=st.lists(st.integers(0, 6), min_size=2, max_size=2),
    rereads=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4),
)
def test_only_the_surviving_attempt_is_shown(
    texts: list[list[str]], resumes: list[int], rereads: list[tuple[int, int]]
) -> None:
    stream = attempts(texts, resumes)
    turn = LiveTurn("w")
    read = 0
    for ahead, back in rereads:
        upto = min(len(stream), read + ahead)
        for one in stream[read:upto]:
            turn.take(one)
        read = max(0, upto - back)
    for one in stream[read:]:
        turn.take(one)
    assert turn.text == "".join(texts[-1])


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(TYPES), st.integers(0, 3), PAYLOADS)),
)
def test_no_event_breaks_a_reader(stream: list[tuple[int, str, int, Any]]) -> None:
    turn = LiveTurn("w")
    for seq, event_type, epoch, payload in stream:
        turn.take(event(seq, event_type, epoch).model_copy(update={"payload": payload}))
    assert isinstance(turn.text, str)


@pytest.mark.parametrize("payload", [None, [], "text", 7])
def test_a_final_event_needs_no_payload(payload: Any) -> None:
    final = event(1, events.WORKFLOW_FAILED).model_copy(update={"payload": payload})
    turn = shown(final)
    assert (turn.over, turn.answer, turn.error) == (True, None, None)
