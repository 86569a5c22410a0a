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
from uuid import uuid4

import nats.errors
import orjson
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import errors as js_errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, Header, StatusCode
from pydantic import ValidationError

from posthouse import bootstrap, streams, subjects
from posthouse.errors import BadRequest, Unavailable
from posthouse.events import StreamEvent

log = structlog.get_logger(__name__)

LOOK_S = 1.0
RETRY_S = 0.5
TIMEOUT_S = 2.0
HEARTBEAT_S = 5
# Seconds without event and heartbeat after which the consumer counts as lost.
SILENCE_S = 2 * HEARTBEAT_S + 2
# What a reader is sent before it asks for more: all that it can hold up in memory.
BATCH = 256
BATCH_BYTES = 2 * streams.MEBIBYTE
BATCH_S = 30
# Longer than a reader that is alive may take over one batch.
UNUSED_S = 60.0

_ASK = orjson.dumps(
    {
        "batch": BATCH,
        "max_bytes": BATCH_BYTES,
        "expires": BATCH_S * 10**9,
        "idle_heartbeat": HEARTBEAT_S * 10**9,
    }
)
_API = "$JS.API.CONSUMER"
_EVENT_REPLY = "$JS.ACK."
_TOO_MUCH_FOR_THE_BATCH = "Message Size Exceeds MaxBytes"
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
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._received = 0
        self._wanted = 0
        self._quiet_s = 0.0
        self._reconnects = 0

    async def __aenter__(self) -> "EventFeed":
        """Start reading: nothing published from here on is missed. Raises Unavailable."""
        if not self._connection.is_connected:
            raise Unavailable("NATS is not connected")
        try:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self._close)
                await self._open()
                undo.pop_all()
        except (_Interrupted, *_FOREIGN) as error:
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
            if self._subscription is None:
                await self._reopen()
            return await self._take(timeout_s)
        except (_Interrupted, *_FOREIGN) as error:
            log.info("feed.interrupted", subject=self._subject, why=type(error).__name__)
            await self._close()
            await asyncio.sleep(RETRY_S)
            return None

    async def _reopen(self) -> None:
        if not self._connection.is_connected:
            raise _Interrupted
        await self._open()

    async def _open(self) -> None:
        self._reconnects = self._connection.stats["reconnects"]
        start = await self._start()
        self._subscription = await self._connection.subscribe(self._connection.new_inbox())
        self._consumer = f"feed-{uuid4().hex}"
        self._received = self._wanted = 0
        self._quiet_s = 0.0
        config = ConsumerConfig(
            name=self._consumer,
            filter_subject=self._subject,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start.seq + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=UNUSED_S,
            mem_storage=True,
        )
        await self._js.add_consumer(streams.EVENTS, config)
        self._check_connection()

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

    async def _take(self, timeout_s: float) -> Arrived | None:
        """The next event, None for what is none. Raises _Interrupted and errors of nats-py."""
        assert self._subscription is not None
        if self._wanted == 0:
            await self._ask()
        try:
            message = await self._subscription.next_msg(timeout=timeout_s)
        except nats.errors.TimeoutError:
            self._check_connection()
            self._quiet_s += timeout_s
            if self._quiet_s > SILENCE_S:
                raise _Interrupted from None
            return None
        self._quiet_s = 0.0
        if message.reply.startswith(_EVENT_REPLY):
            return self._lifted(message)
        self._heed(message)
        return None

    async def _ask(self) -> None:
        assert self._subscription is not None
        subject = f"{_API}.MSG.NEXT.{streams.EVENTS}.{self._consumer}"
        await self._connection.publish(subject, _ASK, reply=self._subscription.subject)
        self._wanted = BATCH

    def _heed(self, notice: Msg) -> None:
        """What the server says beside events. Raises _Interrupted when the consumer is gone."""
        headers = notice.headers or {}
        status = headers.get(Header.STATUS)
        if status == StatusCode.CONTROL_MESSAGE:
            return
        over = status == StatusCode.REQUEST_TIMEOUT
        full = headers.get(Header.DESCRIPTION) == _TOO_MUCH_FOR_THE_BATCH
        if not over and not full:
            raise _Interrupted
        self._wanted = 0

    def _check_connection(self) -> None:
        if self._connection.stats["reconnects"] != self._reconnects:
            raise _Interrupted

    def _lifted(self, message: Msg) -> Arrived | None:
        assert self._after is not None
        sequence = message.metadata.sequence
        if sequence.consumer != self._received + 1:
            raise _Interrupted  # lost with a connection
        self._received = sequence.consumer
        self._wanted -= 1
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
            await subscription.unsubscribe()
            # Nobody waits for the answer: the server drops an unused consumer by itself, later.
            await self._connection.publish(f"{_API}.DELETE.{streams.EVENTS}.{self._consumer}")
        except _FOREIGN as error:
            log.info("feed.closed_without_answer", error=type(error).__name__)
