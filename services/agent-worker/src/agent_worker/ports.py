"""What the turn loop needs from the outside."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from posthouse import calls, turns
from posthouse.errors import PermanentError
from posthouse.turns import Outgoing, Position


class Conflict(PermanentError):
    """Another event stands where this one was to go."""

    code = "conflict"


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message as it stands in INBOUND."""

    subject: str
    position: Position
    body: bytes
    time: datetime


class Delivery(Protocol):
    """A stream message that was handed to this worker and must be settled."""

    @property
    def message(self) -> StreamMessage: ...

    async def ack(self) -> None:
        """It is stored: never deliver it again."""
        ...

    async def nak(self, delay_s: float) -> None:
        """Deliver it again, here or elsewhere, after ``delay_s`` seconds."""
        ...


class Inbox(Protocol):
    """The INBOUND stream. Its methods raise Unavailable."""

    async def fetch(self, durable: str) -> Delivery | None:
        """The next message of a durable, None when none came in time."""
        ...

    async def next_message(self, subject: str, after: Position) -> StreamMessage | None:
        """The first message on ``subject`` behind a position, None at the end."""
        ...

    def generation(self) -> int:
        """The generation of the stream: its creation time in ms."""
        ...


class TurnApi(Protocol):
    """``memory.turn.*``. Repeats what may pass; raises what is left: TransientError when the
    service stays away, Fenced when another worker took the conversation, BadRequest, BadMessage.
    """

    async def open(self, request: turns.OpenRequest) -> turns.OpenResult: ...
    async def admit(self, request: turns.AdmitRequest) -> turns.AdmitResult: ...
    async def begin(self, request: turns.BeginRequest) -> turns.BeginResult: ...
    async def read(self, request: turns.ReadRequest) -> turns.ReadResult: ...
    async def record(self, request: turns.RecordRequest) -> turns.Ack: ...
    async def emit(self, request: turns.EmitRequest) -> turns.EmitResult: ...
    async def notify(self, request: turns.NotifyRequest) -> turns.EmitResult: ...
    async def commit(self, request: turns.CommitRequest) -> turns.CommitResult: ...
    async def release(self, request: turns.ReleaseRequest) -> None: ...
    async def control(self, request: turns.ControlRequest) -> turns.ControlResult: ...
    async def heartbeat(self, request: turns.HeartbeatRequest) -> turns.HeartbeatResult: ...


class CallApi(Protocol):
    """``memory.call.*``; raises as TurnApi."""

    async def open(self, request: calls.CallOpenRequest) -> calls.CallOpenResult: ...
    async def record(self, request: calls.CallRecordRequest) -> None: ...
    async def finish(self, request: calls.CallFinishRequest) -> None: ...


class Publisher(Protocol):
    """JetStream publishing. Raises Unavailable, or PermanentError for what it will never take."""

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> int:
        """Store a message, return its stream sequence."""
        ...

    async def hint(self, subject: str, body: bytes) -> None:
        """Core publish: nobody need listen, and it may be lost."""
        ...

    async def dead_outbound(self, message: Outgoing, reason: str) -> None:
        """Keep the name of an outbound message that can never be published, once."""
        ...

    async def dead_letter(self, message: StreamMessage, reason: str, attempts: int = 0) -> None:
        """Keep a message that cannot be handled, once."""
        ...


class EventLog(Protocol):
    """The EVENTS stream, one subject a workflow (R16)."""

    async def append(self, subject: str, body: bytes, expected: int) -> int:
        """Append if ``expected`` is still the subject's last stream sequence (0 = none).

        Returns the new one. Raises Conflict, Unavailable.
        """
        ...

    async def last(self, subject: str) -> tuple[int, bytes] | None:
        """Stream sequence and body of the newest event, None when there is none."""
        ...
