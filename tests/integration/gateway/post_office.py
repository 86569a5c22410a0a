"""Delivery on a real NATS server, with a channel and a memory service made for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from gateway.delivery.record import Entry
from gateway.main import build_rounds
from gateway.ports import Capabilities, Part
from gateway.settings import DeliveryLimits
from posthouse import dlq, rpc, streams, subjects
from posthouse.address import Address
from posthouse.bus import GENERATION, MSG_ID
from posthouse.messages import OutboundMessage
from posthouse.turns import MissingRequest, MissingResult, Outgoing
from tests.support.servers import Nats
from tests.support.wait import eventually

ACK_WAIT_S = 3.0
FAST = DeliveryLimits(
    lease_s=2.0,
    lease_margin_s=0.3,
    gap_s=0.6,
    unrecorded_gap_s=1.0,
    send_s=5.0,
    busy_s=0.2,
    backoff_s=0.1,
    fetch_s=0.2,
    in_progress_s=0.8,
    grace_s=2.0,
    max_crashes=2,
)


def conversation(id: str) -> Address:
    return Address.im("web", id)


def key_of(id: str) -> str:
    return subjects.key(conversation(id))


def message(id: str, seq: int | None, text: str = "", **fields: Any) -> OutboundMessage:
    """Outbound ``seq`` of a conversation; its text says which one it is."""
    address = conversation(id)
    return OutboundMessage(
        id=f"o-{id}-{seq}",
        seq=seq,
        from_=Address.agent("main"),
        to=address,
        conversation=address,
        content=text or str(seq),
        **fields,
    )


class Sent(NamedTuple):
    """What the platform got: chat, text of the part, idempotency key."""

    chat: str
    text: str
    key: str


class Dead(NamedTuple):
    """A dead letter."""

    subject: str
    reason: str
    body: bytes


Hook = Callable[[Sent], Awaitable[None]]


async def nothing(sent: Sent) -> None:
    """The hook of a platform that simply works."""


class FakeChannel:
    """A platform: parts are the words of the content. ``before`` runs before it takes a part and
    ``after`` behind that; either may raise or hang.
    """

    name = "web"
    domain = "web"

    def __init__(self, idempotent: bool = True) -> None:
        self.capabilities = Capabilities(idempotent=idempotent)
        self.sends: list[Sent] = []
        self.before: Hook = nothing
        self.after: Hook = nothing

    def split(self, message: OutboundMessage) -> Sequence[Part]:
        return [Part(word) for word in message.content.split()]

    async def send(self, message: OutboundMessage, part: Part, idempotency_key: str) -> None:
        sent = Sent(message.chat_id, part.content, idempotency_key)
        await self.before(sent)
        self.sends.append(sent)
        await self.after(sent)

    def texts(self, chat: str) -> list[str]:
        """What a chat shows, in order; a platform with idempotency keys drops repeats."""
        shown: dict[str, str] = {}
        every = [sent for sent in self.sends if sent.chat == chat]
        if not self.capabilities.idempotent:
            return [sent.text for sent in every]
        for sent in every:
            shown.setdefault(sent.key, sent.text)
        return list(shown.values())


class PostOffice:
    """The bus, looked at and fed by a test."""

    def __init__(self, connection: Client) -> None:
        self.connection = connection
        self.js: JetStreamContext = connection.jetstream()
        self.asked: list[MissingRequest] = []
        self.stored: dict[tuple[str, int], OutboundMessage] = {}

    async def publish(
        self, body: OutboundMessage, generation: int | None = 1, subject: str | None = None
    ) -> None:
        """Publish as a worker does."""
        subject = subject or subjects.outbound(body.conversation)
        headers = {MSG_ID: f"{subject}:{generation}:{body.id}"}
        if generation is not None:
            headers[GENERATION] = str(generation)
        await self.js.publish(subject, body.to_wire(), headers=headers)

    async def record(self, id: str) -> Entry | None:
        """The delivery record of a conversation."""
        bucket = await self.js.key_value(streams.DELIVERY_BUCKET)
        try:
            return Entry.model_validate_json((await bucket.get(key_of(id))).value or b"")
        except NotFoundError:
            return None

    async def last(self, id: str) -> int:
        """The highest seq that is over in a conversation."""
        record = await self.record(id)
        return record.last if record is not None else 0

    async def write_record(self, id: str, entry: Entry) -> None:
        """Put a record there."""
        bucket = await self.js.key_value(streams.DELIVERY_BUCKET)
        await bucket.put(key_of(id), entry.to_value())

    async def all_acknowledged(self) -> bool:
        """Whether the durable has nothing left."""
        info = await self.js.consumer_info(streams.OUTBOUND, subjects.deliver_durable("web"))
        return not info.num_pending and not info.num_ack_pending

    async def dead(self) -> list[Dead]:
        """Every dead letter."""
        state = (await self.js.stream_info(streams.DLQ)).state
        letters = [
            await self.js.get_msg(streams.DLQ, seq)
            for seq in range(state.first_seq or 1, state.last_seq + 1)
        ]
        return [Dead(str(m.subject), (m.headers or {})[dlq.REASON], m.data or b"") for m in letters]

    async def answer_missing(self, request: Msg) -> None:
        """``memory.delivery.missing``, from ``stored``."""
        asked = MissingRequest.model_validate_json(request.data)
        self.asked.append(asked)
        found = self.stored.get((asked.key, asked.seq))
        outgoing = None
        if found is not None:
            outgoing = Outgoing(
                key=asked.key, generation=asked.generation, seq=asked.seq, id=found.id, body=found
            )
        await request.respond(rpc.encode_result(MissingResult(outgoing=outgoing)))


async def open_office(nats: Nats, memory: bool = True) -> PostOffice:
    """A post office on a server that bootstrap has prepared; acks are due soon in it."""
    office = PostOffice(await nats.connect())
    quick = replace(streams.deliver("web"), ack_wait=ACK_WAIT_S)
    await office.js.add_consumer(streams.OUTBOUND, quick)
    if memory:
        await office.connection.subscribe(
            subjects.memory("delivery", "missing"), queue="memory", cb=office.answer_missing
        )
        await office.connection.flush()
    return office


class Delivering:
    """A replica under way."""

    def __init__(self, task: "asyncio.Task[None]", stop: asyncio.Event) -> None:
        self._task = task
        self._stop = stop

    async def finish(self) -> None:
        """Stop as at SIGTERM."""
        self._stop.set()
        await self._task


@asynccontextmanager
async def delivering(
    nats: Nats, channel: FakeChannel, limits: DeliveryLimits = FAST
) -> AsyncIterator[Delivering]:
    """A replica that delivers through the channel until the block ends."""
    rounds = build_rounds(await nats.connect("replica"), channel, limits)
    stop = asyncio.Event()
    replica = Delivering(asyncio.create_task(rounds.run(stop)), stop)
    try:
        yield replica
    finally:
        await replica.finish()


async def settled(office: PostOffice, id: str, last: int, timeout_s: float = 15.0) -> None:
    """Wait until a conversation is over up to ``last`` and everything is acknowledged."""

    async def over() -> bool:
        return await office.last(id) == last and await office.all_acknowledged()

    await eventually(over, timeout_s, f"{id} over up to {last}")
