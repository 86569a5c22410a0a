"""The turn API against its model (``model.py``): any calls, in any order, by any worker."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import asyncpg
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from memory.adapters.postgres import PostgresDatabase
from memory.migrations import HEAD
from posthouse import turns
from posthouse.errors import PosthouseError
from tests.integration.memory.api import LONG_S, SHORT_S, Api
from tests.integration.memory.guarantees import broken, final
from tests.integration.memory.model import Conversation, Refused
from tests.integration.memory.requests import (
    commit,
    letter,
    manifest,
    outbound,
    published,
    said,
    step,
    tombstone,
)
from tests.integration.memory.rows import Rows

QUICK = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=1500, stateful_step_count=80, phases=tuple(Phase))

KEYS = ("a", "b")
WORKERS = ("w1", "w2", "w3")
LIMIT = 5
SEQS = st.integers(1, 12)
# Mostly a lease that is held, 0, sometimes an older one: that of a zombie, most likely.
AGO = st.sampled_from([0] * 9 + [1, 2, 3])
RARELY = st.sampled_from([False, False, True])

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


class TurnMachine(RuleBasedStateMachine):
    """Every rule makes one call, on the model and on Postgres, and compares."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.memory, self.taker = world.memory, world.taker
        self.model = {key: Conversation(LIMIT) for key in KEYS}
        self.granted: list[tuple[str, str, int]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        world.run(world.rows.clear())

    # How a call is made: by name, so that it can be repeated

    def call(self, name: str, **arguments: Any) -> None:
        """Make a call for the first time."""
        self.calls.append((name, arguments))
        getattr(self, f"do_{name}")(**arguments)

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

    def lease_of(self, ago: int) -> tuple[str, int]:
        """Key and epoch of a lease that was granted; best one with a turn under way."""
        held = [(key, m.epoch) for key, m in self.model.items() if m.is_held(m.epoch)]
        if ago == 0 and held:
            return max(held, key=lambda lease: self.turn_of(*lease) > 0)
        _, key, epoch = self.granted[-1 - ago % len(self.granted)]
        return key, epoch

    def grant(self, worker: str, key: str) -> None:
        """A worker got a lease; it keeps it alive from now on."""
        epoch = self.model[key].epoch
        self.granted.append((worker, key, epoch))
        assert self.world.run(self.memory.beat(worker, {key: epoch})).lost == []

    # Ingress

    @rule(
        key=st.sampled_from(KEYS),
        worker=st.sampled_from(WORKERS),
        seq=SEQS,
        source=st.one_of(st.none(), SEQS),
        readable=st.sampled_from([True, True, True, True, False]),
    )
    def deliver(self, key: str, worker: str, seq: int, source: int | None, readable: bool) -> None:
        """Any worker opens any message; ``source``: one that repeats another's id."""
        self.call(
            "open", key=key, worker=worker, seq=seq, source=f"s{source or seq}", readable=readable
        )

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

    @precondition(lambda self: self.granted)
    @rule(ago=AGO, seq=SEQS, readable=st.booleans())
    def look_up(self, ago: int, seq: int, readable: bool) -> None:
        """A holder found a message in the stream."""
        key, epoch = self.lease_of(ago)
        self.call("admit", key=key, epoch=epoch, seq=seq, readable=readable)

    def do_admit(self, key: str, epoch: int, seq: int, readable: bool) -> None:
        expected, refused = self.expect(key, "admit", epoch, seq, f"s{seq}", readable)
        with self.expecting(refused):
            found = self.world.run(self.memory.admit(epoch, _letter(seq, f"s{seq}", readable), key))
        if refused is None:
            told = {"message": found.message, "waiting": [w.seq for w in found.waiting]}
            assert told == expected

    @rule(key=st.sampled_from(KEYS), op=st.sampled_from(["stop", "new", "status"]), seq=SEQS)
    def command(self, key: str, op: str, seq: int) -> None:
        """A command comes in."""
        self.call("control", key=key, op=op, seq=seq)

    def do_control(self, key: str, op: str, seq: int) -> None:
        expected, _ = self.expect(key, "control", op, seq)
        found = self.world.run(self.memory.control(op, seq, key))
        told = {"running": found.running, "waiting": found.waiting}
        assert {**told, "stopped": sorted(found.stopped)} == expected

    # Turns

    @precondition(lambda self: self.granted)
    @rule(ago=AGO, merged=st.integers(1, 3), skip=st.sampled_from([0, 0, 0, 0, 1]))
    def begin(self, ago: int, merged: int, skip: int) -> None:
        """A holder begins with what waits first (or wrongly with another message)."""
        key, epoch = self.lease_of(ago)
        positions = self.model[key].waiting()[skip : skip + merged] or [1]
        self.call("begin", key=key, epoch=epoch, positions=positions)

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

    @rule(key=st.sampled_from(KEYS), worker=st.sampled_from(WORKERS), seq=SEQS)
    def work(self, key: str, worker: str, seq: int) -> None:
        """A message comes in, its turn begins and makes a first step."""
        self.call("open", key=key, worker=worker, seq=seq, source=f"s{seq}", readable=True)
        epoch, waiting = self.model[key].epoch, self.model[key].waiting()
        if waiting:
            self.call("begin", key=key, epoch=epoch, positions=waiting[:2])
            self.call("record", key=key, epoch=epoch, turn=waiting[0], n=1, text="x")

    def turn_of(self, key: str, epoch: int) -> int:
        """The head of the turn under way, 0 when none is."""
        begun = [s for s, m in self.model[key].mailbox.items() if m.begun == epoch]
        return min(begun, default=0)

    @precondition(lambda self: self.granted)
    @rule(ago=AGO, n=st.integers(0, 4), text=st.sampled_from(["x", "x", "x", "y"]))
    def record(self, ago: int, n: int, text: str) -> None:
        """A holder records a step."""
        key, epoch = self.lease_of(ago)
        turn = self.turn_of(key, epoch) or 1
        self.call("record", key=key, epoch=epoch, turn=turn, n=n, text=text)

    def do_record(self, key: str, epoch: int, turn: int, n: int, text: str) -> None:
        _, refused = self.expect(key, "record", epoch, turn, n, text)
        with self.expecting(refused):
            self.world.run(self.memory.record(epoch, turn, step(n, text), key=key))

    @precondition(lambda self: self.granted)
    @rule(
        ago=AGO,
        name=st.sampled_from(["m1", "m2", "m3"]),
        with_step=st.one_of(st.none(), st.tuples(st.integers(1, 4), st.sampled_from(["x", "y"]))),
    )
    def emit(self, ago: int, name: str, with_step: tuple[int, str] | None) -> None:
        """A holder sends a message in mid-turn."""
        key, epoch = self.lease_of(ago)
        turn = self.turn_of(key, epoch) or 1
        sent = f"{turn}:{name}"
        self.call("emit", key=key, epoch=epoch, turn=turn, sent=sent, with_step=with_step)

    def do_emit(
        self, key: str, epoch: int, turn: int, sent: str, with_step: tuple[int, str] | None
    ) -> None:
        expected, refused = self.expect(key, "emit", epoch, turn, sent, with_step)
        written = step(*with_step) if with_step else None
        with self.expecting(refused):
            found = self.world.run(self.memory.emit(epoch, turn, sent, step=written, key=key))
        if refused is None:
            assert {"seq": found.outgoing.seq, "again": found.again} == expected

    @rule(key=st.sampled_from(KEYS), name=st.sampled_from(["n1", "n2"]))
    def notify(self, key: str, name: str) -> None:
        """Somebody else sends a message."""
        self.call("notify", key=key, sent=name)

    def do_notify(self, key: str, sent: str) -> None:
        expected, _ = self.expect(key, "notify", sent)
        found = self.world.run(self.memory.notify(sent, key))
        assert {"seq": found.outgoing.seq, "again": found.again} == expected

    @precondition(lambda self: self.granted)
    @rule(
        ago=AGO,
        members=st.sampled_from(["all", "all", "all", "head", "more", "twice"]),
        answers=st.integers(1, 2),
        entries=st.lists(st.one_of(st.integers(1, 3), st.sampled_from(["q", "a"])), max_size=3),
        looked=SEQS,
    )
    def commit(self, ago: int, members: str, answers: int, entries: list[Any], looked: int) -> None:
        """A holder ends its turn, or tries to end something else."""
        key, epoch = self.lease_of(ago)
        model = self.model[key]
        head = self.turn_of(key, epoch) or min(model.waiting(), default=1)
        named = model.manifests.get(head, [head])
        later = [s for s in model.waiting() if s > named[-1]][:1]
        positions = {"all": named, "head": named[:1], "more": named + later, "twice": named * 2}
        known = model.steps.get(head, {})
        history = [e if isinstance(e, str) or e in known or answers == 2 else "s" for e in entries]
        self.call(
            "commit",
            key=key,
            epoch=epoch,
            positions=positions[members],
            answers=answers,
            history=history,
            looked=looked,
        )

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

    @precondition(lambda self: self.granted)
    @rule(ago=AGO, really=RARELY)
    def release(self, ago: int, really: bool) -> None:
        """A holder hands back."""
        key, epoch = self.lease_of(ago)
        if really:
            self.call("release", key=key, epoch=epoch)

    def do_release(self, key: str, epoch: int) -> None:
        _, refused = self.expect(key, "release", epoch)
        with self.expecting(refused):
            self.world.run(self.memory.release(epoch, key))

    # Time, heartbeats, lost answers

    @rule(key=st.sampled_from(KEYS), really=RARELY)
    def vanish(self, key: str, really: bool) -> None:
        """The holder does not renew."""
        if really and self.model[key].lease == "live":
            self.model[key].expire()
            self.world.run(self.world.rows.expire(key))

    @rule(worker=st.sampled_from(WORKERS), told=st.lists(st.integers(0, 20), max_size=3))
    def renew(self, worker: str, told: list[int]) -> None:
        """A worker renews all it believes to hold, and reports some published messages."""
        leases = {key: epoch for owner, key, epoch in self.granted if owner == worker}
        lost = [key for key, epoch in leases.items() if not self.model[key].renew(worker, epoch)]
        reports = self.reports(told)
        found = self.world.run(self.memory.beat(worker, leases, published=reports))
        assert sorted(found.lost) == sorted(lost)
        stopped = {
            key
            for key in leases.keys() - set(lost)
            if any(seq <= self.model[key].stop for seq in self.model[key].waiting())
        }
        assert found.controls.keys() == stopped

    def reports(self, told: list[int]) -> list[turns.Published]:
        sent = [(key, n) for key in KEYS for n in self.model[key].unpublished()]
        chosen = [sent[i] for i in told if i < len(sent)]
        for key, n in chosen:
            self.model[key].published.add(n)
        return [published(n, key=key) for key, n in chosen]

    @rule(worker=st.sampled_from(WORKERS), most=st.integers(1, 3))
    def adopt(self, worker: str, most: int) -> None:
        """A worker takes over what nobody renews, and publishes what nobody published."""
        orphans = [
            key
            for key in KEYS
            if self.model[key].owner is not None and not self.model[key].is_live()
        ][:most]
        relayed = [(key, n) for key in KEYS for n in self.model[key].unpublished()[:5]]
        found = self.world.run(self.taker.beat(worker, adopt=most))
        adopted = [key for key in orphans if self.model[key].waiting()]
        assert [lease.key for lease in found.adopted] == adopted
        assert [(o.key, o.seq) for o in found.relay] == relayed
        for key in orphans:
            if key in adopted:
                self.model[key].take(worker)
            else:
                self.model[key].owner = None
        for lease in found.adopted:
            self.check_lease(lease)
            self.grant(worker, lease.key)

    @precondition(lambda self: self.calls)
    @rule(ago=st.integers(0, 30))
    def repeat(self, ago: int) -> None:
        """An answer was lost, or a zombie wakes: any earlier call comes again."""
        name, arguments = self.calls[-1 - ago % len(self.calls)]
        getattr(self, f"do_{name}")(**arguments)

    # What always holds

    @initialize()
    def start(self) -> None:
        """Nothing has happened yet."""

    @invariant()
    def the_database_is_as_the_model(self) -> None:
        """Every row of every conversation."""
        found = self.world.run(_dump(self.world.rows))
        assert found == {key: _dumped(m) for key, m in self.model.items() if m.exists}

    @invariant()
    def the_guarantees_hold(self) -> None:
        """R4, R7-R9, told from the rows alone."""
        assert self.world.run(broken(self.world.rows)) == []


def _letter(seq: int, source: str, readable: bool) -> turns.Letter:
    whole = letter(seq, source=source)
    return whole if readable else tombstone(seq).model_copy(update={"source_id": source})


async def _dump(rows: Rows) -> dict[str, Any]:
    """All conversations as ``_dumped`` shows the model."""
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


def _dumped(model: Conversation) -> dict[str, Any]:
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


@pytest.fixture
def world(direct_dsn: str) -> Iterator[World]:
    """The database of the direct tests, for a machine that runs without a loop."""
    world = World(direct_dsn)
    yield world
    world.close()


def _run(world: World, how: settings) -> None:
    class Machine(TurnMachine):
        def __init__(self) -> None:
            super().__init__(world)

    run_state_machine_as_test(Machine, settings=how)


def test_quick(world: World) -> None:
    _run(world, QUICK)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_long(world: World) -> None:
    _run(world, LONG)
