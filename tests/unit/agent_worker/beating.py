"""A heartbeat with all that hangs on it, over a memory service that answers as told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from agent_worker.ports import TurnApi
from agent_worker.turns.feeds import Feeds
from agent_worker.turns.heartbeat import Conversations, Heartbeat
from agent_worker.turns.holder import Holder
from agent_worker.turns.outbox import Outbox
from posthouse.turns import Controls, HeartbeatRequest, HeartbeatResult, Lease, Position
from tests.support.feeds import MemoryEventLog
from tests.unit.agent_worker.ports import KEY, FakePublisher, FakeTurnApi

PLACE = Position(generation=1, seq=1)


def lease(key: str = KEY, epoch: int = 1) -> Lease:
    """A lease on a conversation."""
    return Lease(key=key, address="im://cli/local", tenant_id=1, epoch=epoch, checked=PLACE)


class Held(Holder):
    """A holder that works until it is ended."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.committing = False
        self.freed = False
        self.obeyed: list[Controls] = []
        self.ended = asyncio.Event()

    def obey(self, controls: Controls) -> None:
        """See Holder."""
        self.obeyed.append(controls)

    async def run(self) -> None:
        """See Holder."""
        try:
            await self.ended.wait()
        finally:
            self.ended.set()


async def _nothing() -> None:
    pass


class Memory:
    """The memory service: answers as told, or fails; notes what it was asked.

    ``meanwhile`` runs before it answers.
    """

    def __init__(self) -> None:
        self.requests: list[HeartbeatRequest] = []
        self.answer = HeartbeatResult()
        self.error: Exception | None = None
        self.meanwhile: Callable[[], Awaitable[None]] = _nothing

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResult:
        """One beat."""
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        await self.meanwhile()
        return self.answer


class Worker:
    """A heartbeat and all that hangs on it."""

    def __init__(self, limit: int = 100) -> None:
        self.memory = Memory()
        self.publisher = FakePublisher()
        self.outbox = Outbox(self.publisher, Feeds(MemoryEventLog()))
        self.conversations = Conversations(limit)
        self.calls: dict[str, int] = {}
        self.cancelled: list[str] = []
        self.heartbeat = Heartbeat(
            "worker-1",
            cast(TurnApi, FakeTurnApi(self.memory.heartbeat)),
            self.outbox,
            self.conversations,
            self.calls,
            lambda lease: self.conversations.start(Held(lease)),
            self.cancelled.append,
        )

    def hold(self, key: str = KEY, epoch: int = 1) -> Held:
        """Hold a conversation."""
        holder = Held(lease(key, epoch))
        self.conversations.start(holder)
        return holder

    def is_working(self, holder: Held) -> bool:
        """Whether it was not told to end."""
        return (
            holder in self.conversations.tasks and not self.conversations.tasks[holder].cancelling()
        )

    async def beat(self, **answer: object) -> HeartbeatRequest:
        """One beat with this answer; what was asked."""
        self.memory.answer = HeartbeatResult.model_validate(answer)
        await self.heartbeat.beat()
        return self.memory.requests[-1]

    async def stop(self) -> None:
        """Leave nothing running."""
        for task in self.conversations.tasks.values():
            task.cancel()
        await asyncio.gather(*self.conversations.tasks.values(), return_exceptions=True)
