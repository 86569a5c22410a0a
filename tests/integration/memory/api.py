"""The service's handlers on a real database, short to call, results read into their models."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from memory.adapters.postgres import PostgresDatabase
from memory.handlers import CallHandlers, RecordHandlers, TurnHandlers
from posthouse import calls as c
from posthouse import turns as t
from posthouse.messages import OutboundMessage
from posthouse.rpc import Raw
from posthouse.settings import MemorySettings
from tests.integration.memory.requests import ADDRESS, KEY, outbound, place

# Leases so long that none runs out in a test; and so short that each has run out already, which
# also ends the grace that follows a start of Postgres.
LONG_S = 3600.0
SHORT_S = 0.000_001

T = TypeVar("T", bound=BaseModel)


class Api:
    """``memory.turn.*``, ``memory.call.*``, … of one conversation unless a key is given."""

    def __init__(self, database: PostgresDatabase, ttl_s: float, **settings: Any) -> None:
        numbers = MemorySettings(lease_ttl_s=ttl_s, **settings)
        self._turns = TurnHandlers(database, numbers)
        self._calls = CallHandlers(database, numbers)
        self._records = RecordHandlers(database)

    async def open(self, letter: t.Letter, worker: str = "w1", key: str = KEY) -> t.OpenResult:
        request = t.OpenRequest(key=key, letter=letter, worker=worker)
        return _read(await self._turns.open(request), t.OpenResult)

    async def lease(self, letter: t.Letter, worker: str = "w1", key: str = KEY) -> t.Lease:
        """Open a message where that takes the lease."""
        result = await self.open(letter, worker, key)
        assert result.state == "opened"
        assert result.lease is not None
        return result.lease

    async def admit(self, epoch: int, letter: t.Letter, key: str = KEY) -> t.AdmitResult:
        request = t.AdmitRequest(key=key, epoch=epoch, letter=letter)
        return _read(await self._turns.admit(request), t.AdmitResult)

    async def begin(
        self, epoch: int, manifest: t.Manifest, key: str = KEY, limit: int = 200
    ) -> t.BeginResult:
        request = t.BeginRequest(
            key=key, epoch=epoch, worker="w1", manifest=manifest, history_limit=limit
        )
        return _read(await self._turns.begin(request), t.BeginResult)

    async def record(self, epoch: int, turn: int, step: t.Step, **more: Any) -> t.Ack:
        key = more.pop("key", KEY)
        request = t.RecordRequest(key=key, epoch=epoch, turn=place(turn), step=step, **more)
        return _read(await self._turns.record(request), t.Ack)

    async def emit(
        self,
        epoch: int,
        turn: int,
        idempotency_key: str,
        message: OutboundMessage | None = None,
        step: t.Step | None = None,
        key: str = KEY,
    ) -> t.EmitResult:
        request = t.EmitRequest(
            key=key,
            epoch=epoch,
            turn=place(turn),
            idempotency_key=idempotency_key,
            message=message or outbound(idempotency_key),
            step=step,
        )
        return _read(await self._turns.emit(request), t.EmitResult)

    async def notify(self, idempotency_key: str, key: str = KEY) -> t.EmitResult:
        request = t.NotifyRequest(
            key=key,
            address=ADDRESS,
            idempotency_key=idempotency_key,
            message=outbound(idempotency_key),
        )
        return _read(await self._turns.notify(request), t.EmitResult)

    async def commit(self, request: t.CommitRequest) -> t.CommitResult:
        return _read(await self._turns.commit(request), t.CommitResult)

    async def release(self, epoch: int, key: str = KEY) -> None:
        _read(await self._turns.release(t.ReleaseRequest(key=key, epoch=epoch)), t.Ack)

    async def control(self, op: Any, seq: int, key: str = KEY) -> t.ControlResult:
        request = t.ControlRequest(key=key, address=ADDRESS, position=place(seq), id="c", op=op)
        return _read(await self._turns.control(request), t.ControlResult)

    async def beat(
        self,
        worker: str = "w1",
        leases: dict[str, int] | None = None,
        calls: dict[str, int] | None = None,
        published: Sequence[t.Published] = (),
        adopt: int = 0,
    ) -> t.HeartbeatResult:
        """A heartbeat; leases and calls by their epochs."""
        request = t.HeartbeatRequest(
            worker=worker,
            leases=[t.HeldLease(key=k, epoch=e) for k, e in (leases or {}).items()],
            calls=[t.HeldCall(call_id=c, epoch=e) for c, e in (calls or {}).items()],
            published=list(published),
            adopt=adopt,
        )
        return _read(await self._turns.heartbeat(request), t.HeartbeatResult)

    async def read(self, turn: int, run_id: str = "", after: int = -1) -> t.ReadResult:
        request = t.ReadRequest(key=KEY, turn=place(turn), run_id=run_id, after=after)
        return _read(await self._turns.read(request), t.ReadResult)

    async def call_open(
        self, call_id: str, worker: str = "w1", request_hash: str = "h", anonymous: bool = False
    ) -> c.CallOpenResult:
        request = c.CallOpenRequest(
            call_id=call_id, request_hash=request_hash, worker=worker, anonymous=anonymous
        )
        return _read(await self._calls.open(request), c.CallOpenResult)

    async def call_record(
        self, call_id: str, epoch: int, step: t.Step, calls: Sequence[t.RequestedCall] = ()
    ) -> None:
        request = c.CallRecordRequest(call_id=call_id, epoch=epoch, step=step, calls=list(calls))
        _read(await self._calls.record(request), t.Ack)

    async def call_finish(self, call_id: str, epoch: int, text: str = "result") -> None:
        request = c.CallFinishRequest(call_id=call_id, epoch=epoch, result=outbound(text))
        _read(await self._calls.finish(request), t.Ack)

    async def call_cancel(self, call_id: str, epoch: int, reason: str = "stop") -> None:
        request = c.CallCancelRequest(call_id=call_id, epoch=epoch, reason=reason)
        _read(await self._calls.cancel(request), t.Ack)

    async def call_release(self, call_id: str, epoch: int) -> None:
        request = c.CallReleaseRequest(call_id=call_id, epoch=epoch)
        _read(await self._calls.release(request), t.Ack)

    async def recall(
        self, limit: int = 50, before: int | None = None, key: str = KEY
    ) -> t.RecallResult:
        request = t.RecallRequest(key=key, limit=limit, before=before)
        return _read(await self._records.recall(request), t.RecallResult)

    async def missing(self, seq: int, generation: int = 1, key: str = KEY) -> t.MissingResult:
        request = t.MissingRequest(key=key, generation=generation, seq=seq)
        return _read(await self._records.missing(request), t.MissingResult)


def _read(raw: Raw, model: type[T]) -> T:
    return model.model_validate_json(raw.json)
