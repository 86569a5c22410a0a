"""What a reader shows of a workflow while it runs: events in, current text out (R16).

A reader may see an event twice (it reconnected, or the feed was read anew) and may see what a
lost attempt wrote (its worker died in the middle of an answer). ``LiveTurn`` keeps both away.
"""

from dataclasses import dataclass, field

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
        """Apply an event; False for one that is known already or was superseded."""
        newer = event.epoch > self._epoch
        if self.over or event.epoch < self._epoch:
            return False
        if event.seq <= self._seq and not (newer and event.event_type == events.RUN_RESUMED):
            return False
        self._epoch, self._seq = event.epoch, event.seq
        payload = event.payload if isinstance(event.payload, dict) else {}
        match event.event_type:
            case events.WORKFLOW_ACCEPTED:
                self.message_ids = tuple(payload.get("message_ids") or ())
            case events.RUN_RESUMED:
                self.iteration = payload.get("iteration") or 0
                self.text = payload.get("text") or ""
                self.lines = list(payload.get("lines") or ())
            case events.TEXT_DELTA:
                self._extend(payload.get("iteration") or 0, payload.get("text") or "")
            case events.PROGRESS_UPDATED:
                self.lines = list(payload.get("lines") or ())
            case _ if event.final:
                self._end(payload)
        return True

    def _extend(self, iteration: int, text: str) -> None:
        if iteration != self.iteration:
            self.iteration, self.text = iteration, ""
        self.text += text

    def _end(self, payload: dict[str, object]) -> None:
        self.over = True
        answer, error = payload.get("answer"), payload.get("error")
        self.answer = answer if isinstance(answer, str) else None
        self.error = error if isinstance(error, str) else None
        self.waiting_user = payload.get("waiting_user") is True
