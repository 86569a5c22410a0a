"""Any number of replicas, failing at any moment: the order and the number of sends hold."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.delivery.decision import Arrival, Done, Replica, Send, Wait, decide
from gateway.delivery.record import Current, Entry
from gateway.settings import DeliveryLimits

MESSAGES = 4
PARTS = 3
REPLICAS = 3
LIMITS = DeliveryLimits()
LEASE_MS = round(LIMITS.lease_s * 1000)

replicas = st.integers(0, REPLICAS - 1)
messages = st.integers(1, MESSAGES)


@dataclass
class Sending:
    """A replica with a part on its way; ``taken`` once the platform has it."""

    seq: int
    part: int
    revision: int
    attempts: int
    taken: bool = False


class Delivery(RuleBasedStateMachine):
    """One conversation; ``sends`` is what the platform got, in order."""

    idempotent = True

    def __init__(self) -> None:
        super().__init__()
        self.now = 10_000_000
        self.entry: Entry | None = None
        self.revision = 0
        self.sending: dict[int, Sending] = {}
        self.sends: list[tuple[int, int]] = []
        self.vanished: set[tuple[int, int]] = set()

    def me(self, replica: int) -> Replica:
        return Replica(f"r{replica}", 0, self.idempotent, LIMITS)

    def write(self, entry: Entry, revision: int) -> bool:
        if revision != self.revision:
            return False
        self.entry, self.revision = entry, revision + 1
        return True

    def claim(self, replica: int, seq: int, part: int, revision: int, attempts: int) -> None:
        assert self.entry is not None
        if part > PARTS:
            self.write(self.entry.finished(seq, self.now), revision)
            return
        current = Current(
            seq=seq,
            part=part,
            state="sending",
            owner=f"r{replica}",
            until=self.now + LEASE_MS,
            attempts=attempts,
        )
        if self.write(self.entry.with_current(current, self.now), revision):
            self.sending[replica] = Sending(seq, part, self.revision, attempts)

    @rule(replica=replicas, seq=messages)
    def hand_out(self, replica: int, seq: int) -> None:
        if replica in self.sending:
            return
        action = decide(self.entry, Arrival(1, seq, self.now), self.now, self.me(replica))
        if isinstance(action, Done):
            assert self.entry is not None
            assert seq <= self.entry.last
        if not isinstance(action, Send):
            assert isinstance(action, Done | Wait)  # never young enough to ask, in this model
            return
        before = self.entry or Entry(generation=1)
        assert seq == before.last + 1
        self.entry = before
        if action.lost is not None:
            assert not self.idempotent
            self.entry = before.mark_unknown(seq, action.lost)
        self.claim(replica, seq, action.part, self.revision, action.attempts)

    @precondition(lambda self: self.sending)
    @rule(data=st.data())
    def reach_platform(self, data: st.DataObject) -> None:
        work = self.sending[data.draw(st.sampled_from(sorted(self.sending)))]
        if not work.taken:
            work.taken = True
            self.sends.append((work.seq, work.part))

    @precondition(lambda self: any(w.taken for w in self.sending.values()))
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        ready = sorted(r for r, w in self.sending.items() if w.taken)
        replica = data.draw(st.sampled_from(ready))
        work = self.sending.pop(replica)
        if work.revision == self.revision:
            self.claim(replica, work.seq, work.part + 1, work.revision, work.attempts)

    @precondition(lambda self: any(not w.taken for w in self.sending.values()))
    @rule(data=st.data())
    def fail_in_passing(self, data: st.DataObject) -> None:
        ready = sorted(r for r, w in self.sending.items() if not w.taken)
        work = self.sending.pop(data.draw(st.sampled_from(ready)))
        assert self.entry is not None
        pause = Current(
            seq=work.seq,
            part=work.part - 1,
            state="sent",
            until=self.now + 2000,
            attempts=work.attempts + 1,
        )
        self.write(self.entry.with_current(pause, self.now), work.revision)

    @precondition(lambda self: self.sending)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        work = self.sending.pop(data.draw(st.sampled_from(sorted(self.sending))))
        self.vanished.add((work.seq, work.part))

    @rule(seconds=st.integers(1, 15))
    def wait(self, seconds: int) -> None:
        self.now += seconds * 1000
        # A lease that runs out ends its send: ``Claim.kept`` cancels it before.
        for replica, work in list(self.sending.items()):
            live = self.entry is not None and self.entry.in_work()
            if work.revision != self.revision or not live or live.until <= self.now:
                del self.sending[replica]
                self.vanished.add((work.seq, work.part))

    @invariant()
    def order_holds(self) -> None:
        assert self.sends == sorted(self.sends)

    @invariant()
    def nothing_is_sent_twice(self) -> None:
        again = {send for send in self.sends if self.sends.count(send) > 1}
        if self.idempotent:
            assert again <= self.vanished  # with the same key, so the platform drops it
        else:
            assert not again

    @invariant()
    def what_is_over_was_sent_or_is_unknown(self) -> None:
        if self.entry is None:
            return
        unknown = {(note.seq, note.part) for note in self.entry.unknown}
        assert unknown <= self.vanished
        for seq in range(1, self.entry.last + 1):
            for part in range(1, PARTS + 1):
                assert (seq, part) in self.sends or (seq, part) in unknown


class DeliveryOnce(Delivery):
    """The same on a platform without idempotency keys."""

    idempotent = False


TestIdempotent = Delivery.TestCase
TestIdempotent.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestNotIdempotent = DeliveryOnce.TestCase
TestNotIdempotent.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
