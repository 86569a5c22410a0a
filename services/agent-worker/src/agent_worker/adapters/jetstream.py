"""INBOUND, publishing and EVENTS over nats-py.

The pull loop is ours: FastStream's pull subscriber holds fetched messages while their ack_wait
runs, and drops them at a shutdown (measured).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import nats.errors
import nats.js.errors as js_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg

from agent_worker import settings
from agent_worker.ports import Conflict, StreamMessage
from posthouse import bootstrap, dlq, streams, subjects
from posthouse.errors import PermanentError, Unavailable
from posthouse.turns import Outgoing, Position

EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
WRONG_LAST_SEQUENCE = 10071
OUTAGE = (nats.errors.Error, js_errors.Error, OSError, TimeoutError)


@asynccontextmanager
async def _server() -> AsyncIterator[None]:
    """What goes wrong between here and JetStream, as our errors."""
    try:
        yield
    except nats.errors.MaxPayloadError as error:
        raise PermanentError("the message is larger than NATS takes") from error
    except OUTAGE as error:
        raise Unavailable(f"JetStream: {type(error).__name__}") from error


class JetStreamDelivery:
    """A message of a pull consumer (port Delivery)."""

    def __init__(self, raw: Msg, message: StreamMessage) -> None:
        self._raw = raw
        self.message = message

    async def ack(self) -> None:
        """Fire and forget: a lost ack costs a redelivery, which finds the message stored."""
        async with _server():
            await self._raw.ack()

    async def nak(self, delay_s: float) -> None:
        """Back to the stream for a while."""
        async with _server():
            await self._raw.nak(delay=delay_s)


class JetStreamInbox:
    """The INBOUND stream (port Inbox)."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._generation = 0
        self._subscriptions: dict[str, JetStreamContext.PullSubscription] = {}

    async def refresh(self) -> None:
        """Read the stream's generation; after a reconnect it may be another stream (R4)."""
        async with _server():
            self._generation = await bootstrap.generation(self._js, streams.INBOUND)

    def generation(self) -> int:
        """See Inbox."""
        return self._generation

    async def fetch(self, durable: str) -> JetStreamDelivery | None:
        """One message at a time: what is fetched is worked on at once."""
        try:
            raw = (await (await self._pull(durable)).fetch(1, settings.FETCH_TIMEOUT_S))[0]
        except nats.errors.TimeoutError:
            return None
        except OUTAGE as error:
            raise Unavailable(f"JetStream: {type(error).__name__}") from error
        meta = raw.metadata
        return JetStreamDelivery(
            raw,
            StreamMessage(
                raw.subject,
                Position(generation=self._generation, seq=meta.sequence.stream),
                raw.data,
                meta.timestamp,
            ),
        )

    async def _pull(self, durable: str) -> JetStreamContext.PullSubscription:
        if durable not in self._subscriptions:
            self._subscriptions[durable] = await self._js.pull_subscribe_bind(
                durable, streams.INBOUND
            )
        return self._subscriptions[durable]

    async def next_message(self, subject: str, after: Position) -> StreamMessage | None:
        """Asks the leader: a lagging replica may miss a message."""
        try:
            found = await self._js.get_msg(
                streams.INBOUND, seq=after.seq + 1, subject=subject, next=True
            )
        except js_errors.NotFoundError:
            return None
        except OUTAGE as error:
            raise Unavailable(f"JetStream: {type(error).__name__}") from error
        return self._lifted(found)

    def _lifted(self, raw: RawStreamMsg) -> StreamMessage:
        return StreamMessage(
            raw.subject or "",
            Position(generation=self._generation, seq=raw.seq or 0),
            raw.data or b"",
            raw.time or datetime.now(UTC),
        )


class JetStreamPublisher:
    """Publishing with PubAck (port Publisher)."""

    def __init__(self, connection: Client) -> None:
        self._connection = connection
        self._js = connection.jetstream()

    async def hint(self, subject: str, body: bytes) -> None:
        """Core publish."""
        async with _server():
            await self._connection.publish(subject, body)

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> int:
        """Store a message; its sequence."""
        async with _server():
            ack = await self._js.publish(
                subject, body, headers=headers, timeout=settings.PUBLISH_TIMEOUT_S
            )
        return ack.seq

    async def dead_outbound(self, message: Outgoing, reason: str) -> None:
        """Without its content, which may be what NATS does not take."""
        body = message.body.model_copy(update={"content": "", "media": (), "metadata": {}})
        async with _server():
            await dlq.publish(
                self._js,
                subject=f"{subjects.OUTBOUND_PREFIX}.{message.key}",
                body=body.to_wire(),
                reason=reason,
                msg_id=message.id,
            )

    async def dead_letter(self, message: StreamMessage, reason: str, attempts: int = 0) -> None:
        """Keep a stream message under ``dlq.…``; its position makes repeats harmless (R5)."""
        place = message.position
        async with _server():
            await dlq.publish(
                self._js,
                subject=message.subject,
                body=message.body,
                reason=reason,
                msg_id=f"{streams.INBOUND}:{place.generation}:{place.seq}",
                stream_seq=place.seq,
                attempts=attempts,
            )


class JetStreamEvents:
    """EVENTS with expected sequences (port EventLog). No Nats-Msg-Id: see R16."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js

    async def append(self, subject: str, body: bytes, expected: int) -> int:
        """Append behind ``expected``; a missing stream is created for the next try."""
        headers = {EXPECTED_LAST: str(expected)}
        async with _server():
            try:
                ack = await self._js.publish(
                    subject, body, headers=headers, timeout=settings.EVENT_TIMEOUT_S
                )
            except js_errors.NoStreamResponseError:
                await bootstrap.create_events(self._js)
                raise
            except js_errors.APIError as error:
                if error.err_code == WRONG_LAST_SEQUENCE:
                    raise Conflict from error
                raise
        return ack.seq

    async def last(self, subject: str) -> tuple[int, bytes] | None:
        """The newest event of a subject."""
        async with _server():
            try:
                found = await self._js.get_last_msg(streams.EVENTS, subject)
            except js_errors.NotFoundError:
                return None
        return found.seq or 0, found.data or b""
