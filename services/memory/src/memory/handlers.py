"""RPC handlers: each takes a request, calls one SQL function and answers its JSON.

The functions and what they refuse: ``sql/turn_v1/``; requests and results: ``posthouse.turns``.
"""

from memory.ports import Database
from memory.wire import as_json, as_json_list
from posthouse import calls, subjects, turns
from posthouse.rpc import Handler, Raw, RpcServer
from posthouse.settings import MemorySettings


class TurnHandlers:
    """``memory.turn.*``; lease and relay times come from the settings, in seconds."""

    def __init__(self, database: Database, settings: MemorySettings) -> None:
        self._db = database
        self._ttl_s = settings.lease_ttl_s
        self._limit = settings.waiting_limit
        self._relay_after_s = settings.relay_after_s

    async def open(self, request: turns.OpenRequest) -> Raw:
        """Store a message; take the lease if it is free."""
        place, letter = request.letter.position, request.letter
        return await self._db.call(
            "turn_v1.open",
            *(request.key, letter.address, place.generation, place.seq, letter.source_id),
            *(as_json(letter.body), letter.reason, request.worker, self._ttl_s, self._limit),
        )

    async def admit(self, request: turns.AdmitRequest) -> Raw:
        """Store a message that the holder found in the stream."""
        place, letter = request.letter.position, request.letter
        return await self._db.call(
            "turn_v1.admit",
            *(request.key, request.epoch, place.generation, place.seq, letter.source_id),
            *(as_json(letter.body), letter.reason, self._limit),
        )

    async def begin(self, request: turns.BeginRequest) -> Raw:
        """Start a turn, or go on with the one recorded."""
        return await self._db.call(
            "turn_v1.begin",
            *(request.key, request.epoch, as_json(request.manifest), request.history_limit),
        )

    async def record(self, request: turns.RecordRequest) -> Raw:
        """Record a step."""
        turn = request.turn
        return await self._db.call(
            "turn_v1.record",
            *(request.key, request.epoch, turn.generation, turn.seq),
            *(as_json(request.step), request.event_seq, as_json_list(request.calls)),
        )

    async def emit(self, request: turns.EmitRequest) -> Raw:
        """Send a message in mid-turn."""
        turn = request.turn
        return await self._db.call(
            "turn_v1.emit",
            *(request.key, request.epoch, turn.generation, turn.seq, request.idempotency_key),
            *(as_json(request.message), as_json(request.step)),
        )

    async def notify(self, request: turns.NotifyRequest) -> Raw:
        """Send a message without holding the conversation."""
        return await self._db.call(
            "turn_v1.notify",
            *(request.key, request.address, request.idempotency_key, as_json(request.message)),
        )

    async def commit(self, request: turns.CommitRequest) -> Raw:
        """Finish a turn."""
        turn, checked = request.turn, request.checked
        return await self._db.call(
            "turn_v1.commit",
            *(request.key, request.epoch, turn.generation, turn.seq),
            *(as_json_list(request.positions), request.state, request.reason),
            *(as_json_list(request.outbound), as_json_list(request.history)),
            *(checked.generation, checked.seq, self._ttl_s),
        )

    async def release(self, request: turns.ReleaseRequest) -> Raw:
        """Hand a conversation back."""
        return await self._db.call("turn_v1.release", request.key, request.epoch)

    async def control(self, request: turns.ControlRequest) -> Raw:
        """Store a command."""
        place = request.position
        return await self._db.call(
            "turn_v1.control",
            *(request.key, request.address, request.op, place.generation, place.seq),
        )

    async def heartbeat(self, request: turns.HeartbeatRequest) -> Raw:
        """Renew, report, adopt, relay."""
        return await self._db.beat(
            *(request.worker, as_json_list(request.leases), as_json_list(request.calls)),
            *(as_json_list(request.published), request.adopt, self._ttl_s, self._relay_after_s),
        )

    async def read(self, request: turns.ReadRequest) -> Raw:
        """Further steps of a run."""
        turn = request.turn
        return await self._db.call(
            "turn_v1.read",
            *(request.key, turn.generation, turn.seq, request.run_id, request.after),
        )


class CallHandlers:
    """``memory.call.*``."""

    def __init__(self, database: Database, settings: MemorySettings) -> None:
        self._db = database
        self._ttl_s = settings.lease_ttl_s

    async def open(self, request: calls.CallOpenRequest) -> Raw:
        """Take a call, join it or get its result."""
        return await self._db.call(
            "turn_v1.call_open",
            *(request.call_id, request.request_hash, request.worker, request.anonymous),
            self._ttl_s,
        )

    async def record(self, request: calls.CallRecordRequest) -> Raw:
        """Record a step of a call."""
        return await self._db.call(
            "turn_v1.call_record",
            *(request.call_id, request.epoch, as_json(request.step), as_json_list(request.calls)),
        )

    async def finish(self, request: calls.CallFinishRequest) -> Raw:
        """Store the result of a call."""
        return await self._db.call(
            "turn_v1.call_finish", request.call_id, request.epoch, as_json(request.result)
        )

    async def cancel(self, request: calls.CallCancelRequest) -> Raw:
        """Ask the owner of a call to end it."""
        return await self._db.call(
            "turn_v1.call_cancel", request.call_id, request.epoch, request.reason
        )

    async def release(self, request: calls.CallReleaseRequest) -> Raw:
        """Hand a call back."""
        return await self._db.call("turn_v1.call_release", request.call_id, request.epoch)


class RecordHandlers:
    """``memory.history.recall`` and ``memory.delivery.missing``."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def recall(self, request: turns.RecallRequest) -> Raw:
        """A page of a conversation's history."""
        return await self._db.call("turn_v1.recall", request.key, request.limit, request.before)

    async def missing(self, request: turns.MissingRequest) -> Raw:
        """An outbound message that the gateway did not get."""
        return await self._db.call("turn_v1.missing", request.key, request.generation, request.seq)


def build_server(database: Database, settings: MemorySettings) -> RpcServer:
    """All methods of the service, in queue group ``memory``."""
    turn = TurnHandlers(database, settings)
    call = CallHandlers(database, settings)
    records = RecordHandlers(database)
    server = RpcServer("memory")
    served: dict[str, list[Handler]] = {
        "turn": [turn.open, turn.admit, turn.begin, turn.record, turn.emit, turn.notify],
        "call": [call.open, call.record, call.finish, call.cancel, call.release],
        "history": [records.recall],
        "delivery": [records.missing],
    }
    served["turn"] += [turn.commit, turn.release, turn.control, turn.heartbeat, turn.read]
    for area, handlers in served.items():
        for handler in handlers:
            server.add(subjects.memory(area, handler.__name__), handler)
    return server
