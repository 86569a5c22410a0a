"""What a chat shows, and what it waits for: messages and events in, texts out.

Answers come from OUTBOUND and are shown for good. Events only tell what happens until then: they
may be missing, late or repeated, and nothing that they say is shown twice.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

from posthouse.cli.printable import printable
from posthouse.cli.send import as_text
from posthouse.events import MESSAGE_SENT
from posthouse.live import LiveTurn
from posthouse.texts import Language, catalogue, text

if TYPE_CHECKING:
    from posthouse.events import StreamEvent
    from posthouse.messages import InboundMessage, OutboundMessage
    from posthouse.turns import RecallResult

Kind = Literal["said", "answer", "error", "notice", "progress", "system"]


class Shown(NamedTuple):
    """A text that a terminal can print, and how it looks."""

    kind: Kind
    text: str


class Transcript:
    """One conversation as one terminal shows it."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._own: set[str] = set()
        self._pending: set[str] = set()
        self._answered: set[str] = set()
        self._live: LiveTurn | None = None
        self._closed: set[str] = set()

    @property
    def running(self) -> bool:
        """True while an answer is awaited, or a turn of somebody else is seen."""
        return bool(self._pending) or (self._live is not None and not self._live.over)

    def say(self, name: str, **values: object) -> Shown:
        """A text of this program, from the catalogue."""
        return Shown("system", printable(text(name, self._language, **values)))

    def sent(self, message_id: str) -> None:
        """We sent a message, and wait for its answer."""
        self._own.add(message_id)
        self._pending.add(message_id)

    def withdrawn(self, message_id: str) -> None:
        """It was refused: no answer will come."""
        self._pending.discard(message_id)

    def heard(self, message: "InboundMessage") -> list[Shown]:
        """Somebody said something; nothing to show if that was us."""
        if message.id in self._own:
            return []
        name = message.sender_name or message.sender_id or str(message.from_)
        return [Shown("said", printable(f"{name}> {message.content}"))]

    def answer(self, message: "OutboundMessage") -> list[Shown]:
        """The agent or the system said something."""
        if message.kind == "message":
            return [Shown("answer", as_text(message))]
        self._pending.difference_update(message.in_reply_to)
        if message.kind == "notice":
            return [Shown("notice", as_text(message))]
        self._answered.update(message.in_reply_to)
        turn = self._live
        # Without its first event nobody knows what it answers; only one turn runs at a time.
        ended = turn is not None and (not turn.message_ids or self._is_answered(turn))
        progress = self._close() if ended else []
        return [*progress, Shown("error" if message.error else "answer", as_text(message))]

    def event(self, event: "StreamEvent") -> None:
        """Something happened in a turn; ``live`` tells what it shows now."""
        if event.workflow_id in self._closed or event.event_type == MESSAGE_SENT:
            return  # messages come from OUTBOUND
        turn = self._live
        if turn is None or turn.workflow_id != event.workflow_id:
            # One turn runs at a time: another one is over, and its final event was lost.
            self._close()
            turn = self._live = LiveTurn(event.workflow_id)
        turn.take(event)
        # A turn that is over stays to be seen until its answer is here.
        if self._is_answered(turn) or (turn.over and not turn.message_ids):
            self._close()

    def live(self) -> str:
        """What the running turn shows until its answer is here; '' for nothing."""
        if not self.running and self._live is None:
            return ""
        turn = self._live or LiveTurn("")
        said = turn.answer if turn.answer is not None else turn.text
        parts = [*turn.lines, said] if said else turn.lines
        return printable("\n".join(parts or [text("thinking", self._language)]))

    def recalled(self, history: "RecallResult") -> list[Shown]:
        """Earlier messages, without the calls of tools."""
        found = []
        for entry in history.messages:
            role, content = entry.message.get("role"), entry.message.get("content")
            if not (isinstance(content, str) and content.strip()):
                continue
            if role == "user":
                prompt = text("chat_prompt", self._language)
                found.append(Shown("said", printable(prompt + content)))
            elif role == "assistant":
                found.append(Shown("answer", printable(content)))
        return found

    def _is_answered(self, turn: LiveTurn) -> bool:
        return not self._answered.isdisjoint(turn.message_ids)

    def _close(self) -> list[Shown]:
        """End the live turn; returns its progress, which may stay to be seen."""
        turn, self._live = self._live, None
        if turn is None:
            return []
        self._closed.add(turn.workflow_id)
        thinking = catalogue()["thinking"].values()
        lines = [line for line in turn.lines if line not in thinking]
        return [Shown("progress", printable("\n".join(lines)))] if lines else []
