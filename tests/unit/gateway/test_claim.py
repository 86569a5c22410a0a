"""Holding the record of a conversation while sending."""

import asyncio
import contextlib
import time
from functools import partial

import pytest

from gateway.delivery import patience
from gateway.delivery.claim import Claim
from gateway.delivery.record import Current, Entry
from gateway.ports import Conflict, Stored
from gateway.settings import DeliveryLimits
from posthouse.errors import Unavailable
from tests.unit.gateway.fakes import KEY, FakeRecords

LIMITS = DeliveryLimits(lease_s=0.3, lease_margin_s=0.05)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def sending(owner: str = "me", part: int = 1) -> Entry:
    current = Current(seq=1, part=part, state="sending", owner=owner, until=now_ms() + 300)
    return Entry(generation=1, current=current)


@pytest.fixture
def records() -> FakeRecords:
    return FakeRecords()


@pytest.fixture
def claim(records: FakeRecords, monkeypatch: pytest.MonkeyPatch) -> Claim:
    monkeypatch.setattr(patience, "RETRY_S", 0.01)
    return Claim(records, KEY, Stored(None, 0), "me", LIMITS)


async def take_over(records: FakeRecords, entry: Entry) -> None:
    await records.write(KEY, entry, (await records.read(KEY)).revision)


def failing(times: int, at: str, records: FakeRecords) -> list[str]:
    """Makes the next writes fail before or after they are applied; returns what was tried."""
    tried: list[str] = []

    def fault(when: str) -> None:
        if when == at:
            tried.append(when)
            if len(tried) <= times:
                raise Unavailable("away")

    records.fault = fault
    return tried


async def test_writes_one_after_another(claim: Claim, records: FakeRecords) -> None:
    for part in (1, 2, 3):
        await claim.write(partial(sending, part=part))
    entry, revision = await records.read(KEY)
    assert entry is not None
    assert entry.current is not None
    assert (entry.current.part, revision) == (3, 3)


async def test_another_ones_write_is_a_conflict(claim: Claim, records: FakeRecords) -> None:
    await claim.write(sending)
    await take_over(records, sending("other"))
    with pytest.raises(Conflict):
        await claim.write(lambda: sending(part=2))
    with pytest.raises(Conflict):
        await claim.write(lambda: Entry(generation=1, last=1))


async def test_a_first_write_that_comes_second_is_a_conflict(
    claim: Claim, records: FakeRecords
) -> None:
    await take_over(records, sending("other"))
    with pytest.raises(Conflict):
        await claim.write(sending)


async def test_an_unreachable_bus_is_waited_for(claim: Claim, records: FakeRecords) -> None:
    tried = failing(3, "before", records)
    await claim.write(sending)
    assert len(tried) == 4


async def test_a_write_whose_answer_was_lost_counts(claim: Claim, records: FakeRecords) -> None:
    failing(1, "after", records)
    await claim.write(sending)
    await claim.write(lambda: sending(part=2))
    entry, _ = await records.read(KEY)
    assert entry is not None
    assert entry.current is not None
    assert entry.current.part == 2


async def test_after_a_lost_renewal_the_next_write_goes_through(
    claim: Claim, records: FakeRecords
) -> None:
    await claim.write(sending)
    await take_over(records, sending())  # ours, but its answer never came
    await claim.write(lambda: Entry(generation=1, last=1))
    entry, _ = await records.read(KEY)
    assert entry == Entry(generation=1, last=1)


async def test_the_lease_is_renewed_while_the_body_runs(claim: Claim, records: FakeRecords) -> None:
    await claim.write(sending)
    async with claim.kept(now_ms):
        await asyncio.sleep(0.8)
        entry, _ = await records.read(KEY)
        assert entry is not None
        assert entry.current is not None
        assert entry.current.until > now_ms()
    await claim.write(lambda: sending(part=2))


async def test_it_ends_even_if_the_renewal_misses_its_cancellation(
    claim: Claim, records: FakeRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewing, write = asyncio.Event(), records.write

    async def deaf(key: str, entry: Entry, revision: int) -> int:
        renewing.set()
        # As nats-py does when its answer comes at the same moment.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
        return await write(key, entry, revision)

    await claim.write(sending)
    monkeypatch.setattr(records, "write", deaf)
    async with asyncio.timeout(2):
        async with claim.kept(now_ms):
            await renewing.wait()


async def test_a_lost_lease_ends_the_body(claim: Claim, records: FakeRecords) -> None:
    await claim.write(sending)
    await take_over(records, sending("other"))
    began = time.monotonic()
    with pytest.raises(Conflict):
        async with claim.kept(now_ms):
            await asyncio.sleep(5)
    assert time.monotonic() - began < 0.3


async def test_a_lease_that_cannot_be_renewed_ends_the_body_in_time(
    claim: Claim, records: FakeRecords
) -> None:
    await claim.write(sending)
    failing(1000, "before", records)
    began = time.monotonic()
    with pytest.raises(Conflict, match="could not be kept"):
        async with claim.kept(now_ms):
            await asyncio.sleep(5)
    assert time.monotonic() - began < LIMITS.lease_s


async def test_a_lease_begins_when_its_write_succeeds(claim: Claim, records: FakeRecords) -> None:
    failing(40, "before", records)  # for longer than a lease
    await claim.write(sending)
    entry, _ = await records.read(KEY)
    assert entry is not None
    assert entry.current is not None
    assert entry.current.until > now_ms() + 200
    async with claim.kept(now_ms):
        await asyncio.sleep(0.05)


async def test_errors_and_cancellation_pass_through(claim: Claim) -> None:
    await claim.write(sending)

    async def too_slow() -> None:
        async with claim.kept(now_ms), asyncio.timeout(0.05):
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError):
        await too_slow()
    with pytest.raises(KeyError):
        async with claim.kept(now_ms):
            raise KeyError


async def test_patience_ends_when_it_is_over(records: FakeRecords) -> None:
    async def conflict() -> None:
        raise Conflict("taken")

    with pytest.raises(Conflict):
        await patience.insist(conflict, KEY)
