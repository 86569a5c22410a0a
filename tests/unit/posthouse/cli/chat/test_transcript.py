"""What a chat shows for which messages and events; nothing twice, in any order."""

from typing import Any

import pytest

from posthouse import events
from posthouse.address import Address
from posthouse.cli.chat.transcript import Shown, Transcript
from posthouse.events import StreamEvent
from posthouse.messages import (
    MAIN_AGENT,
    ErrorInfo,
    InboundMessage,
    Media,
    OutboundKind,
    OutboundMessage,
)
from posthouse.turns import RecalledMessage, RecallResult

LOCAL = Address.im("cli", "local")
THINKING = "> 💭 thinking..."


class Turn:
    """The events of one workflow."""

    def __init__(self, name: str = "w1") -> None:
        self._name = name
        self._seq = 0

    def event(self, event_type: str, **payload: Any) -> StreamEvent:
        """The next one."""
        self._seq += 1
        return StreamEvent(
            event_id=f"{self._name}:{self._seq}",
            workflow_id=self._name,
            seq=self._seq,
            event_type=event_type,
            payload=payload,
            final=event_type in events.FINAL,
        )

    def accepted(self, *ids: str) -> StreamEvent:
        """The first event of a workflow."""
        return self.event(events.WORKFLOW_ACCEPTED, message_ids=list(ids))

    def delta(self, text: str, iteration: int = 1) -> StreamEvent:
        """A piece of text."""
        return self.event(events.TEXT_DELTA, text=text, iteration=iteration)


def says(content: str, *ids: str, kind: OutboundKind = "final", **fields: Any) -> OutboundMessage:
    """A message of the agent."""
    return OutboundMessage(
        id=f"o-{content}",
        from_=MAIN_AGENT,
        to=LOCAL,
        conversation=LOCAL,
        kind=kind,
        content=content,
        in_reply_to=ids,
        **fields,
    )


@pytest.fixture
def transcript() -> Transcript:
    transcript = Transcript("en")
    transcript.sent("m1")
    return transcript


def test_nothing_runs_before_something_was_said() -> None:
    transcript = Transcript("en")
    assert (transcript.running, transcript.live()) == (False, "")


def test_what_was_said_waits_for_its_answer(transcript: Transcript) -> None:
    assert (transcript.running, transcript.live()) == (True, THINKING)
    assert transcript.answer(says("395", "m1")) == [Shown("answer", "395")]
    assert (transcript.running, transcript.live()) == (False, "")


def test_text_grows_and_the_answer_takes_its_place(transcript: Transcript) -> None:
    turn = Turn()
    transcript.event(turn.accepted("m1"))
    transcript.event(turn.delta("你"))
    transcript.event(turn.delta("好"))
    assert transcript.live() == "你好"
    assert transcript.answer(says("你好！", "m1")) == [Shown("answer", "你好！")]
    assert transcript.live() == ""


def test_the_text_of_an_iteration_takes_the_place_of_the_one_before(
    transcript: Transcript,
) -> None:
    turn = Turn()
    transcript.event(turn.delta("let me see", iteration=1))
    transcript.event(turn.delta("done", iteration=2))
    assert transcript.live() == "done"


def test_progress_is_shown_above_the_text_and_stays(transcript: Transcript) -> None:
    turn = Turn()
    lines = ["> ✅ count (0.1s)", THINKING]
    transcript.event(turn.accepted("m1"))
    transcript.event(turn.event(events.PROGRESS_UPDATED, lines=["> ⏳ count ..."]))
    assert transcript.live() == "> ⏳ count ..."
    transcript.event(turn.event(events.PROGRESS_UPDATED, lines=lines))
    transcript.event(turn.delta("one"))
    assert transcript.live() == "\n".join((*lines, "one"))
    assert transcript.answer(says("one", "m1")) == [
        Shown("progress", "> ✅ count (0.1s)"),
        Shown("answer", "one"),
    ]


def test_a_final_event_shows_the_answer_until_its_message_comes(transcript: Transcript) -> None:
    turn = Turn()
    transcript.event(turn.accepted("m1"))
    transcript.event(turn.delta("on"))
    transcript.event(turn.event(events.WORKFLOW_COMPLETED, answer="one"))
    assert transcript.live() == "one"
    assert transcript.answer(says("one", "m1")) == [Shown("answer", "one")]
    assert transcript.live() == ""


def test_events_behind_the_answer_show_nothing(transcript: Transcript) -> None:
    turn = Turn()
    transcript.event(turn.accepted("m1"))
    transcript.answer(says("one", "m1"))
    transcript.event(turn.delta("one"))
    transcript.event(turn.event(events.WORKFLOW_COMPLETED, answer="one"))
    assert (transcript.running, transcript.live()) == (False, "")


def test_an_answer_before_all_events_leaves_nothing_behind(transcript: Transcript) -> None:
    transcript.answer(says("one", "m1"))
    turn = Turn()
    transcript.event(turn.accepted("m1"))
    transcript.event(turn.delta("one"))
    assert (transcript.running, transcript.live()) == (False, "")


def test_a_turn_joined_in_the_middle_ends_with_the_next_answer() -> None:
    transcript = Transcript("en")
    transcript.event(Turn().delta("half"))
    assert (transcript.running, transcript.live()) == (True, "half")
    assert transcript.answer(says("half done", "other")) == [Shown("answer", "half done")]
    assert (transcript.running, transcript.live()) == (False, "")


def test_a_turn_joined_in_the_middle_ends_with_its_final_event() -> None:
    transcript, turn = Transcript("en"), Turn()
    transcript.event(turn.delta("half"))
    transcript.event(turn.event(events.WORKFLOW_FAILED, error="deadline"))
    assert (transcript.running, transcript.live()) == (False, "")


def test_the_next_turn_ends_one_whose_final_event_was_lost(transcript: Transcript) -> None:
    first, second = Turn("w1"), Turn("w2")
    transcript.event(first.delta("old"))
    transcript.event(second.accepted("m2"))
    transcript.event(first.delta("late"))
    assert transcript.live() == THINKING


def test_the_answer_to_another_message_leaves_the_turn_alone(transcript: Transcript) -> None:
    turn = Turn()
    transcript.event(turn.accepted("m1"))
    transcript.event(turn.delta("mine"))
    transcript.answer(says("theirs", "m0"))
    assert (transcript.running, transcript.live()) == (True, "mine")


def test_notices_and_messages_in_mid_turn_do_not_end_it(transcript: Transcript) -> None:
    transcript.event(Turn().accepted("m1"))
    assert transcript.answer(says("wait", "m1", kind="message")) == [Shown("answer", "wait")]
    assert transcript.answer(says("A task is running", "c1", kind="notice")) == [
        Shown("notice", "A task is running")
    ]
    assert transcript.running


def test_a_notice_ends_the_messages_that_it_names(transcript: Transcript) -> None:
    transcript.answer(says("Stopped.", "c1", "m1", kind="notice"))
    assert not transcript.running


def test_a_refused_message_is_not_waited_for(transcript: Transcript) -> None:
    transcript.withdrawn("m1")
    assert not transcript.running


def test_a_failure_and_files_are_shown(transcript: Transcript) -> None:
    failed = says("Sorry", "m1", error=ErrorInfo(code="deadline", message="x"))
    assert transcript.answer(failed) == [Shown("error", "Sorry")]
    file = says("here", "m2", media=(Media(url="https://x/\x1by.png"),))
    assert transcript.answer(file) == [Shown("answer", "here\nhttps://x/␛y.png")]


def test_others_are_named_and_we_are_not_repeated(transcript: Transcript) -> None:
    own = InboundMessage(id="m1", from_=LOCAL, conversation=LOCAL, content="hi")
    ada = own.model_copy(update={"id": "m2", "sender_name": "Ada", "content": "hi\x1b[2J"})
    nobody = own.model_copy(update={"id": "m3"})
    assert transcript.heard(own) == []
    assert transcript.heard(ada) == [Shown("said", "Ada> hi␛[2J")]
    assert transcript.heard(nobody) == [Shown("said", "local> hi")]


def test_a_message_that_is_an_event_too_is_no_turn(transcript: Transcript) -> None:
    transcript.event(Turn().delta("half"))
    transcript.event(Turn("a notice").event(events.MESSAGE_SENT, content="Idle."))
    assert transcript.live() == "half"


def test_live_text_commands_no_terminal(transcript: Transcript) -> None:
    transcript.event(Turn().delta("\x1b[2Jclean"))
    assert transcript.live() == "␛[2Jclean"


def test_history_is_what_people_and_the_agent_said() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "3*4\x07"},
        {"role": "assistant", "content": None, "tool_calls": [{}]},
        {"role": "tool", "content": "12"},
        {"role": "assistant", "content": "12"},
        {"role": "user", "content": [{"type": "image"}]},
    ]
    history = RecallResult(
        messages=[RecalledMessage(n=n, message=m, time="") for n, m in enumerate(messages)]
    )
    assert Transcript("zh").recalled(history) == [
        Shown("said", "你> 3*4␇"),
        Shown("answer", "12"),
    ]
