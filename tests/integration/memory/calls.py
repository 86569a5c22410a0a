"""Calls made twice, on the model and on Postgres, and compared."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import asyncpg
import pytest

from memory.adapters.postgres import PostgresDatabase
from memory.migrations import HEAD
from posthouse import turns
from posthouse.errors import PosthouseError
from tests.integration.memory.api import LONG_S, SHORT_S, Api
from tests.integration.memory.guarantees import final
from tests.integration.memory.model import Conversation, Refused
from tests.integration.memory.requests import (
    commit,
    letter,
    manifest,
    outbound,
    said,
    step,
    tombstone,
)
from tests.integration.memory.rows import Rows

KEYS = ("a", "b")
LIMIT = 5

T = TypeVar("T")


class World:
    """A database and a loop for the machine, which knows nothing of asyncio."""

    def __init__(self, dsn: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.postgres = PostgresDatabase(dsn, size=2, lease_ttl_s=LONG_S)
        self.run(self.postgres.start(HEAD))
        self.rows = Rows(self.run(asyncpg.connect(dsn)), dsn)
        self.memory = Api(self.postgres, LONG_S, waiting_limit=LIMIT)
        self.taker = Api(self.postgres, SHORT_S, waiting_limit=LIMIT, relay_after_s=SHORT_S)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self.run(self.postgres.stop())
        self.run(self.rows.connection.close())
        self.loop.close()


class Calls:
    """Each ``do_…`` makes one call. What was made can be repeated, and who got a lease is noted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.memory, self.taker = world.memory, world.taker
        self.model = {key: Conversation(LIMIT) for key in KEYS}
        self.granted: list[tuple[str, str, int]] = []
        self.made: list[tuple[str, dict[str, Any]]] = []
        world.run(world.rows.clear())

    def make(self, name: str, **arguments: Any) -> None:
        """Make a call for the first time."""
        self.made.append((name, arguments))
        getattr(self, f"do_{name}")(**arguments)

    def repeat(self, ago: int) -> None:
        """Make an earlier call once more, word for word."""
        name, arguments = self.made[-1 - ago % len(self.made)]
        getattr(self, f"do_{name}")(**arguments)

    def lease_of(self, ago: int) -> tuple[str, int]:
        """Key and epoch of a lease that was granted; best one with a turn under way."""
        held = [(key, m.epoch) for key, m in self.model.items() if m.is_held(m.epoch)]
        if ago == 0 and held:
            return max(held, key=lambda lease: self.turn_of(*lease) > 0)
        _, key, epoch = self.granted[-1 - ago % len(self.granted)]
        return key, epoch

    def turn_of(self, key: str, epoch: int) -> int:
        """The head of the turn under way, 0 when none is."""
        begun = [s for s, m in self.model[key].mailbox.items() if m.begun == epoch]
        return min(begun, default=0)

    def grant(self, worker: str, key: str) -> None:
        """A worker got a lease; it keeps it alive from now on."""
        epoch = self.model[key].epoch
        self.granted.append((worker, key, epoch))
        assert self.world.run(self.memory.beat(worker, {key: epoch})).lost == []

    @contextmanager
    def expecting(self, refused: Refused | None) -> Iterator[None]:
        """The body must raise what the model raised, and then change nothing."""
        if refused is None:
            yield
            return
        before = self.world.run(self.world.rows.snapshot())
        with pytest.raises(PosthouseError) as caught:
            yield
        assert type(caught.value) is refused.kind
        assert self.world.run(self.world.rows.snapshot()) == before

    def expect(self, key: str, name: str, *arguments: Any) -> tuple[Any, Refused | None]:
        try:
            return getattr(self.model[key], name)(*arguments), None
        except Refused as refused:
            return None, refused

    def check_lease(self, lease: turns.Lease) -> None:
        model = self.model[lease.key]
        assert (lease.epoch, lease.checked.seq) == (model.epoch, model.checked)
        assert [w.seq for w in lease.waiting] == model.waiting()[:10]
        assert [o.seq for o in lease.unpublished] == model.unpublished()

    def do_open(self, key: str, worker: str, seq: int, source: str, readable: bool) -> None:
        expected, refused = self.expect(key, "open", worker, seq, source, readable)
        with self.expecting(refused):
            found = self.world.run(self.taker.open(_letter(seq, source, readable), worker, key))
        if refused is None:
            assert (found.state, found.message) == (expected["state"], expected["message"])
            if found.lease:
                assert found.lease.took_over == expected["took_over"]
                self.check_lease(found.lease)
                self.grant(worker, key)

    def do_admit(self, key: str, epoch: int, seq: int, readable: bool) -> None:
        expected, refused = self.expect(key, "admit", epoch, seq, f"s{seq}", readable)
        with self.expecting(refused):
            found = self.world.run(self.memory.admit(epoch, _letter(seq, f"s{seq}", readable), key))
        if refused is None:
            told = {"message": found.message, "waiting": [w.seq for w in found.waiting]}
            assert told == expected

    def do_control(self, key: str, op: str, seq: int) -> None:
        expected, _ = self.expect(key, "control", op, seq)
        found = self.world.run(self.memory.control(op, seq, key))
        told = {"running": found.running, "waiting": found.waiting}
        assert {**told, "stopped": sorted(found.stopped)} == expected

    def do_begin(self, key: str, epoch: int, positions: list[int]) -> None:
        expected, refused = self.expect(key, "begin", epoch, positions)
        with self.expecting(refused):
            found = self.world.run(self.memory.begin(epoch, manifest(*positions), key))
        if refused is None:
            assert expected == {
                "members": [m.seq for m in found.messages],
                "attempts": [m.attempts for m in found.messages],
                "vanished": [m.vanished for m in found.messages],
                "steps": {s.n: s.body["message"]["content"] for s in found.steps},
                "history": [m["content"] for m in found.history],
            }
            assert [p.seq for p in found.manifest.positions] == expected["members"]

    def do_record(self, key: str, epoch: int, turn: int, n: int, text: str) -> None:
        _, refused = self.expect(key, "record", epoch, turn, n, text)
        with self.expecting(refused):
            self.world.run(self.memory.record(epoch, turn, step(n, text), key=key))

    def do_emit(
        self, key: str, epoch: int, turn: int, sent: str, with_step: tuple[int, str] | None
    ) -> None:
        expected, refused = self.expect(key, "emit", epoch, turn, sent, with_step)
        written = step(*with_step) if with_step else None
        with self.expecting(refused):
            found = self.world.run(self.memory.emit(epoch, turn, sent, step=written, key=key))
        if refused is None:
            assert {"seq": found.outgoing.seq, "again": found.again} == expected

    def do_notify(self, key: str, sent: str) -> None:
        expected, _ = self.expect(key, "notify", sent)
        found = self.world.run(self.memory.notify(sent, key))
        assert {"seq": found.outgoing.seq, "again": found.again} == expected

    def do_commit(
        self,
        key: str,
        epoch: int,
        positions: list[int],
        answers: int,
        history: list[Any],
        looked: int,
    ) -> None:
        finals = [final(n, positions) for n in range(1, answers + 1)]
        expected, refused = self.expect(key, "commit", epoch, positions, finals, history, looked)
        entries = [turns.HistoryEntry(step=e) if isinstance(e, int) else said(e) for e in history]
        request = commit(epoch, *positions, key=key, history=entries, checked=looked)
        request = request.model_copy(update={"outbound": [outbound(text) for text in finals]})
        with self.expecting(refused):
            found = self.world.run(self.memory.commit(request))
        if refused is None:
            told = {"again": found.again, "freed": found.freed}
            assert {**told, "waiting": [w.seq for w in found.waiting]} == expected
            assert [o.seq for o in found.unpublished] == self.model[key].unpublished()

    def do_release(self, key: str, epoch: int) -> None:
        _, refused = self.expect(key, "release", epoch)
        with self.expecting(refused):
            self.world.run(self.memory.release(epoch, key))


def _letter(seq: int, source: str, readable: bool) -> turns.Letter:
    whole = letter(seq, source=source)
    return whole if readable else tombstone(seq).model_copy(update={"source_id": source})


async def dump(rows: Rows) -> dict[str, Any]:
    """All conversations as ``dumped`` shows the model."""
    found = await rows.connection.fetchval(
        """
        select json_object_agg(c.key, json_build_object(
            'lease', json_build_array(epoch, owner, case
                when lease_until = '-infinity' then 'handed back'
                when lease_until > clock_timestamp() then 'live' else 'expired' end,
                checked_seq, stop_seq, new_seq, out_seq),
            'mailbox', (select json_agg(json_build_array(seq, source_id, state, attempts,
                    vanished, begun_epoch, done_epoch) order by seq)
                from mailbox m where m.key = c.key),
            'steps', (select json_agg(json_build_array(seq, n, coalesce(
                    body->'message'->'content', (select jsonb_agg(p->'seq')
                        from jsonb_array_elements(body->'positions') p))) order by seq, n)
                from step s where s.key = c.key),
            'sent', (select json_agg(json_build_array(seq, idempotency_key, body->'content',
                    published) order by seq)
                from outbound o where o.key = c.key),
            'history', (select json_agg(json_build_array(seq, message->'content') order by n)
                from history h where h.tenant_id = c.tenant_id)))
        from conversation c
        """
    )
    return json.loads(found) if found else {}


def dumped(model: Conversation) -> dict[str, Any]:
    manifests = [[head, 0, positions] for head, positions in model.manifests.items()]
    steps = [[turn, n, text] for turn, all_ in model.steps.items() for n, text in all_.items()]
    mailbox = [
        [seq, m.source, m.state, m.attempts, m.vanished, m.begun, m.done]
        for seq, m in sorted(model.mailbox.items())
    ]
    sent = [
        [n, key, content, n in model.published]
        for n, (key, content) in enumerate(model.sent, start=1)
    ]
    counters = [model.checked, model.stop, model.new, len(model.sent)]
    return {
        "lease": [model.epoch, model.owner, model.lease, *counters],
        "mailbox": mailbox or None,
        "steps": sorted(manifests + steps, key=lambda row: row[:2]) or None,
        "sent": sent or None,
        "history": [list(row) for row in model.history] or None,
    }
