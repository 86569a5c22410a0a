"""Stand-ins for the ports of the turn loop, and what goes through them."""

import asyncio
from collections.abc import Awaitable, Callable

from agent_worker.ports import StreamMessage
from posthouse import turns
from posthouse.address import Address
from posthouse.messages import MAIN_AGENT, OutboundMessage
from posthouse.turns import HeartbeatRequest, HeartbeatResult, Outgoing, RecordRequest

KEY = "im.cli.local"


def outgoing(seq: int, key: str = KEY, generation: int = 1) -> Outgoing:
    """A stored outbound message."""
    chat = Address.im("cli", "local")
    id_ = f"{key}:{generation}:{seq}"
    body = OutboundMessage(id=id_, seq=seq, from_=MAIN_AGENT, to=chat, conversation=chat)
    return Outgoing(key=key, generation=generation, seq=seq, id=id_, body=body)


class FakePublisher:
    """JetStream: keeps what was published while ``open``; ``errors`` by Nats-Msg-Id."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.published: list[tuple[str, bytes, dict[str, str]]] = []
        self.errors: dict[str, Exception] = {}
        self.buried: list[str] = []

    async def dead_outbound(self, message: Outgoing, reason: str) -> None:
        """See Publisher."""
        self.buried.append(message.id)

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> int:
        """See Publisher."""
        # As over a network, others get a turn meanwhile.
        await asyncio.sleep(0)
        await self.open.wait()
        if error := self.errors.get(headers["Nats-Msg-Id"]):
            raise error
        self.published.append((subject, body, headers))
        return len(self.published)

    async def hint(self, subject: str, body: bytes) -> None:
        """See Publisher."""

    async def dead_letter(self, message: StreamMessage, reason: str, attempts: int = 0) -> None:
        """See Publisher."""


class FakeTurnApi:
    """``memory.turn.*``, as far as it is told how to answer."""

    def __init__(
        self,
        heartbeat: Callable[[HeartbeatRequest], Awaitable[HeartbeatResult]] | None = None,
        record: Callable[[RecordRequest], Awaitable[turns.Ack]] | None = None,
    ) -> None:
        self._heartbeat = heartbeat
        self._record = record

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResult:
        """See TurnApi."""
        assert self._heartbeat is not None
        return await self._heartbeat(request)

    async def record(self, request: RecordRequest) -> turns.Ack:
        """See TurnApi."""
        assert self._record is not None
        return await self._record(request)
