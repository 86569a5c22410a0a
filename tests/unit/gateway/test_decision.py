"""The decision what to do with an outbound message, case by case."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.delivery.decision import (
    Action,
    Arrival,
    Ask,
    Done,
    Expire,
    Locate,
    Refuse,
    Replica,
    Send,
    Wait,
    decide,
)
from gateway.delivery.record import Current, Entry, PartState
from gateway.settings import DeliveryLimits

NOW = 1_000_000
LONG_AGO = NOW - 600_000
LIMITS = DeliveryLimits()


def replica(idempotent: bool = True, started: int = LONG_AGO, owner: str = "me") -> Replica:
    return Replica(owner, started, idempotent, LIMITS)


def arrival(seq: int, generation: int = 1, published: int = LONG_AGO, **more: Any) -> Arrival:
    return Arrival(generation, seq, published, **more)


def current(seq: int, part: int, state: PartState = "sending", **more: object) -> Current:
    return Current.model_validate({"seq": seq, "part": part, "state": state, **more})


def entry(last: int, now: Current | None = None, at: int = LONG_AGO, **more: int) -> Entry:
    return Entry(generation=1, last=last, current=now, at=at, **more)


def decided(record: Entry | None, message: Arrival, me: Replica | None = None) -> Action:
    return decide(record, message, NOW, me or replica())


def test_first_message_of_a_conversation_is_sent() -> None:
    assert decided(None, arrival(1)) == Send(1)


def test_next_message_in_order_is_sent() -> None:
    assert decided(entry(4), arrival(5)) == Send(1)


def test_what_is_over_is_done() -> None:
    assert decided(entry(4), arrival(4)) == Done()
    busy = entry(4, current(5, 1, owner="other", until=NOW + 9000))
    assert decided(busy, arrival(3)) == Done()


def test_live_lease_of_another_is_waited_for() -> None:
    busy = entry(4, current(5, 2, owner="other", until=NOW + 9000))
    assert decided(busy, arrival(5)) == Wait(LIMITS.first_look_s)
    assert decided(busy, arrival(6)) == Wait(LIMITS.first_look_s)
    assert decided(busy, arrival(6, deliveries=50)) == Wait(LIMITS.busy_s)
    almost = entry(4, current(5, 2, owner="other", until=NOW + 20))
    assert decided(almost, arrival(5)) == Wait(0.02)


def test_pause_after_a_failure_is_kept_to_its_end() -> None:
    paused = entry(4, current(5, 0, "sent", until=NOW + 30_000, attempts=3))
    assert decided(paused, arrival(5)) == Wait(30)
    assert decided(paused, arrival(6)) == Wait(30)
    over = entry(4, current(5, 0, "sent", until=NOW, attempts=3))
    assert decided(over, arrival(5)) == Send(1, attempts=3)


@pytest.mark.parametrize("owner", ["other", "me"])
def test_taking_over_an_idempotent_channel_repeats_the_part(owner: str) -> None:
    broken = entry(4, current(5, 3, owner=owner, until=NOW - 1))
    assert decided(broken, arrival(5)) == Send(3)


def test_taking_over_another_channel_gives_the_part_up_as_unknown() -> None:
    broken = entry(4, current(5, 3, owner="other", until=NOW - 1))
    assert decided(broken, arrival(5), replica(idempotent=False)) == Send(4, lost=3)


@pytest.mark.parametrize("state", ["sent", "unknown"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_is_over_of_a_message_is_not_sent_again(state: PartState, idempotent: bool) -> None:
    half = entry(4, current(5, 3, state, until=NOW - 1))
    assert decided(half, arrival(5), replica(idempotent)) == Send(4)


def test_own_unfinished_work_is_resumed_at_once() -> None:
    mine = entry(4, current(5, 3, owner="me", until=NOW + 9000))
    assert decided(mine, arrival(5)) == Send(3)


def test_expired_message_is_not_sent() -> None:
    assert decided(entry(4), arrival(5, expires=NOW)) == Expire()
    assert decided(entry(4), arrival(5, expires=NOW + 1)) == Send(1)
    broken = entry(4, current(5, 3, owner="other", until=NOW - 1))
    assert decided(broken, arrival(5, expires=1), replica(idempotent=False)) == Expire(lost=3)


def test_an_expired_message_still_waits_for_its_turn() -> None:
    busy = entry(4, current(5, 1, owner="other", until=NOW + 9000))
    assert isinstance(decided(busy, arrival(6, expires=1)), Wait)


def test_gap_is_waited_for_then_asked_about() -> None:
    assert decided(entry(4), arrival(7)) == Ask(5)
    young = arrival(7, published=NOW - 4000)
    assert decided(entry(4), young) == Wait(LIMITS.first_look_s)
    assert decided(entry(4), arrival(7, published=NOW - 5000)) == Ask(5)


def test_a_gap_is_waited_for_once() -> None:
    assert decided(entry(5, at=NOW), replace(arrival(7), waited=True)) == Ask(6)


def test_gap_counts_from_the_latest_progress() -> None:
    assert isinstance(decided(entry(4, at=NOW - 4000), arrival(7)), Wait)
    assert isinstance(decided(entry(4), arrival(7), replica(started=NOW - 4000)), Wait)
    abandoned = entry(4, current(5, 1, owner="other", until=NOW - 4000))
    assert isinstance(decided(abandoned, arrival(6)), Wait)
    abandoned = entry(4, current(5, 1, owner="other", until=NOW - 6000))
    assert decided(abandoned, arrival(6)) == Ask(5)


def test_without_a_record_a_later_message_waits_then_looks_where_to_begin() -> None:
    assert isinstance(decided(None, arrival(7, published=NOW - 9000)), Wait)
    assert decided(None, arrival(7)) == Locate()


def test_what_comes_after_its_successors_is_refused() -> None:
    begun = entry(6, floor=4)
    assert isinstance(decided(begun, arrival(4)), Refuse)
    assert decided(begun, arrival(5)) == Done()


def test_newer_generation_starts_again() -> None:
    assert decided(entry(9), arrival(1, generation=2)) == Send(1)
    assert decided(entry(9), arrival(7, generation=2)) == Locate()
    busy = entry(9, current(10, 1, owner="other", until=NOW + 9000))
    assert isinstance(decided(busy, arrival(1, generation=2)), Wait)


def test_older_generation_is_refused() -> None:
    restored = Entry(generation=2, last=1, at=LONG_AGO)
    assert isinstance(decided(restored, arrival(1)), Refuse)
    assert isinstance(decided(restored, arrival(9)), Refuse)
