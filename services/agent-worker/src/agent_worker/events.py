"""Writes the events of a workflow: numbered without gaps, fenced by the lease's epoch (R16).

One event is in flight at a time, published with the expected last sequence of its subject. When
that is refused or the PubAck is lost, the subject's last event tells how to go on: it is ours, or
an older epoch's (ours goes behind it), or a newer epoch's (we are fenced and write no more). A
subject that lost its events (restart, age, size) starts anew with a ``run.resumed``.
"""

import asyncio
from collections import deque
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

import structlog

from agent_worker.ports import Conflict, EventLog
from posthouse import events
from posthouse.errors import PermanentError, TransientError
from posthouse.events import StreamEvent
from posthouse.messages import utc_now

log = structlog.get_logger(__name__)

RETRY_S = 0.5
MAX_BUFFERED = 1000


# Text that comes faster than this is put together, so that a token is not an event.
TEXT_PAUSE_S = 0.04
TEXT_CHARACTERS = 256
MAX_MERGED_CHARACTERS = 16_384
# What a lost feed begins with again: one event, and with 6 bytes a character still below 1 MB.
MAX_SHOWN_CHARACTERS = 160_000


class _Queued(NamedTuple):
    event_id: str
    event_type: str
    payload: Any
    timestamp: datetime


@dataclass(slots=True)
class _Shown:
    """What readers see of the open iteration by the events that are out."""

    iteration: int = 0
    text: str = ""
    lines: list[str] = field(default_factory=list)

    def add(self, event_type: str, payload: Any) -> None:
        if event_type == events.TEXT_DELTA:
            if payload["iteration"] != self.iteration:
                self.iteration, self.text = payload["iteration"], ""
            self.text = (self.text + payload["text"])[:MAX_SHOWN_CHARACTERS]
        elif event_type == events.PROGRESS_UPDATED:
            self.lines = payload["lines"]


def _queued(event_type: str, payload: Any) -> _Queued:
    return _Queued(uuid4().hex, event_type, payload, utc_now())


class EventWriter:
    """The single writer of one workflow; ``emit`` never waits, ``close`` does."""

    def __init__(
        self,
        log_: EventLog,
        subject: str,
        workflow_id: str,
        epoch: int,
        last_seq: int = 0,
        resumed: bool = False,
    ) -> None:
        self._log = log_
        self._subject = subject
        self._workflow_id = workflow_id
        self._epoch = epoch
        self._seq = last_seq
        self._stream_seq: int | None = None if resumed else 0
        self._waiting: deque[_Queued] = deque()
        self._shown = _Shown()
        self._iteration = 0
        self._text = ""
        self._text_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._fenced = False

    @property
    def seq(self) -> int:
        """Number of the last event that was published; stored with the steps."""
        return self._seq

    def emit(self, event_type: str, payload: Any = None) -> None:
        """Queue an event; a full queue (EVENTS away for long) drops progress, never a final."""
        self._flush_text()
        final = event_type in events.FINAL
        if self._fenced or (len(self._waiting) >= MAX_BUFFERED and not final):
            return
        self._waiting.append(_queued(event_type, payload))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), name="events")

    def emit_text(self, iteration: int, text: str) -> None:
        """Queue a piece of what the model says; what comes within 40 ms becomes one event."""
        if iteration != self._iteration:
            self._flush_text()
            self._iteration = iteration
        self._text += text
        loop = asyncio.get_running_loop()
        left_s = self._text_at + TEXT_PAUSE_S - loop.time()
        if left_s <= 0 or len(self._text) >= TEXT_CHARACTERS:
            self._flush_text()
        elif self._timer is None:
            self._timer = loop.call_later(left_s, self._flush_text)

    def _flush_text(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text, self._text = self._text, ""
        if not text:
            return
        self._text_at = asyncio.get_running_loop().time()
        if not self._merge(text):
            self.emit(events.TEXT_DELTA, {"iteration": self._iteration, "text": text})

    def _merge(self, text: str) -> bool:
        """Add text to the newest event that waits; the first of them may be on its way."""
        if len(self._waiting) < 2 or self._waiting[-1].event_type != events.TEXT_DELTA:
            return False
        waiting = self._waiting[-1].payload
        whole = waiting["text"] + text
        if waiting["iteration"] != self._iteration or len(whole) > MAX_MERGED_CHARACTERS:
            return False
        waiting["text"] = whole
        return True

    async def close(self, timeout_s: float) -> None:
        """Wait until all is published, at most ``timeout_s`` seconds."""
        self._flush_text()
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=timeout_s)
        if not done:
            self._task.cancel()
            log.warning("events.dropped", workflow_id=self._workflow_id, count=len(self._waiting))

    async def _drain(self) -> None:
        while self._waiting and not self._fenced:
            try:
                await self._publish(self._waiting[0])
            except TransientError:
                # The PubAck may be lost and the event stored: look before it goes out again.
                self._stream_seq = None
                await asyncio.sleep(RETRY_S)
                continue
            except (PermanentError, ValueError) as error:
                # Too large, or no JSON: what is behind it must not wait for it.
                log.error("events.refused", workflow_id=self._workflow_id, reason=str(error))
            self._waiting.popleft()

    async def _publish(self, queued: _Queued) -> None:
        while not self._fenced:
            try:
                if self._stream_seq is not None or not await self._is_settled(queued):
                    await self._append(queued)
                return
            except Conflict:
                self._stream_seq = None

    async def _append(self, queued: _Queued) -> None:
        event = StreamEvent(
            event_id=queued.event_id,
            workflow_id=self._workflow_id,
            seq=self._seq + 1,
            event_type=queued.event_type,
            timestamp=queued.timestamp,
            payload=queued.payload,
            final=queued.event_type in events.FINAL,
            epoch=self._epoch,
        )
        body = event.to_wire()
        self._stream_seq = await self._log.append(self._subject, body, self._stream_seq or 0)
        self._seq = event.seq
        self._shown.add(queued.event_type, queued.payload)

    async def _is_settled(self, queued: _Queued) -> bool:
        """Take up the numbers where the subject stands.

        True if nothing is left to do: this event is stored already, the workflow is over, or we
        are fenced.
        """
        found = await self._log.last(self._subject)
        if found is None:
            await self._start_anew(queued)
            return False
        last = StreamEvent.model_validate_json(found[1])
        self._stream_seq, self._seq = found[0], last.seq
        ours = last.event_id == queued.event_id
        # Behind a final event nothing follows: whoever relayed our answer wrote it for us.
        self._fenced = last.epoch > self._epoch or (last.final and not ours)
        if self._fenced:
            log.warning("events.fenced", workflow_id=self._workflow_id, epoch=self._epoch)
        return self._fenced or ours

    async def _start_anew(self, queued: _Queued) -> None:
        """A lost feed goes on with the numbers we know, and tells its readers so."""
        self._stream_seq = 0
        if self._seq and queued.event_type != events.RUN_RESUMED:
            shown = asdict(self._shown)
            await self._append(_queued(events.RUN_RESUMED, {"epoch": self._epoch, **shown}))
