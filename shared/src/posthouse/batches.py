"""A stream read in batches, by a short-lived consumer of its own on the server.

The server sends what the reader has asked for and no more, so a slow reader holds up little and
loses nothing.
"""

from uuid import uuid4

import nats.errors
import orjson
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js import errors as js_errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, Header, StatusCode

from posthouse.streams import MEBIBYTE

log = structlog.get_logger(__name__)

FOREIGN = (nats.errors.Error, js_errors.Error, OSError, TimeoutError)
"""What nats-py raises while NATS is away."""

BATCH = 256
BATCH_BYTES = 2 * MEBIBYTE
BATCH_S = 30
HEARTBEAT_S = 5
# Seconds without message and heartbeat after which the consumer counts as lost.
SILENCE_S = 2 * HEARTBEAT_S + 2
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
_MESSAGE_REPLY = "$JS.ACK."
_FULL = frozenset({"Batch Completed", "Message Size Exceeds MaxBytes"})


class Interrupted(Exception):
    """The consumer is lost, or messages on their way were: read again behind the last one."""


class Batches:
    """The messages of a stream on a subject filter, in order, from one sequence on.

    All methods but ``close`` raise Interrupted and FOREIGN.
    """

    def __init__(self, connection: Client, js: JetStreamContext, stream: str) -> None:
        self._connection = connection
        self._js = js
        self._stream = stream
        self._consumer = f"reader-{uuid4().hex}"
        self._inbox = connection.new_inbox()
        self._request = ""
        self._subscription: Subscription | None = None
        self._reconnects = connection.stats["reconnects"]
        self._received = 0
        self._wanted = 0
        self._quiet_s = 0.0

    async def open(self, subject: str, start: int) -> None:
        """Read from the sequence ``start`` on: nothing stored later is missed."""
        self._subscription = await self._connection.subscribe(f"{self._inbox}.*")
        config = ConsumerConfig(
            name=self._consumer,
            filter_subject=subject,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=UNUSED_S,
            mem_storage=True,
        )
        await self._js.add_consumer(self._stream, config)
        self._check_connection()

    async def next(self, timeout_s: float) -> Msg | None:
        """The next message; None when none came in ``timeout_s`` seconds."""
        assert self._subscription is not None
        if self._wanted == 0:
            await self._ask()
        try:
            message = await self._subscription.next_msg(timeout=timeout_s)
        except nats.errors.TimeoutError:
            self._check_connection()
            self._quiet_s += timeout_s
            if self._quiet_s > SILENCE_S:
                raise Interrupted from None
            return None
        self._quiet_s = 0.0
        if message.reply.startswith(_MESSAGE_REPLY):
            self._count(message)
            return message
        self._heed(message)
        return None

    async def close(self) -> None:
        """Leave nothing behind. Raises nothing and waits for nothing: NATS may be away."""
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            await subscription.unsubscribe()
            # Unanswered; the server drops an unused consumer by itself, only later.
            await self._connection.publish(f"{_API}.DELETE.{self._stream}.{self._consumer}")
        except FOREIGN as error:
            log.info("batches.closed_without_answer", error=type(error).__name__)

    async def _ask(self) -> None:
        subject = f"{_API}.MSG.NEXT.{self._stream}.{self._consumer}"
        self._request = f"{self._inbox}.{self._received}"
        await self._connection.publish(subject, _ASK, reply=self._request)
        self._wanted = BATCH

    def _count(self, message: Msg) -> None:
        if message.metadata.sequence.consumer != self._received + 1:
            raise Interrupted  # lost with a connection
        self._received += 1
        self._wanted -= 1

    def _heed(self, notice: Msg) -> None:
        """What the server says beside messages."""
        headers = notice.headers or {}
        status = headers.get(Header.STATUS)
        if status == StatusCode.CONTROL_MESSAGE:  # a heartbeat
            return
        if notice.subject != self._request:
            # "Batch Completed" comes behind the last message, when more is asked for already.
            return
        over = status == StatusCode.REQUEST_TIMEOUT
        if not over and headers.get(Header.DESCRIPTION) not in _FULL:
            raise Interrupted
        self._wanted = 0

    def _check_connection(self) -> None:
        """After a reconnect the server knows of no request."""
        if self._connection.stats["reconnects"] != self._reconnects:
            raise Interrupted
