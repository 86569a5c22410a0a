"""Commands (R3): /stop, /new and /status as ``control`` stores them."""

import pytest

from posthouse.errors import BadRequest
from tests.integration.memory.api import Api
from tests.integration.memory.requests import commit, letter, manifest, place, step
from tests.integration.memory.rows import Rows


async def test_stop_ends_what_waits_before_it_and_nothing_else(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    for seq in (2, 3, 6):
        await memory.open(letter(seq))
    await memory.begin(lease.epoch, manifest(1))
    result = await memory.control("stop", 5)
    assert result.running
    assert sorted(result.stopped) == ["s2", "s3"]
    assert result.waiting == 2
    assert await rows.states() == {1: "waiting", 2: "stopped", 3: "stopped", 6: "waiting"}


async def test_the_holder_is_told_and_ends_the_running_turn(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.control("stop", 5)
    told = await memory.beat(leases={lease.key: lease.epoch})
    assert told.controls[lease.key].stop_upto == place(5)
    await memory.commit(commit(lease.epoch, 1))
    lease = await memory.lease(letter(6))
    assert (await memory.beat(leases={lease.key: lease.epoch})).controls == {}


async def test_a_turn_whose_worker_vanished_is_ended_by_the_next_holder(
    memory: Api, taker: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await rows.expire()
    taken = await taker.lease(letter(1), worker="w2")
    assert (await memory.control("stop", 5)).stopped == []
    begun = await memory.begin(taken.epoch, manifest(1))
    assert begun.controls.stop_upto == place(5)


async def test_no_member_of_a_merged_turn_is_stopped_alone(
    memory: Api, taker: Api, rows: Rows
) -> None:
    """A resume uses exactly the messages of the manifest (R8)."""
    lease = await memory.lease(letter(1))
    await memory.open(letter(2))
    await memory.open(letter(3))
    await memory.begin(lease.epoch, manifest(1, 2))
    await rows.expire()
    taken = await taker.lease(letter(1), worker="w2")
    assert (await memory.control("stop", 5)).stopped == ["s3"]
    begun = await memory.begin(taken.epoch, manifest(1))
    assert [m.seq for m in begun.messages] == [1, 2]
    assert (await memory.commit(commit(taken.epoch, 1, 2))).freed


async def test_a_repeated_or_older_stop_changes_nothing(memory: Api, rows: Rows) -> None:
    await memory.lease(letter(1))
    await memory.control("stop", 5)
    before = await rows.snapshot()
    await memory.control("stop", 5)
    assert (await memory.control("stop", 3)).stopped == []
    assert await rows.snapshot() == before


async def test_stop_leaves_later_messages_alone(memory: Api) -> None:
    lease = await memory.lease(letter(6))
    result = await memory.control("stop", 5)
    assert (result.running, result.stopped, result.waiting) == (False, [], 1)
    await memory.begin(lease.epoch, manifest(6))
    assert not (await memory.control("stop", 5)).running


async def test_stop_of_a_conversation_without_a_holder(memory: Api, taker: Api, rows: Rows) -> None:
    """All that waits is gone: who adopts it finds nothing, and frees it."""
    await memory.lease(letter(1))
    await rows.expire()
    assert (await memory.control("stop", 5)).stopped == ["s1"]
    assert (await taker.beat("w2", adopt=8)).adopted == []
    assert (await rows.conversation())["owner"] is None


async def test_new_moves_forward_only(memory: Api, rows: Rows) -> None:
    await memory.control("new", 5)
    await memory.control("new", 3)
    assert (await rows.conversation())["new_seq"] == 5


async def test_new_does_not_end_a_turn(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    assert (await memory.control("new", 5)).running
    await memory.record(lease.epoch, 1, step(1))
    assert (await memory.commit(commit(lease.epoch, 1))).freed


async def test_status_only_looks(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.open(letter(2))
    await memory.begin(lease.epoch, manifest(1))
    before = await rows.snapshot()
    result = await memory.control("status", 9)
    assert (result.running, result.stopped, result.waiting) == (True, [], 2)
    assert await rows.snapshot() == before


async def test_a_command_may_be_the_first_thing_in_a_conversation(memory: Api, rows: Rows) -> None:
    result = await memory.control("stop", 5)
    assert (result.running, result.stopped, result.waiting) == (False, [], 0)
    assert (await rows.conversation())["address"] == "im://cli/local"


async def test_unknown_commands_are_refused(postgres: object, rows: Rows) -> None:
    from memory.adapters.postgres import PostgresDatabase

    assert isinstance(postgres, PostgresDatabase)
    with pytest.raises(BadRequest, match="unknown command"):
        await postgres.call("turn_v1.control", "k", "", "dance", 1, 1)
