"""The same call, or rivals, at the same moment: all wait at one lock, then the first one wins."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from posthouse.calls import CallOpenResult
from posthouse.errors import Fenced
from tests.integration.memory.api import Api
from tests.integration.memory.requests import KEY, commit, letter, manifest, step
from tests.integration.memory.rows import Rows
from tests.support.wait import eventually

T = TypeVar("T")

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"


async def _together(rows: Rows, *calls: Awaitable[T]) -> list[T | BaseException]:
    """Start the calls in this order while the conversation is locked, then let them go."""
    async with rows.another() as beside:
        transaction = beside.transaction()
        await transaction.start()
        await beside.execute("select 1 from conversation for update")
        tasks = []
        for count, call in enumerate(calls, start=1):
            tasks.append(asyncio.ensure_future(call))
            await eventually(lambda n=count: _as_many(rows, n))  # type: ignore[misc]
        await transaction.rollback()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def _as_many(rows: Rows, count: int) -> bool:
    return bool(await rows.connection.fetchval(WAITING) >= count)


async def test_of_first_messages_at_once_one_opens(memory: Api, rows: Rows) -> None:
    results = await asyncio.gather(*(memory.open(letter(n), f"w{n}") for n in range(1, 9)))
    assert sorted(r.state for r in results) == ["busy"] * 7 + ["opened"]
    assert set((await rows.states()).values()) == {"waiting"}


async def test_the_same_message_at_once_is_stored_once(memory: Api, rows: Rows) -> None:
    results = await asyncio.gather(*(memory.open(letter(n, source="s")) for n in range(1, 9)))
    assert sorted(r.state for r in results) == ["busy"] * 7 + ["opened"]
    assert len(await rows.states()) == 1


async def test_an_orphan_is_taken_over_once(memory: Api, taker: Api, rows: Rows) -> None:
    await memory.lease(letter(1))
    await rows.expire()
    # Long leases: the grace is over, since the conversation was handed back.
    await rows.connection.execute("update conversation set lease_until = '-infinity'")
    results = await asyncio.gather(*(memory.open(letter(1), f"w{n}") for n in range(8)))
    assert sorted(r.state for r in results) == ["busy"] * 7 + ["opened"]


@pytest.mark.parametrize("what", ["begin", "record", "emit", "notify", "commit"])
async def test_a_call_and_its_repeat_at_once_are_one(memory: Api, rows: Rows, what: str) -> None:
    lease = await memory.lease(letter(1))
    if what != "begin":
        await memory.begin(lease.epoch, manifest(1))
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "begin": lambda: memory.begin(lease.epoch, manifest(1)),
        "record": lambda: memory.record(lease.epoch, 1, step(1)),
        "emit": lambda: memory.emit(lease.epoch, 1, "a", step=step(1)),
        "notify": lambda: memory.notify("a"),
        "commit": lambda: memory.commit(commit(lease.epoch, 1)),
    }
    results = await _together(rows, *(calls[what]() for _ in range(4)))
    assert not [r for r in results if isinstance(r, BaseException)]
    assert (await rows.message(1))["attempts"] == 1
    assert len(await rows.sent()) == (what in ("emit", "notify", "commit"))


async def test_a_step_is_seen_by_the_take_over_behind_it(
    memory: Api, taker: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await rows.expire()
    recorded, taken = await _together(
        rows, memory.record(lease.epoch, 1, step(1)), taker.open(letter(1), "w2")
    )
    assert not isinstance(recorded, BaseException)
    assert not isinstance(taken, BaseException)
    begun = await memory.begin(lease.epoch + 1, manifest(1))
    assert begun.steps == [step(1)]


async def test_a_step_behind_a_take_over_is_fenced(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await rows.expire()
    _, recorded = await _together(
        rows, taker.open(letter(1), "w2"), memory.record(lease.epoch, 1, step(1))
    )
    assert isinstance(recorded, Fenced)
    assert (await memory.begin(lease.epoch + 1, manifest(1))).steps == []


async def test_a_renewal_behind_a_take_over_is_lost(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await rows.expire()
    _, beat = await _together(
        rows, taker.open(letter(1), "w2"), memory.beat(leases={KEY: lease.epoch})
    )
    assert not isinstance(beat, BaseException)
    assert beat.lost == [KEY]  # type: ignore[attr-defined]
    assert (await rows.conversation())["owner"] == "w2"


async def test_a_message_behind_the_last_commit_opens(memory: Api, rows: Rows) -> None:
    """It must not be told busy by a holder that is about to give up."""
    lease = await memory.lease(letter(1))
    _, opened = await _together(
        rows, memory.commit(commit(lease.epoch, 1)), memory.open(letter(2), "w2")
    )
    assert getattr(opened, "state", opened) == "opened"


async def test_a_message_before_the_last_commit_is_the_holders(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    opened, done = await _together(
        rows, memory.open(letter(2), "w2"), memory.commit(commit(lease.epoch, 1))
    )
    assert getattr(opened, "state", opened) == "busy"
    assert [w.seq for w in getattr(done, "waiting", [])] == [2]


async def test_a_call_opened_at_once_is_opened_once(memory: Api, rows: Rows) -> None:
    results: list[CallOpenResult] = await asyncio.gather(
        *(memory.call_open("c", f"w{n}", anonymous=True) for n in range(8))
    )
    assert sorted(r.state for r in results) == ["joined"] * 7 + ["opened"]
