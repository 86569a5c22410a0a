"""Requests and results of ``memory.turn.*``, ``memory.history.*`` and ``memory.delivery.*``.

A conversation is named by its key (``im.cli.local``, see ``subjects.py``). A **position** is a
place in the INBOUND stream: the stream's generation (creation time in ms) and a sequence. A turn
is named by the position of its first message. Every request that changes a turn carries the
**epoch** of the lease; a stale one raises Fenced and changes nothing.
"""

from typing import Any, Literal

from pydantic import Field

from posthouse.messages import InboundMessage, OutboundMessage, Wire

Json = dict[str, Any]
OpenState = Literal["opened", "busy", "done"]
MessageState = Literal["waiting", "done", "failed", "refused", "stopped"]
TurnState = Literal["done", "failed"]


class Position(Wire):
    """A place in INBOUND; ordered by generation, then sequence."""

    generation: int
    seq: int

    def __lt__(self, other: "Position") -> bool:
        return (self.generation, self.seq) < (other.generation, other.seq)

    def __le__(self, other: "Position") -> bool:
        return (self.generation, self.seq) <= (other.generation, other.seq)


class Waiting(Position):
    """An admitted message that no turn has finished; ``attempts`` counts turns begun,
    ``vanished`` the workers that died with one.
    """

    source_id: str
    attempts: int = 0
    vanished: int = 0

    @property
    def position(self) -> Position:
        """Where it stands in the stream."""
        return Position(generation=self.generation, seq=self.seq)


class Admitted(Waiting):
    """A waiting message with its body."""

    body: InboundMessage


class Step(Wire):
    """One recorded model response or tool result; ``n`` counts up within a run."""

    run_id: str = ""
    n: int
    kind: str
    body: Json


class Outgoing(Wire):
    """A stored outbound message that still has to be published, in ``seq`` order."""

    key: str
    generation: int
    seq: int
    id: str
    body: OutboundMessage


class Controls(Wire):
    """Commands that wait for the holder (R3): /stop covers all up to, /new starts after."""

    stop_upto: Position | None = None
    new_at: Position | None = None


class Lease(Wire):
    """Ownership of a conversation: what the new holder needs to go on."""

    key: str
    address: str
    tenant_id: int
    epoch: int
    checked: Position
    waiting: list[Waiting] = Field(default_factory=list)
    unpublished: list[Outgoing] = Field(default_factory=list)
    took_over: str | None = None


class Letter(Wire):
    """A stream message to store: its body, or the reason why it has none (a tombstone, R5)."""

    position: Position
    source_id: str
    address: str = ""
    body: InboundMessage | None = None
    reason: str | None = None


class OpenRequest(Wire):
    """Store a message and take the conversation's lease if it is free or expired."""

    key: str
    letter: Letter
    worker: str


class OpenResult(Wire):
    """Any answer means "stored". ``message`` is what became of this one; ``lease`` is there
    exactly when state is ``opened``, and then may be for other messages that wait.
    """

    state: OpenState
    message: MessageState
    lease: Lease | None = None
    unpublished: list[Outgoing] = Field(default_factory=list)


class AdmitRequest(Wire):
    """The holder found a stream message that nobody had opened yet."""

    key: str
    epoch: int
    letter: Letter


class AdmitResult(Wire):
    """What became of the message, and all that waits now."""

    message: MessageState
    waiting: list[Waiting] = Field(default_factory=list)


class Manifest(Wire):
    """Step 0 of a turn (R8): what a resume must use again, exactly."""

    run_id: str
    positions: list[Position]
    deadline_ms: int
    config_snapshot_id: str = ""
    budget: Json = Field(default_factory=dict)
    trace: dict[str, str] = Field(default_factory=dict)


class BeginRequest(Wire):
    """Start the turn of a head message, or go on with the one recorded."""

    key: str
    epoch: int
    worker: str
    manifest: Manifest
    history_limit: int = Field(200, ge=0, le=1000)


class BeginResult(Wire):
    """The manifest that counts (an earlier one wins), its messages, steps after the manifest,
    and the history before the turn. ``more``: read the further steps with ``memory.turn.read``.
    """

    manifest: Manifest
    messages: list[Admitted]
    steps: list[Step] = Field(default_factory=list)
    history: list[Json] = Field(default_factory=list)
    event_seq: int = 0
    attempts: int = 1
    vanished: int = 0
    controls: Controls = Controls()
    more: bool = False


class RequestedCall(Wire):
    """A sub-agent call that a step asks for (R13)."""

    call_id: str
    request_hash: str


class RecordRequest(Wire):
    """Record a step before acting on it; repeats are harmless."""

    key: str
    epoch: int
    turn: Position
    step: Step
    event_seq: int = 0
    calls: list[RequestedCall] = Field(default_factory=list)


class Ack(Wire):
    """Done; ``controls`` wait for the holder."""

    controls: Controls = Controls()


class EmitRequest(Wire):
    """Send a message in mid-turn: step and outbound in one transaction (R9)."""

    key: str
    epoch: int
    turn: Position
    idempotency_key: str
    message: OutboundMessage
    step: Step | None = None


class EmitResult(Wire):
    """The stored message; ``again`` when the same key was sent before."""

    outgoing: Outgoing
    again: bool = False
    controls: Controls = Controls()


class NotifyRequest(Wire):
    """Send a message to a conversation that others may hold (R9)."""

    key: str
    address: str
    idempotency_key: str
    message: OutboundMessage


class HistoryEntry(Wire):
    """A message for the history: written out, or the ``message`` of a recorded step."""

    message: Json | None = None
    step: int | None = None


class CommitRequest(Wire):
    """Finish a turn: history, outbound and state in one transaction."""

    key: str
    epoch: int
    turn: Position
    positions: list[Position]
    state: TurnState = "done"
    reason: str | None = None
    outbound: list[OutboundMessage] = Field(default_factory=list)
    history: list[HistoryEntry] = Field(default_factory=list)
    checked: Position
    event_seq: int = 0


class CommitResult(Wire):
    """What waits next under the same lease; ``freed`` when nothing does and it is given up."""

    again: bool = False
    freed: bool
    waiting: list[Waiting] = Field(default_factory=list)
    unpublished: list[Outgoing] = Field(default_factory=list)
    controls: Controls = Controls()


class ReleaseRequest(Wire):
    """Hand a conversation back; a turn begun but not finished is un-counted."""

    key: str
    epoch: int


class ControlRequest(Wire):
    """Store a command (R3). ``stop`` covers all before ``position``, ``new`` starts after it."""

    key: str
    address: str
    position: Position
    id: str
    op: Literal["stop", "new", "status"]
    by: str = ""


class ControlResult(Wire):
    """Ids of waiting messages that the command ended; ``running`` if a turn is under way.

    ``sample`` is the newest stored text: a command is answered in its language.
    """

    running: bool
    stopped: list[str] = Field(default_factory=list)
    waiting: int = 0
    sample: str = ""


class HeldLease(Wire):
    """A lease the worker believes it holds."""

    key: str
    epoch: int


class HeldCall(Wire):
    """A call the worker believes it runs."""

    call_id: str
    epoch: int


class Published(Wire):
    """An outbound message whose PubAck came, or the reason why none can ever come (R12)."""

    key: str
    generation: int
    seq: int
    failed: str | None = None


class HeartbeatRequest(Wire):
    """One call per worker and beat: renew, report, and take over up to ``adopt`` orphans."""

    worker: str
    leases: list[HeldLease] = Field(default_factory=list)
    calls: list[HeldCall] = Field(default_factory=list)
    published: list[Published] = Field(default_factory=list)
    adopt: int = Field(0, ge=0)


class HeartbeatResult(Wire):
    """Lost leases and calls, what was adopted, and outbound that a dead worker left behind."""

    lost: list[str] = Field(default_factory=list)
    lost_calls: list[str] = Field(default_factory=list)
    cancels: list[str] = Field(default_factory=list)
    controls: dict[str, Controls] = Field(default_factory=dict)
    adopted: list[Lease] = Field(default_factory=list)
    relay: list[Outgoing] = Field(default_factory=list)
    grace_s: float = 0.0


class ReadRequest(Wire):
    """More steps of a turn, after step ``after`` of the run."""

    key: str
    turn: Position
    run_id: str = ""
    after: int = -1


class ReadResult(Wire):
    """Steps in order; ``more`` when the size limit cut them."""

    steps: list[Step]
    more: bool = False


class RecallRequest(Wire):
    """History of a conversation, newest page first in time order; ``before`` pages back."""

    key: str
    limit: int = Field(50, ge=1, le=200)
    before: int | None = None


class RecalledMessage(Wire):
    """A stored history message; ``n`` orders it within its conversation."""

    n: int
    message: Json
    time: str


class RecallResult(Wire):
    """Messages in time order; ``next_before`` is set when older ones exist."""

    messages: list[RecalledMessage] = Field(default_factory=list)
    next_before: int | None = None


class MissingRequest(Wire):
    """The gateway misses outbound ``seq`` of a conversation (R17)."""

    key: str
    generation: int
    seq: int


class MissingResult(Wire):
    """The stored message, or None when there is none to wait for: skip it."""

    outgoing: Outgoing | None = None
