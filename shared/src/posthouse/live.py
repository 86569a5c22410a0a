"""What a reader shows of a workflow while it runs: events in, current text out (R16).

A reader may see an event twice (it reconnected, or the feed was read anew) and may see what a
lost attempt wrote (its worker died in the middle of an answer). ``LiveTurn`` keeps both away.
"""

from dataclasses import dataclass, field
from typing import Any

from posthouse import events
from posthouse.events import StreamEvent


@dataclass(slots=True)
class LiveTurn:
    """One workflow as its events tell it.

    ``text`` is what the model has said so far in its current iteration, ``lines`` the progress to
    show, ``answer`` the whole answer once it is ``over``: it replaces ``text``.
    """

    workflow_id: str
    text: str = ""
    lines: list[str] = field(default_factory=list)
    iteration: int = 0
    answer: str | None = None
    error: str | None = None
    waiting_user: bool = False
    over: bool = False
    message_ids: tuple[str, ...] = ()
    _epoch: int = 0
    _seq: int = 0

    def take(self, event: StreamEvent) -> bool:
        """Apply an event; False for one that is known already, superseded, or not of this one."""
        if self.over or not self._is_new(event):
            return False
        self._epoch, self._seq = event.epoch, event.seq
        payload = event.payload if isinstance(event.payload, dict) else {}
        match event.event_type:
            case events.WORKFLOW_ACCEPTED:
                self.message_ids = tuple(_texts(payload.get("message_ids")))
            case events.RUN_RESUMED:
                self.iteration = _number(payload.get("iteration"))
                self.text = _text(payload.get("text"))
                self.lines = _texts(payload.get("lines"))
            case events.TEXT_DELTA:
                self._extend(_number(payload.get("iteration")), _text(payload.get("text")))
            case events.PROGRESS_UPDATED:
                self.lines = _texts(payload.get("lines"))
                if self.text.strip() in self.lines:
                    self.text = ""  # words beside a tool call: they are a line now
            case _ if event.final:
                self._end(payload)
        return True

    def _is_new(self, event: StreamEvent) -> bool:
        if event.workflow_id != self.workflow_id or event.epoch < self._epoch:
            return False
        # A new owner counts on from the last step, below what the lost attempt reached.
        resumed = event.epoch > self._epoch and event.event_type == events.RUN_RESUMED
        return resumed or event.seq > self._seq

    def _extend(self, iteration: int, text: str) -> None:
        if iteration != self.iteration:
            self.iteration, self.text = iteration, ""
        self.text += text

    def _end(self, payload: dict[str, Any]) -> None:
        self.over = True
        self.answer = _text(payload.get("answer")) or None
        self.error = _text(payload.get("error")) or None
        self.waiting_user = payload.get("waiting_user") is True


# Anyone on the bus may write an event, and a reader must not fail on a field of another type.


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
