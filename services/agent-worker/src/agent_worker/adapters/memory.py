"""The memory service over RPC. Every call may be repeated blindly, so what may pass is repeated."""

import asyncio
from typing import TypeVar

from pydantic import BaseModel
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from agent_worker import settings
from posthouse import calls, subjects, turns
from posthouse.errors import TransientError
from posthouse.messages import Wire
from posthouse.rpc import RpcClient

T = TypeVar("T", bound=BaseModel)
FIRST_WAIT_S = 0.1
MAX_WAIT_S = 1.0


class _Nothing(Wire):
    """An empty result."""


class _Area:
    def __init__(self, client: RpcClient, area: str) -> None:
        self._client = client
        self._area = area

    async def _call(
        self,
        verb: str,
        request: BaseModel,
        result: type[T],
        patience_s: float = settings.CALL_PATIENCE_S,
    ) -> T:
        subject = subjects.memory(self._area, verb)
        try:
            # Plainly first: tenacity around every call is 9 % of the worker's CPU (measured).
            return await self._client.call(subject, request, result)
        except TransientError:
            retrying = AsyncRetrying(
                stop=stop_after_delay(patience_s),
                wait=wait_random_exponential(multiplier=0.1, max=MAX_WAIT_S),
                retry=retry_if_exception_type(TransientError),
                reraise=True,
            )
            await asyncio.sleep(FIRST_WAIT_S)
            return await retrying(self._client.call, subject, request, result)


class RpcTurnApi(_Area):
    """``memory.turn.*`` (port TurnApi)."""

    def __init__(self, client: RpcClient, heartbeats: RpcClient) -> None:
        super().__init__(client, "turn")
        self._heartbeats = heartbeats

    async def open(self, request: turns.OpenRequest) -> turns.OpenResult:
        """Store a message; take the lease if it is free."""
        return await self._call("open", request, turns.OpenResult, settings.OPEN_PATIENCE_S)

    async def admit(self, request: turns.AdmitRequest) -> turns.AdmitResult:
        """Store a message found in the stream."""
        return await self._call("admit", request, turns.AdmitResult)

    async def begin(self, request: turns.BeginRequest) -> turns.BeginResult:
        """Start a turn or go on with it."""
        return await self._call("begin", request, turns.BeginResult)

    async def read(self, request: turns.ReadRequest) -> turns.ReadResult:
        """Further steps of a turn."""
        return await self._call("read", request, turns.ReadResult)

    async def record(self, request: turns.RecordRequest) -> turns.Ack:
        """Record a step."""
        return await self._call("record", request, turns.Ack)

    async def emit(self, request: turns.EmitRequest) -> turns.EmitResult:
        """Send a message in mid-turn."""
        return await self._call("emit", request, turns.EmitResult)

    async def notify(self, request: turns.NotifyRequest) -> turns.EmitResult:
        """Send a message without holding the conversation."""
        return await self._call("notify", request, turns.EmitResult)

    async def commit(self, request: turns.CommitRequest) -> turns.CommitResult:
        """Finish a turn."""
        return await self._call("commit", request, turns.CommitResult, settings.COMMIT_PATIENCE_S)

    async def release(self, request: turns.ReleaseRequest) -> None:
        """Hand a conversation back."""
        await self._call("release", request, _Nothing, settings.OPEN_PATIENCE_S)

    async def control(self, request: turns.ControlRequest) -> turns.ControlResult:
        """Store a command."""
        return await self._call("control", request, turns.ControlResult, settings.OPEN_PATIENCE_S)

    async def heartbeat(self, request: turns.HeartbeatRequest) -> turns.HeartbeatResult:
        """Renew and adopt; one immediate repeat, on a connection of its own (R11)."""
        subject = subjects.memory("turn", "heartbeat")
        try:
            return await self._heartbeats.call(
                subject, request, turns.HeartbeatResult, settings.RENEW_TIMEOUT_S
            )
        except TransientError:
            return await self._heartbeats.call(
                subject, request, turns.HeartbeatResult, settings.RENEW_TIMEOUT_S
            )


class RpcCallApi(_Area):
    """``memory.call.*`` (port CallApi)."""

    def __init__(self, client: RpcClient) -> None:
        super().__init__(client, "call")

    async def open(self, request: calls.CallOpenRequest) -> calls.CallOpenResult:
        """Take a call."""
        return await self._call("open", request, calls.CallOpenResult, settings.OPEN_PATIENCE_S)

    async def record(self, request: calls.CallRecordRequest) -> None:
        """Record a step of a call."""
        await self._call("record", request, _Nothing)

    async def finish(self, request: calls.CallFinishRequest) -> None:
        """Store a result."""
        await self._call("finish", request, _Nothing)
