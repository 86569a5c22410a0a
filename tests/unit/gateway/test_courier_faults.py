"""Couriers whose bus and platform fail at any moment deliver in order, once."""

import asyncio
import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.delivery import patience
from gateway.ports import OutcomeUnknown
from posthouse.errors import TransientError, Unavailable
from tests.unit.gateway.fakes import (
    KEY,
    Clock,
    FakeChannel,
    FakeParcel,
    FakeRecords,
    FakeWorld,
    courier,
    letter,
    message,
)

MESSAGES = 4
WORDS = "a b c"
FAULTS = st.sampled_from(["", "", "", "", "lost", "refused", "unclear", "vanish"])


class Faults:
    """Plays one fault at each step of the bus and the platform; in the end all goes well."""

    def __init__(self, plan: list[str]) -> None:
        self.plan = iter(plan)
        self.vanished = 0

    def of_records(self, when: str) -> None:
        match next(self.plan, ""), when:
            case ("lost", "after") | ("refused", "before"):
                raise Unavailable("the bus does not answer")
            case "vanish", _:
                self.vanish()

    def of_channel(self, when: str) -> None:
        match next(self.plan, ""), when:
            case "refused", "before":
                raise TransientError("rate limit")
            case "unclear", _:
                raise OutcomeUnknown("no answer")
            case "vanish", _:
                self.vanish()

    def vanish(self) -> None:
        """The process is gone, as far as anybody can tell."""
        self.vanished += 1
        raise asyncio.CancelledError


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "RETRY_S", 0)


@pytest.mark.parametrize("idempotent", [True, False])
@given(
    plan=st.lists(FAULTS, max_size=60),
    handed_to=st.lists(st.integers(0, 2), min_size=20, max_size=20),
    order=st.permutations(range(1, MESSAGES + 1)),
)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_everything_arrives_in_order_once(
    idempotent: bool, plan: list[str], handed_to: list[int], order: list[int]
) -> None:
    asyncio.run(deliver_all(idempotent, plan, handed_to, order))


async def deliver_all(
    idempotent: bool, plan: list[str], handed_to: list[int], order: list[int]
) -> None:
    channel, records, world, clock = FakeChannel(idempotent), FakeRecords(), FakeWorld(), Clock()
    faults = Faults(plan)
    records.fault, channel.fault = faults.of_records, faults.of_channel
    messages = {seq: message(seq, " ".join(f"{seq}{w}" for w in WORDS.split())) for seq in order}
    world.stored = dict(messages)
    world.unfinished = FakeParcel(messages[1].to_wire())
    letters = [letter(messages[seq]) for seq in order]
    turn = 0
    while letters:
        replica = handed_to[turn % len(handed_to)] + 10 * faults.vanished
        turn += 1
        assert turn < 500, "it makes no progress"
        current = letters.pop(0)
        again_s: float | None = 1.0
        with contextlib.suppress(asyncio.CancelledError):
            working = courier(channel, records, world, clock, f"r{replica}")
            again_s = await working.deliver(current)
        if again_s is not None:
            letters.append(current)
            clock.pass_s(max(again_s, 1.0))

    wanted = [f"{seq}{word}" for seq in range(1, MESSAGES + 1) for word in WORDS.split()]
    entry = records.entries[KEY].entry
    assert entry is not None
    unknown = {f"{note.seq}{WORDS.split()[note.part - 1]}" for note in entry.unknown}
    assert entry.last == MESSAGES
    assert entry.current is None
    assert world.dead == []
    assert channel.shown() == sorted(set(channel.shown())), "out of order or twice"
    if idempotent:
        assert channel.shown() == wanted
        assert not unknown
    else:
        assert sorted({*channel.shown(), *unknown}) == wanted
