"""One bot's durable on the OUTBOUND stream.

Read with nats-py and not with FastStream, whose pull subscriber (0.7.8, measured) keeps fetched
messages that no free worker takes, 1 with slow and 9 with failing handlers at 8 workers, and on
stop neither hands them back nor lets go: their conversations wait for ack_wait, 30 s.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import structlog
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError

from gateway.adapters.nats_errors import FOREIGN, unavailable
from posthouse import streams, subjects

log = structlog.get_logger(__name__)

WHAT = "the stream OUTBOUND"


class NatsParcel:
    """A message of the durable. Settling it never fails: what is not settled comes again."""

    def __init__(self, message: Msg) -> None:
        self._message = message
        meta = message.metadata
        self.subject: str = message.subject
        self.body: bytes = message.data
        self.headers: Mapping[str, str] = message.headers or {}
        self.stream_seq: int = meta.sequence.stream
        self.time: datetime = meta.timestamp
        self.deliveries: int = meta.num_delivered

    async def ack(self) -> None:
        """It is finished."""
        try:
            await self._message.ack()
        except FOREIGN as error:
            self._not_said("ack", error)

    async def nak(self, delay_s: float) -> None:
        """Hand it out again after ``delay_s`` seconds."""
        try:
            await self._message.nak(delay_s or None)
        except FOREIGN as error:
            self._not_said("nak", error)

    async def in_progress(self) -> None:
        """It is still in work."""
        try:
            await self._message.in_progress()
        except FOREIGN as error:
            self._not_said("in_progress", error)

    def _not_said(self, what: str, error: Exception) -> None:
        log.info("outbox.not_settled", said=what, seq=self.stream_seq, error=type(error).__name__)


class NatsOutbox:
    """Fetches from a durable that bootstrap has made."""

    def __init__(self, js: JetStreamContext, domain: str) -> None:
        self._js = js
        self._durable = subjects.deliver_durable(domain)
        self._subscription: JetStreamContext.PullSubscription | None = None

    async def fetch(self, count: int, timeout_s: float) -> list[NatsParcel]:
        """At most ``count`` messages; none when none came in time. Raises Unavailable."""
        with unavailable(WHAT):
            if self._subscription is None:
                self._subscription = await self._js.pull_subscribe_bind(
                    durable=self._durable, stream=streams.OUTBOUND
                )
            try:
                messages = await self._subscription.fetch(count, timeout=timeout_s)
            except TimeoutError:
                return []
        return [NatsParcel(message) for message in messages]

    async def next_after(self, subject: str, stream_seq: int) -> "StoredParcel | None":
        """The first message on a subject behind a place in the stream. Raises Unavailable."""
        with unavailable(WHAT):
            try:
                found = await self._js.get_msg(
                    streams.OUTBOUND, seq=stream_seq + 1, subject=subject, next=True
                )
            except NotFoundError:
                return None
        return StoredParcel(found)

    async def ack_floor(self) -> int:
        """Up to here the durable has every ack. Raises Unavailable."""
        with unavailable(WHAT):
            info = await self._js.consumer_info(streams.OUTBOUND, self._durable)
        return info.ack_floor.stream_seq if info.ack_floor is not None else 0

    async def close(self) -> None:
        """Hand back what came after the last fetch, and stop listening."""
        if self._subscription is None:
            return
        try:
            while waiting := self._subscription.pending_msgs:
                for message in await self._subscription.fetch(waiting, timeout=1):
                    await message.nak()
            await self._subscription.unsubscribe()
        except FOREIGN as error:
            log.info("outbox.closed_without_answer", error=type(error).__name__)


class StoredParcel:
    """A message read from the stream; the durable hands it out as well."""

    def __init__(self, message: RawStreamMsg) -> None:
        self.subject: str = message.subject or ""
        self.body: bytes = message.data or b""
        self.headers: Mapping[str, str] = message.headers or {}
        self.stream_seq: int = message.seq or 0
        self.time: datetime = message.time or datetime.now(UTC)
        self.deliveries = 0
