"""``memory.turn.*`` over NATS, as other services call it."""

from typing import TypeVar

from nats.aio.client import Client
from pydantic import BaseModel

from posthouse import subjects, turns
from posthouse.rpc import RpcClient
from tests.integration.memory.requests import KEY, commit, manifest, place, step

T = TypeVar("T", bound=BaseModel)


class Remote:
    """The calls of a worker, each with a worker's short patience."""

    def __init__(self, connection: Client) -> None:
        self._rpc = RpcClient(connection)

    async def turn(self, verb: str, request: BaseModel, result: type[T], timeout_s: float = 3) -> T:
        """Any ``memory.turn.<verb>``."""
        return await self._rpc.call(subjects.memory("turn", verb), request, result, timeout_s)

    async def open(
        self, letter: turns.Letter, worker: str = "w1", key: str = KEY, timeout_s: float = 3
    ) -> turns.OpenResult:
        request = turns.OpenRequest(key=key, letter=letter, worker=worker)
        return await self.turn("open", request, turns.OpenResult, timeout_s)

    async def lease(self, letter: turns.Letter, key: str = KEY) -> turns.Lease:
        """Open a message where that takes the lease."""
        lease = (await self.open(letter, key=key)).lease
        assert lease is not None
        return lease

    async def begin(self, epoch: int, seq: int) -> turns.BeginResult:
        request = turns.BeginRequest(key=KEY, epoch=epoch, worker="w1", manifest=manifest(seq))
        return await self.turn("begin", request, turns.BeginResult)

    async def record(self, epoch: int, seq: int) -> turns.Ack:
        request = turns.RecordRequest(key=KEY, epoch=epoch, turn=place(seq), step=step(1))
        return await self.turn("record", request, turns.Ack)

    async def commit(self, epoch: int, seq: int) -> turns.CommitResult:
        return await self.turn("commit", commit(epoch, seq), turns.CommitResult)

    async def beat(self, adopt: int = 0, **leases: int) -> turns.HeartbeatResult:
        request = turns.HeartbeatRequest(
            worker="w1",
            leases=[turns.HeldLease(key=k, epoch=e) for k, e in leases.items()],
            adopt=adopt,
        )
        return await self.turn("heartbeat", request, turns.HeartbeatResult)
