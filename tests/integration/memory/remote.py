"""``memory.turn.*`` over NATS, as other services call it."""

from typing import TypeVar

from nats.aio.client import Client
from pydantic import BaseModel

from posthouse import subjects, turns
from posthouse.rpc import RpcClient
from tests.integration.memory.requests import KEY, commit, manifest, place, step

T = TypeVar("T", bound=BaseModel)


class Remote:
    """The calls of a worker about one conversation, each with a worker's short patience."""

    def __init__(self, connection: Client, key: str = KEY) -> None:
        self.connection = connection
        self._rpc = RpcClient(connection)
        self.key = key

    async def turn(self, verb: str, request: BaseModel, result: type[T], timeout_s: float = 3) -> T:
        """Any ``memory.turn.<verb>``."""
        return await self._rpc.call(subjects.memory("turn", verb), request, result, timeout_s)

    async def open(
        self, letter: turns.Letter, worker: str = "w1", timeout_s: float = 3
    ) -> turns.OpenResult:
        request = turns.OpenRequest(key=self.key, letter=letter, worker=worker)
        return await self.turn("open", request, turns.OpenResult, timeout_s)

    async def lease(self, letter: turns.Letter) -> turns.Lease:
        """Open a message where that takes the lease."""
        lease = (await self.open(letter)).lease
        assert lease is not None
        return lease

    async def begin(self, epoch: int, seq: int) -> turns.BeginResult:
        request = turns.BeginRequest(key=self.key, epoch=epoch, worker="w1", manifest=manifest(seq))
        return await self.turn("begin", request, turns.BeginResult)

    async def record(self, epoch: int, seq: int) -> turns.Ack:
        request = turns.RecordRequest(key=self.key, epoch=epoch, turn=place(seq), step=step(1))
        return await self.turn("record", request, turns.Ack)

    async def commit(self, epoch: int, seq: int) -> turns.CommitResult:
        return await self.turn("commit", commit(epoch, seq, key=self.key), turns.CommitResult)

    async def beat(self, epoch: int = 0) -> turns.HeartbeatResult:
        """A heartbeat that renews the lease of ``epoch``, if there is one."""
        leases = [turns.HeldLease(key=self.key, epoch=epoch)] if epoch else []
        request = turns.HeartbeatRequest(worker="w1", leases=leases)
        return await self.turn("heartbeat", request, turns.HeartbeatResult)
