"""What the gateway needs from the outside, and what a channel must offer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from gateway.delivery.record import Entry
from posthouse.errors import PermanentError, TransientError
from posthouse.messages import InboundMessage, Media, OutboundMessage
from posthouse.turns import Outgoing, RecallRequest, RecallResult

LengthUnit = Literal["characters", "bytes", "utf16"]


class OutcomeUnknown(TransientError):
    """The platform may or may not have taken the message."""

    code = "outcome_unknown"


class Conflict(TransientError):
    """Another replica changed the record first."""

    code = "conflict"
    retry_after_s = 0.5


class TooManyMessages(PermanentError):
    """The conversation holds as many messages as its subject may."""

    code = "too_many_messages"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do. ``idempotent``: a repeated idempotency key sends nothing twice."""

    idempotent: bool
    max_length: int | None = None
    unit: LengthUnit = "characters"


class Part(NamedTuple):
    """What the platform takes as one message."""

    content: str
    media: tuple[Media, ...] = ()


class Channel(Protocol):
    """One bot on one platform. A channel is one file, found by discovery: its function
    ``build(settings, egress)`` returns a Channel for each configured bot. One that receives
    webhooks is a ``gateway.receiving.Receiver`` too.
    """

    @property
    def name(self) -> str:
        """The platform, as ``feishu``."""
        ...

    @property
    def domain(self) -> str:
        """Domain of the bot's addresses: ``<channel>`` or ``<channel>+<bot>`` (R18)."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the platform can do."""
        ...

    def split(self, message: OutboundMessage) -> Sequence[Part]:
        """The message in parts the platform takes, at least one; the same ones at every call."""
        ...

    async def send(self, message: OutboundMessage, part: Part, idempotency_key: str) -> None:
        """Send one part; the key has at most 32 characters.

        Raises TransientError when nothing was sent and a later try may succeed, PermanentError
        when none can, OutcomeUnknown when the platform may have taken it.
        """
        ...


class Inbound(Protocol):
    """Where inbound messages are stored."""

    async def publish(self, subject: str, message: InboundMessage) -> None:
        """Return once it is stored. Raises Unavailable and TooManyMessages."""
        ...


class History(Protocol):
    """Where conversations are read."""

    async def recall(self, request: RecallRequest) -> RecallResult:
        """A page of a conversation. Raises Unavailable and the errors of the service."""
        ...


class Found(Protocol):
    """An outbound message as the bus keeps it."""

    @property
    def subject(self) -> str:
        """Subject it was published on."""
        ...

    @property
    def body(self) -> bytes:
        """JSON of the message, if it is well formed."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers it was published with."""
        ...

    @property
    def stream_seq(self) -> int:
        """Place in the stream."""
        ...

    @property
    def time(self) -> datetime:
        """When it was stored."""
        ...

    @property
    def deliveries(self) -> int:
        """How often it was handed out."""
        ...


class Parcel(Found, Protocol):
    """An outbound message handed over by the bus, to be settled once, which never fails."""

    async def ack(self) -> None:
        """It is finished."""
        ...

    async def nak(self, delay_s: float) -> None:
        """Hand it out again, to anyone, after ``delay_s`` seconds."""
        ...

    async def in_progress(self) -> None:
        """It is still in work."""
        ...


class Outbox(Protocol):
    """The outbound messages of one bot. All methods raise Unavailable."""

    async def fetch(self, count: int, timeout_s: float) -> Sequence[Parcel]:
        """At most ``count`` messages; none when none came in ``timeout_s`` seconds."""
        ...

    async def next_after(self, subject: str, stream_seq: int) -> Found | None:
        """The first message on a subject behind a place in the stream."""
        ...

    async def ack_floor(self) -> int:
        """Up to this place in the stream every message of the bot is finished."""
        ...

    async def close(self) -> None:
        """Fetch no more."""
        ...


class Stored(NamedTuple):
    """A delivery record and its revision; revision 0 = there is none yet."""

    entry: Entry | None
    revision: int


class Records(Protocol):
    """Delivery records by conversation key, changed by compare-and-set. All raise Unavailable."""

    async def read(self, key: str) -> Stored:
        """The record of a conversation."""
        ...

    async def write(self, key: str, entry: Entry, revision: int) -> int:
        """Replace the record of that revision; returns the new one. Raises Conflict."""
        ...


class Missing(Protocol):
    """Where messages that the bus did not bring are asked for."""

    async def missing(self, key: str, generation: int, seq: int) -> Outgoing | None:
        """The stored message, None when there is none. Raises Unavailable and the like."""
        ...


class DeadLetters(Protocol):
    """Where messages end that cannot be delivered."""

    async def keep(
        self, *, subject: str, body: bytes, reason: str, msg_id: str, stream_seq: int, attempts: int
    ) -> None:
        """Keep a message with its reason; ``msg_id`` makes repeats harmless. Raises Unavailable."""
        ...
