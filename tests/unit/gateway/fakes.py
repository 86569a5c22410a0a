"""The outside world of the delivery, in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gateway.delivery.courier import Courier, Outside
from gateway.delivery.decision import Replica
from gateway.delivery.letter import Letter, read
from gateway.delivery.record import Entry
from gateway.egress import Answer, Target
from gateway.ports import Capabilities, Conflict, Found, Part, Stored
from gateway.settings import DeliveryLimits
from posthouse import subjects
from posthouse.address import Address
from posthouse.bus import GENERATION
from posthouse.errors import Unavailable
from posthouse.messages import OutboundMessage
from posthouse.turns import Outgoing

KEY = "im.web.a"
CONVERSATION = Address.im("web", "a")


def message(seq: int | None, text: str = "", **fields: Any) -> OutboundMessage:
    """Outbound ``seq`` of the one conversation."""
    return OutboundMessage(
        id=f"o-{seq}",
        seq=seq,
        from_=Address.agent("main"),
        to=CONVERSATION,
        conversation=CONVERSATION,
        content=text or str(seq),
        **fields,
    )


@dataclass(eq=False)
class FakeParcel:
    """A message of the bus, and how it was settled."""

    body: bytes
    subject: str = subjects.outbound(CONVERSATION)
    headers: dict[str, str] = field(default_factory=dict)
    stream_seq: int = 1
    time: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    deliveries: int = 1
    settled: list[str | float] = field(default_factory=list)

    async def ack(self) -> None:
        self.settled.append("ack")

    async def nak(self, delay_s: float) -> None:
        self.settled.append(delay_s)

    async def in_progress(self) -> None:
        return None


def letter(body: OutboundMessage, generation: int = 1) -> Letter:
    """A message as it came from the bus."""
    return read(FakeParcel(body.to_wire(), headers={GENERATION: str(generation)}))


class FakeRecords:
    """Compare-and-set in memory. ``fault`` is called before and after each write is applied."""

    def __init__(self) -> None:
        self.entries: dict[str, Stored] = {}
        self.history: list[Entry] = []
        self.fault: Callable[[str], None] = lambda when: None

    async def read(self, key: str) -> Stored:
        return self.entries.get(key, Stored(None, 0))

    async def write(self, key: str, entry: Entry, revision: int) -> int:
        self.fault("before")
        if (await self.read(key)).revision != revision:
            raise Conflict()
        self.entries[key] = Stored(Entry.model_validate_json(entry.to_value()), revision + 1)
        self.history.append(entry)
        self.fault("after")
        return revision + 1


class FakeChannel:
    """Parts are words. ``fault`` is called before and after the platform takes a part."""

    name = "web"
    domain = "web"

    def __init__(self, idempotent: bool = True) -> None:
        self.capabilities = Capabilities(idempotent=idempotent)
        self.sends: list[tuple[str, str]] = []
        self.fault: Callable[[str], None] = lambda when: None

    def split(self, message: OutboundMessage) -> Sequence[Part]:
        return [Part(word) for word in message.content.split()]

    async def send(self, message: OutboundMessage, part: Part, idempotency_key: str) -> None:
        self.fault("before")
        self.sends.append((part.content, idempotency_key))
        self.fault("after")

    def shown(self) -> list[str]:
        """What the user sees: an idempotent platform drops repeated keys."""
        if not self.capabilities.idempotent:
            return [text for text, _ in self.sends]
        return list({key: text for text, key in self.sends}.values())


class FakeEgress:
    """Answers as it is told, 200 by default, and keeps what was posted."""

    def __init__(self) -> None:
        self.answer = Answer(200, {})
        self.failure: Exception | None = None
        self.posted: list[tuple[str, dict[str, str], bytes]] = []

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        self.posted.append((str(target.url), dict(headers), body))
        if self.failure:
            raise self.failure
        return self.answer


class FakeWorld:
    """Outbox, memory and dead letters."""

    def __init__(self) -> None:
        self.unfinished: Found | None = None
        self.stored: dict[int, OutboundMessage] = {}
        self.asked: list[int] = []
        self.dead: list[tuple[str, str]] = []
        self.down = False

    async def fetch(self, count: int, timeout_s: float) -> Sequence[FakeParcel]:
        return []

    async def next_after(self, subject: str, stream_seq: int) -> Found | None:
        return self.unfinished

    async def ack_floor(self) -> int:
        return 0

    async def close(self) -> None:
        return None

    async def missing(self, key: str, generation: int, seq: int) -> Outgoing | None:
        if self.down:
            raise Unavailable("memory is down")
        self.asked.append(seq)
        found = self.stored.get(seq)
        if found is None:
            return None
        return Outgoing(key=key, generation=generation, seq=seq, id=found.id, body=found)

    async def keep(
        self, *, subject: str, body: bytes, reason: str, msg_id: str, stream_seq: int, attempts: int
    ) -> None:
        if (msg_id, reason) not in self.dead:
            self.dead.append((msg_id, reason))


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = round(datetime(2026, 1, 1, 1, tzinfo=UTC).timestamp() * 1000)

    def __call__(self) -> int:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += round(seconds * 1000) + 1


def courier(
    channel: FakeChannel,
    records: FakeRecords,
    world: FakeWorld,
    clock: Clock,
    owner: str = "me",
    limits: DeliveryLimits | None = None,
) -> Courier:
    """A courier as one replica has it."""
    outside = Outside(channel, world, records, world, world, clock)
    limits = limits or DeliveryLimits()
    return Courier(outside, Replica(owner, 0, channel.capabilities.idempotent, limits))
