"""The turn API against its model (``model.py``): any calls, in any order, by any worker."""

from collections.abc import Iterator
from typing import Any

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

from posthouse import turns
from tests.integration.memory.calls import KEYS, Calls, World, dump, dumped
from tests.integration.memory.guarantees import broken
from tests.integration.memory.requests import published

QUICK = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=1500, stateful_step_count=80, phases=tuple(Phase))

WORKERS = ("w1", "w2", "w3")
SEQS = st.integers(1, 12)
# Mostly a lease that is held, 0, sometimes an older one: that of a zombie, most likely.
AGO = st.sampled_from([0] * 9 + [1, 2, 3])
RARELY = st.sampled_from([False, False, True])


class TurnMachine(RuleBasedStateMachine):
    """Every rule makes one call, on the model and on Postgres, and compares."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.calls = Calls(world)
        self.model = self.calls.model

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
        self.calls.make(
            "open", key=key, worker=worker, seq=seq, source=f"s{source or seq}", readable=readable
        )

    @precondition(lambda self: self.calls.granted)
    @rule(ago=AGO, seq=SEQS, readable=st.booleans())
    def look_up(self, ago: int, seq: int, readable: bool) -> None:
        """A holder found a message in the stream."""
        key, epoch = self.calls.lease_of(ago)
        self.calls.make("admit", key=key, epoch=epoch, seq=seq, readable=readable)

    @rule(key=st.sampled_from(KEYS), op=st.sampled_from(["stop", "new", "status"]), seq=SEQS)
    def command(self, key: str, op: str, seq: int) -> None:
        """A command comes in."""
        self.calls.make("control", key=key, op=op, seq=seq)

    # Turns

    @precondition(lambda self: self.calls.granted)
    @rule(ago=AGO, merged=st.integers(1, 3), skip=st.sampled_from([0, 0, 0, 0, 1]))
    def begin(self, ago: int, merged: int, skip: int) -> None:
        """A holder begins with what waits first (or wrongly with another message)."""
        key, epoch = self.calls.lease_of(ago)
        positions = self.model[key].waiting()[skip : skip + merged] or [1]
        self.calls.make("begin", key=key, epoch=epoch, positions=positions)

    @rule(key=st.sampled_from(KEYS), worker=st.sampled_from(WORKERS), seq=SEQS)
    def work(self, key: str, worker: str, seq: int) -> None:
        """A message comes in, its turn begins and makes a first step."""
        self.calls.make("open", key=key, worker=worker, seq=seq, source=f"s{seq}", readable=True)
        epoch, waiting = self.model[key].epoch, self.model[key].waiting()
        if waiting:
            self.calls.make("begin", key=key, epoch=epoch, positions=waiting[:2])
            self.calls.make("record", key=key, epoch=epoch, turn=waiting[0], n=1, text="x")

    @precondition(lambda self: self.calls.granted)
    @rule(ago=AGO, n=st.integers(0, 4), text=st.sampled_from(["x", "x", "x", "y"]))
    def record(self, ago: int, n: int, text: str) -> None:
        """A holder records a step."""
        key, epoch = self.calls.lease_of(ago)
        turn = self.calls.turn_of(key, epoch) or 1
        self.calls.make("record", key=key, epoch=epoch, turn=turn, n=n, text=text)

    @precondition(lambda self: self.calls.granted)
    @rule(
        ago=AGO,
        name=st.sampled_from(["m1", "m2", "m3"]),
        with_step=st.one_of(st.none(), st.tuples(st.integers(1, 4), st.sampled_from(["x", "y"]))),
    )
    def emit(self, ago: int, name: str, with_step: tuple[int, str] | None) -> None:
        """A holder sends a message in mid-turn."""
        key, epoch = self.calls.lease_of(ago)
        turn = self.calls.turn_of(key, epoch) or 1
        sent = f"{turn}:{name}"
        self.calls.make("emit", key=key, epoch=epoch, turn=turn, sent=sent, with_step=with_step)

    @rule(key=st.sampled_from(KEYS), name=st.sampled_from(["n1", "n2"]))
    def notify(self, key: str, name: str) -> None:
        """Somebody else sends a message."""
        self.calls.make("notify", key=key, sent=name)

    @precondition(lambda self: self.calls.granted)
    @rule(
        ago=AGO,
        members=st.sampled_from(["all", "all", "all", "head", "more", "twice"]),
        answers=st.integers(1, 2),
        entries=st.lists(st.one_of(st.integers(1, 3), st.sampled_from(["q", "a"])), max_size=3),
        looked=SEQS,
    )
    def commit(self, ago: int, members: str, answers: int, entries: list[Any], looked: int) -> None:
        """A holder ends its turn, or tries to end something else."""
        key, epoch = self.calls.lease_of(ago)
        model = self.model[key]
        head = self.calls.turn_of(key, epoch) or min(model.waiting(), default=1)
        named = model.manifests.get(head, [head])
        later = [s for s in model.waiting() if s > named[-1]][:1]
        positions = {"all": named, "head": named[:1], "more": named + later, "twice": named * 2}
        known = model.steps.get(head, {})
        history = [e if isinstance(e, str) or e in known or answers == 2 else "s" for e in entries]
        self.calls.make(
            "commit",
            key=key,
            epoch=epoch,
            positions=positions[members],
            answers=answers,
            history=history,
            looked=looked,
        )

    @precondition(lambda self: self.calls.granted)
    @rule(ago=AGO, really=RARELY)
    def release(self, ago: int, really: bool) -> None:
        """A holder hands back."""
        key, epoch = self.calls.lease_of(ago)
        if really:
            self.calls.make("release", key=key, epoch=epoch)

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
        leases = {key: epoch for owner, key, epoch in self.calls.granted if owner == worker}
        lost = [key for key, epoch in leases.items() if not self.model[key].renew(worker, epoch)]
        reports = self.reports(told)
        found = self.world.run(self.world.memory.beat(worker, leases, published=reports))
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
        found = self.world.run(self.world.taker.beat(worker, adopt=most))
        adopted = [key for key in orphans if self.model[key].waiting()]
        assert [lease.key for lease in found.adopted] == adopted
        assert [(o.key, o.seq) for o in found.relay] == relayed
        for key in orphans:
            if key in adopted:
                self.model[key].take(worker)
            else:
                self.model[key].owner = None
        for lease in found.adopted:
            self.calls.check_lease(lease)
            self.calls.grant(worker, lease.key)

    @precondition(lambda self: self.calls.made)
    @rule(ago=st.integers(0, 30))
    def repeat(self, ago: int) -> None:
        """An answer was lost, or a zombie wakes: any earlier call comes again."""
        self.calls.repeat(ago)

    # What always holds

    @initialize()
    def start(self) -> None:
        """Nothing has happened yet."""

    @invariant()
    def the_database_is_as_the_model(self) -> None:
        """Every row of every conversation."""
        found = self.world.run(dump(self.world.rows))
        assert found == {key: dumped(m) for key, m in self.model.items() if m.exists}

    @invariant()
    def the_guarantees_hold(self) -> None:
        """R4, R7-R9, told from the rows alone."""
        assert self.world.run(broken(self.world.rows)) == []


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
