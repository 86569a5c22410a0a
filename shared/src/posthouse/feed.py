"""Reads the EVENTS stream: a live feed that can be resumed, from any process (R16).

The place of an event is ``<generation>-<sequence>``: creation time of the stream in ms and the
sequence in it. EVENTS is kept in memory, so a restart of NATS begins a new generation; a place of
another generation reads from the oldest event that is there, and readers drop what they know
(``live.py``).
"""

import asyncio
import re
from collections.abc import AsyncIterator
from types import TracebackType
from typing import NamedTuple

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import errors as js_errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from pydantic import ValidationError

from posthouse import bootstrap, streams, subjects
from posthouse.errors import BadRequest, Unavailable
from posthouse.events import StreamEvent

log = structlog.get_logger(__name__)

LOOK_S = 1.0
# Seconds of silence after which the server is asked whether the consumer still lives.
CHECK_S = 5.0
RETRY_S = 0.5
TIMEOUT_S = 2.0
_PLACE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
_FOREIGN = (nats.errors.Error, js_errors.Error, OSError, TimeoutError)


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


class _Interrupted(Exception):
    """What was missed must be read again."""


class EventFeed:
    """The events on a subject filter behind a place; None = only what comes from now on.

    An outage of NATS is waited for. Each event comes once and in the order of the stream, unless
    a restart took the stream: then the feed goes on with the oldest event of the new one.
    """

    def __init__(
        self, connection: Client, subject: str = subjects.EVENTS_ALL, after: Place | None = None
    ) -> None:
        self._connection = connection
        self._js = connection.jetstream(timeout=TIMEOUT_S)
        self._subject = subject
        self._after = after
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._received = 0
        self._reconnects = 0

    async def __aenter__(self) -> "EventFeed":
        """Start reading: nothing published from here on is missed. Raises Unavailable."""
        try:
            await self._open()
        except _FOREIGN as error:
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
            try:
                if self._subscription is None:
                    await self._open()
                arrived = await self._next()
            except (_Interrupted, *_FOREIGN) as error:
                log.info("feed.interrupted", subject=self._subject, why=type(error).__name__)
                await self._close()
                await asyncio.sleep(RETRY_S)
                continue
            if arrived is not None:
                yield arrived

    async def _open(self) -> None:
        self._reconnects = self._connection.stats["reconnects"]
        start = await self._start()
        inbox = self._connection.new_inbox()
        self._subscription = await self._connection.subscribe(inbox)
        self._received = 0
        config = ConsumerConfig(
            filter_subject=self._subject,
            deliver_subject=inbox,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start.seq + 1,
            ack_policy=AckPolicy.NONE,
            mem_storage=True,
        )
        self._consumer = (await self._js.add_consumer(streams.EVENTS, config)).name

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

    async def _next(self) -> Arrived | None:
        """The next event, None for what is none. Raises _Interrupted and errors of nats-py."""
        quiet_s = 0.0
        while True:
            assert self._subscription is not None
            try:
                message = await self._subscription.next_msg(timeout=LOOK_S)
            except nats.errors.TimeoutError:
                quiet_s = await self._look(quiet_s + LOOK_S)
                continue
            return self._lifted(message)

    async def _look(self, quiet_s: float) -> float:
        """Nothing came: is there anything to come? Returns how long to call it quiet."""
        if self._connection.stats["reconnects"] != self._reconnects:
            raise _Interrupted
        if quiet_s < CHECK_S:
            return quiet_s
        info = await self._js.consumer_info(streams.EVENTS, self._consumer)
        if info.delivered is not None and info.delivered.consumer_seq != self._received:
            raise _Interrupted
        return 0.0

    def _lifted(self, message: Msg) -> Arrived | None:
        assert self._after is not None
        sequence = message.metadata.sequence
        if sequence.consumer != self._received + 1:
            raise _Interrupted  # the client dropped messages: this reader was too slow
        self._received = sequence.consumer
        self._after = self._after._replace(seq=sequence.stream)
        try:
            event = StreamEvent.model_validate_json(message.data)
        except ValidationError:
            log.warning("feed.unreadable", subject=message.subject, seq=sequence.stream)
            return None
        key = subjects.conversation_key(message.subject).rpartition(".")[0]
        return Arrived(self._after, key, event)

    async def _close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            # The server drops the consumer when nobody listens any more.
            await subscription.unsubscribe()
        except _FOREIGN as error:
            log.info("feed.closed_without_answer", error=type(error).__name__)
