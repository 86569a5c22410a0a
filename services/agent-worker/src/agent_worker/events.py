"""Writes the events of a workflow: numbered without gaps, fenced by the lease's epoch (R16).

One event is in flight at a time, published with the expected last sequence of its subject. When
that is refused or the PubAck is lost, the subject's last event tells how to go on: it is ours, or
an older epoch's (ours goes behind it), or a newer epoch's (we are fenced and write no more). A
subject that lost its events (restart, age, size) starts anew with a ``run.resumed``.
"""

import asyncio
from collections import deque
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


class _Queued(NamedTuple):
    event_id: str
    event_type: str
    payload: Any
    timestamp: datetime


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
        self._task: asyncio.Task[None] | None = None
        self._fenced = False

    @property
    def seq(self) -> int:
        """Number of the last event that was published; stored with the steps."""
        return self._seq

    def emit(self, event_type: str, payload: Any = None) -> None:
        """Queue an event; a full queue (EVENTS away for long) drops progress, never a final."""
        final = event_type in events.FINAL
        if self._fenced or (len(self._waiting) >= MAX_BUFFERED and not final):
            return
        self._waiting.append(_queued(event_type, payload))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), name="events")

    async def close(self, timeout_s: float) -> None:
        """Wait until all is published, at most ``timeout_s`` seconds."""
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

    async def _is_settled(self, queued: _Queued) -> bool:
        """Take up the numbers where the subject stands.

        True if nothing is left to do: this event is stored already, or we are fenced.
        """
        found = await self._log.last(self._subject)
        if found is None:
            await self._start_anew(queued)
            return False
        last = StreamEvent.model_validate_json(found[1])
        self._stream_seq, self._seq = found[0], last.seq
        self._fenced = last.epoch > self._epoch
        if self._fenced:
            log.warning("events.fenced", workflow_id=self._workflow_id, epoch=self._epoch)
        return self._fenced or last.event_id == queued.event_id

    async def _start_anew(self, queued: _Queued) -> None:
        """A lost feed goes on with the numbers we know, and tells its readers so."""
        self._stream_seq = 0
        if self._seq and queued.event_type != events.RUN_RESUMED:
            await self._append(_queued(events.RUN_RESUMED, {"epoch": self._epoch}))
