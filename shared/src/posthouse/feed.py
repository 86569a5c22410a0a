"""Reads the EVENTS stream: a live feed that can be resumed, from any process (R16).

The place of an event is ``<generation>-<sequence>``: creation time of the stream in ms and the
sequence in it. EVENTS is kept in memory, so a restart of NATS begins a new generation; a place of
another generation reads from the oldest event that is there, and readers drop what they know
(``live.py``).
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import errors as js_errors
from pydantic import ValidationError

from posthouse import bootstrap, streams, subjects
from posthouse.batches import FOREIGN, Batches, Interrupted
from posthouse.errors import BadRequest, Unavailable
from posthouse.events import StreamEvent

log = structlog.get_logger(__name__)

LOOK_S = 1.0
RETRY_S = 0.5
TIMEOUT_S = 2.0
_PLACE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


class Place(NamedTuple):
    """Where an event stands; written as ``<generation>-<seq>``, which is the id in SSE."""

    generation: int
    seq: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Read a place back. Raises BadRequest."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise BadRequest("an event id looks like 1764500000000-42")
        return cls(int(found[1]), int(found[2]))


BEGINNING = Place(0, 0)
"""Before the oldest event that is kept."""


class Arrived(NamedTuple):
    """An event, where it stands, and the key of its conversation."""

    place: Place
    key: str
    event: StreamEvent


class EventFeed:
    """The events on a subject filter behind a place; None = only what comes from now on.

    An outage of NATS is waited for. Each event comes once and in the order of the stream, unless
    a restart took the stream: then the feed goes on with the oldest event of the new one. Events
    come in batches when the reader asks, so one that is slow holds up little and loses nothing.
    """

    def __init__(
        self, connection: Client, subject: str = subjects.EVENTS_ALL, after: Place | None = None
    ) -> None:
        self._connection = connection
        self._js = connection.jetstream(timeout=TIMEOUT_S)
        self._subject = subject
        self._after = after
        self._batches: Batches | None = None

    @property
    def place(self) -> Place:
        """Behind which it goes on: that of the last event, at first where it began."""
        assert self._after is not None, "not open yet"
        return self._after

    async def __aenter__(self) -> "EventFeed":
        """Start reading: nothing published from here on is missed. Raises Unavailable."""
        if not self._connection.is_connected:
            raise Unavailable("NATS is not connected")
        try:
            await self._open()
        except (Interrupted, *FOREIGN) as error:
            raise Unavailable(f"the stream EVENTS: {type(error).__name__}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def __aiter__(self) -> AsyncIterator[Arrived]:
        """All events, for ever."""
        while True:
            if (arrived := await self.next()) is not None:
                yield arrived

    async def next(self, timeout_s: float = LOOK_S) -> Arrived | None:
        """The next event; None when none came in about ``timeout_s`` seconds."""
        try:
            batches = self._batches or await self._open()
            message = await batches.next(timeout_s)
        except (Interrupted, *FOREIGN) as error:
            if self._batches is not None:  # once for each outage
                log.info("feed.interrupted", subject=self._subject, why=type(error).__name__)
            await self._close()
            await asyncio.sleep(RETRY_S)
            return None
        return None if message is None else self._lifted(message)

    async def _open(self) -> Batches:
        if not self._connection.is_connected:
            raise Interrupted
        batches = Batches(self._connection, self._js, streams.EVENTS)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(batches.close)
            start = await self._start()
            await batches.open(self._subject, start.seq + 1)
            undo.pop_all()
        self._batches = batches
        return batches

    async def _start(self) -> Place:
        """The place to read behind, in the stream that is there now."""
        try:
            info = await self._js.stream_info(streams.EVENTS)
        except js_errors.NotFoundError:
            await bootstrap.create_events(self._js)
            info = await self._js.stream_info(streams.EVENTS)
        generation = bootstrap.generation_of(info)
        if self._after is None:
            self._after = Place(generation, info.state.last_seq)
        elif self._after.generation != generation:
            self._after = Place(generation, 0)
        elif self._after.seq > info.state.last_seq:
            self._after = Place(generation, info.state.last_seq)
        return self._after

    def _lifted(self, message: Msg) -> Arrived | None:
        assert self._after is not None
        seq = message.metadata.sequence.stream
        self._after = self._after._replace(seq=seq)
        try:
            event = StreamEvent.model_validate_json(message.data)
        except ValidationError:
            log.warning("feed.unreadable", subject=message.subject, seq=seq)
            return None
        key = subjects.conversation_key(message.subject).rpartition(".")[0]
        return Arrived(self._after, key, event)

    async def _close(self) -> None:
        batches, self._batches = self._batches, None
        if batches is not None:
            await batches.close()
