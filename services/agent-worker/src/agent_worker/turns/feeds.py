"""Feeds whose turn is over: each gets its final event, whoever has to write it."""

import asyncio

import structlog

from agent_worker.events import EventWriter
from agent_worker.ports import EventLog
from posthouse import events, subjects
from posthouse.errors import PosthouseError
from posthouse.events import StreamEvent
from posthouse.messages import OutboundMessage

log = structlog.get_logger(__name__)

# A feed that cannot be written for so long is given up: Postgres keeps the record.
PATIENCE_S = 30.0
WORKFLOW_ID = "workflow_id"
"""Metadata of a final answer: the workflow whose feed ends with it."""
_FINAL_TYPES = {None: events.WORKFLOW_COMPLETED, "cancelled": events.WORKFLOW_CANCELED}


def final_event(answer: OutboundMessage) -> tuple[str, dict[str, object]]:
    """Type and payload of the event that ends a feed."""
    code = answer.error.code if answer.error else None
    kind = _FINAL_TYPES.get(code, events.WORKFLOW_FAILED)
    return kind, {"answer": answer.content, "error": code, "waiting_user": answer.waiting_user}


class Feeds:
    """Keeps the writers of finished turns until their last event is out."""

    def __init__(self, event_log: EventLog) -> None:
        self._log = event_log
        self._closing: set[asyncio.Task[None]] = set()

    def close(self, writer: EventWriter) -> asyncio.Task[None]:
        """Let a writer finish in the background."""
        task = asyncio.create_task(writer.close(PATIENCE_S), name="feed")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def settled(self, timeout_s: float) -> None:
        """Wait for all of them, at most ``timeout_s`` seconds."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=timeout_s)

    async def complete(self, answer: OutboundMessage) -> None:
        """End the feed of an answer whose worker died behind the commit, if it has no end yet."""
        workflow_id = answer.metadata.get(WORKFLOW_ID)
        if workflow_id is None:
            return
        subject = subjects.events(answer.conversation, workflow_id)
        try:
            found = await self._log.last(subject)
            last = StreamEvent.model_validate_json(found[1]) if found else None
        except (PosthouseError, ValueError) as error:
            # Cosmetic: the answer itself must not fail because of it, nor of a stranger's event.
            log.warning("feed.not_completed", workflow_id=workflow_id, why=type(error).__name__)
            return
        if last is None or last.final:
            return
        writer = EventWriter(self._log, subject, workflow_id, last.epoch, last.seq, resumed=True)
        writer.emit(*final_event(answer))
        self.close(writer)
