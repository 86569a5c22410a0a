"""The EVENTS stream for tests: in memory and on a server, both with ways to lose it."""

from typing import Protocol

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from agent_worker.adapters.jetstream import JetStreamEvents
from agent_worker.ports import Conflict, EventLog
from posthouse import streams
from posthouse.errors import PermanentError, Unavailable
from posthouse.events import StreamEvent

MAX_BODY_BYTES = 1024 * 1024


class MemoryEventLog:
    """EVENTS in memory (port EventLog): one sequence over all subjects, as in the stream."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, str, bytes]] = []
        self.missing = False
        self.sequence = 0

    async def append(self, subject: str, body: bytes, expected: int) -> int:
        """See EventLog."""
        if len(body) > MAX_BODY_BYTES:
            raise PermanentError("too large")
        if self.missing:
            self.missing = False
            raise Unavailable("the stream was missing")
        last = self._newest(subject)
        if expected != (last[0] if last else 0):
            raise Conflict
        self.sequence += 1
        self.stored.append((self.sequence, subject, body))
        return self.sequence

    async def last(self, subject: str) -> tuple[int, bytes] | None:
        """See EventLog."""
        return self._newest(subject)

    def _newest(self, subject: str) -> tuple[int, bytes] | None:
        return next(((n, b) for n, s, b in reversed(self.stored) if s == subject), None)


class Feed(Protocol):
    """A log, and what a test does behind its back."""

    @property
    def log(self) -> EventLog: ...

    async def events(self, subject: str) -> list[StreamEvent]:
        """All events of a subject, in the order of the stream."""
        ...

    async def purge(self) -> None:
        """Drop all events, as age and size do; sequences go on."""
        ...

    async def delete(self) -> None:
        """Drop the stream itself, as a restart does; sequences start anew."""
        ...


class MemoryFeed:
    """The log in memory."""

    def __init__(self) -> None:
        self.log = MemoryEventLog()

    async def events(self, subject: str) -> list[StreamEvent]:
        """See Feed."""
        return [StreamEvent.model_validate_json(b) for _, s, b in self.log.stored if s == subject]

    async def purge(self) -> None:
        """See Feed."""
        self.log.stored.clear()

    async def delete(self) -> None:
        """See Feed."""
        await self.purge()
        self.log.sequence, self.log.missing = 0, True


class JetStreamFeed:
    """The real stream."""

    def __init__(self, js: JetStreamContext) -> None:
        self.log = JetStreamEvents(js)
        self._js = js

    async def events(self, subject: str) -> list[StreamEvent]:
        """See Feed."""
        found: list[StreamEvent] = []
        seq = 1
        while True:
            try:
                raw = await self._js.get_msg(streams.EVENTS, seq=seq, subject=subject, next=True)
            except NotFoundError:
                return found
            found.append(StreamEvent.model_validate_json(raw.data or b""))
            seq = (raw.seq or 0) + 1

    async def purge(self) -> None:
        """See Feed."""
        await self._js.purge_stream(streams.EVENTS)

    async def delete(self) -> None:
        """See Feed."""
        await self._js.delete_stream(streams.EVENTS)


class LosesAcks:
    """Another log, that stores but does not say so the first ``count`` times."""

    def __init__(self, log: EventLog, count: int) -> None:
        self._log = log
        self._left = count

    async def append(self, subject: str, body: bytes, expected: int) -> int:
        """See EventLog."""
        seq = await self._log.append(subject, body, expected)
        if self._left:
            self._left -= 1
            raise Unavailable("the PubAck was lost")
        return seq

    async def last(self, subject: str) -> tuple[int, bytes] | None:
        """See EventLog."""
        return await self._log.last(subject)
