"""Into the mailbox: ``open`` and ``admit``."""

import pytest

from posthouse.errors import BadMessage, BadRequest, Fenced
from tests.integration.memory.api import LONG_S, Api
from tests.integration.memory.requests import KEY, commit, letter, manifest, place, tombstone
from tests.integration.memory.rows import Rows


async def test_the_first_message_opens(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(7))
    assert (lease.key, lease.address, lease.epoch) == (KEY, "im://cli/local", 1)
    assert lease.took_over is None
    assert lease.checked == place(0, generation=0)
    assert [(w.position, w.source_id, w.attempts) for w in lease.waiting] == [(place(7), "s7", 0)]
    assert (await rows.conversation())["owner"] == "w1"


async def test_a_held_conversation_is_busy(memory: Api, rows: Rows) -> None:
    await memory.lease(letter(1))
    result = await memory.open(letter(2), worker="w2")
    assert (result.state, result.message, result.lease) == ("busy", "waiting", None)
    assert await rows.states() == {1: "waiting", 2: "waiting"}
    assert (await rows.conversation())["owner"] == "w1"


async def test_a_repeat_is_busy_and_writes_nothing(memory: Api, rows: Rows) -> None:
    await memory.lease(letter(1))
    before = await rows.snapshot()
    assert (await memory.open(letter(1), worker="w2")).state == "busy"
    assert (await memory.open(letter(1), worker="w1")).state == "busy"
    assert await rows.snapshot() == before


async def test_the_fast_path_takes_no_lock(memory: Api, rows: Rows) -> None:
    await memory.lease(letter(1))
    async with rows.connection.transaction():
        await rows.connection.execute("select 1 from conversation for update")
        assert (await memory.open(letter(1), worker="w2")).state == "busy"


async def test_a_finished_message_is_done_and_brings_what_is_unpublished(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1))
    result = await memory.open(letter(1), worker="w2")
    assert (result.state, result.message) == ("done", "done")
    assert [o.body.content for o in result.unpublished] == ["answer 1.1"]


async def test_the_same_source_at_a_later_place_is_not_stored_again(
    memory: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1))
    assert (await memory.open(letter(9, source="s1"))).state == "done"
    assert await rows.states() == {1: "done"}


async def test_another_source_at_the_same_place_is_refused(memory: Api, rows: Rows) -> None:
    await memory.lease(letter(1))
    before = await rows.snapshot()
    with pytest.raises(BadRequest, match="another message is stored"):
        await memory.open(letter(1, source="other"))
    assert await rows.snapshot() == before


async def test_places_of_another_stream_generation_are_others(memory: Api) -> None:
    await memory.lease(letter(5))
    assert (await memory.open(letter(5, source="new", generation=2000))).message == "waiting"
    older = await memory.open(letter(5, source="old", generation=500))
    assert older.message == "waiting"


async def test_a_message_that_cannot_be_read_is_failed_and_opens_nothing(
    memory: Api, rows: Rows
) -> None:
    result = await memory.open(tombstone(1))
    assert (result.state, result.message) == ("done", "failed")
    assert (await rows.message(1))["reason"] == "nul"
    assert (await rows.conversation())["owner"] is None


async def test_past_the_limit_messages_are_refused(memory: Api, rows: Rows) -> None:
    await memory.lease(letter(1))
    for seq in range(2, 51):
        assert (await memory.open(letter(seq))).message == "waiting"
    result = await memory.open(letter(51))
    assert (result.state, result.message) == ("done", "refused")
    # Ours, since it waits already.
    assert (await memory.open(letter(50))).message == "waiting"


async def test_answered_messages_do_not_count_towards_the_limit(memory: Api) -> None:
    """R1: a conversation may go on for ever."""
    for seq in range(1, 121):
        lease = await memory.lease(letter(seq))
        await memory.commit(commit(lease.epoch, seq, answers=0))


async def test_a_message_before_an_earlier_stop_is_stopped(memory: Api) -> None:
    await memory.control("stop", 5)
    assert (await memory.open(letter(4))).message == "stopped"
    assert (await memory.open(letter(6))).state == "opened"


async def test_a_stop_covers_older_streams_and_no_newer_one(memory: Api) -> None:
    await memory.control("stop", 5)
    assert (await memory.open(letter(9, source="old", generation=500))).message == "stopped"
    assert (await memory.open(letter(3, source="new", generation=2000))).message == "waiting"


async def test_an_expired_lease_is_taken_over(memory: Api, taker: Api, rows: Rows) -> None:
    first = await memory.lease(letter(1))
    await rows.expire()
    second = await taker.lease(letter(2), worker="w2")
    assert (second.took_over, second.epoch) == ("w1", first.epoch + 1)
    assert [w.seq for w in second.waiting] == [1, 2]


async def test_a_repeat_takes_over_too(memory: Api, taker: Api, rows: Rows) -> None:
    await memory.lease(letter(1))
    await rows.expire()
    assert (await taker.lease(letter(1), worker="w2")).took_over == "w1"


async def test_a_take_over_brings_earlier_unpublished_messages(
    memory: Api, taker: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    await memory.open(letter(2))
    await memory.commit(commit(lease.epoch, 1))
    await rows.expire()
    taken = await taker.lease(letter(3), worker="w2")
    assert [o.seq for o in taken.unpublished] == [1]


async def test_waiting_lists_the_first_ten_in_order(memory: Api, taker: Api, rows: Rows) -> None:
    await memory.lease(letter(20))
    for seq in range(19, 5, -1):
        await memory.open(letter(seq))
    await rows.expire()
    lease = await taker.lease(letter(5))
    assert [w.seq for w in lease.waiting] == list(range(5, 15))


async def test_a_hashed_conversation_keeps_the_address_it_gets_later(
    memory: Api, rows: Rows
) -> None:
    await memory.open(tombstone(1).model_copy(update={"address": ""}))
    lease = await memory.lease(letter(2))
    assert lease.address == "im://cli/local"
    assert (await rows.conversation())["address"] == "im://cli/local"


async def test_a_restore_raises_epochs_and_outbound_generations(memory: Api, rows: Rows) -> None:
    first = await memory.lease(letter(1))
    await memory.commit(commit(first.epoch, 1))
    await rows.connection.execute("update era set generation = 2")
    second = await memory.lease(letter(2))
    assert second.epoch == (1 << 32) + 1
    done = await memory.commit(commit(second.epoch, 2))
    assert [(o.generation, o.seq) for o in done.unpublished] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("source", ["x" * 1025, "\0"])
async def test_an_id_that_cannot_be_stored_is_a_bad_message(memory: Api, source: str) -> None:
    with pytest.raises(BadMessage):
        await memory.open(letter(1, source=source))


async def test_admit_stores_and_remembers_how_far_it_looked(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(5))
    result = await memory.admit(lease.epoch, letter(3))
    assert result.message == "waiting"
    assert [w.seq for w in result.waiting] == [3, 5]
    assert (await rows.conversation())["checked_seq"] == 3


async def test_admit_does_not_look_back(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(5))
    await memory.admit(lease.epoch, letter(4))
    await memory.admit(lease.epoch, letter(2))
    assert (await rows.conversation())["checked_seq"] == 4


async def test_what_cannot_be_read_counts_as_checked(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(5))
    assert (await memory.admit(lease.epoch, tombstone(4))).message == "failed"
    assert (await rows.conversation())["checked_seq"] == 4


async def test_admit_of_what_is_stored_says_what_became_of_it(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1))
    lease = await memory.lease(letter(2))
    assert (await memory.admit(lease.epoch, letter(1))).message == "done"


async def test_admit_refuses_past_the_limit(memory: Api, postgres: object) -> None:
    lease = await memory.lease(letter(60))
    for seq in range(1, 50):
        assert (await memory.admit(lease.epoch, letter(seq))).message == "waiting"
    assert (await memory.admit(lease.epoch, letter(50))).message == "refused"


async def test_admit_is_for_the_holder(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(5))
    await rows.expire()
    await taker.lease(letter(5), worker="w2")
    before = await rows.snapshot()
    with pytest.raises(Fenced):
        await memory.admit(lease.epoch, letter(3))
    assert await rows.snapshot() == before


async def test_an_expired_lease_that_nobody_took_is_still_good(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await rows.expire()
    await memory.admit(lease.epoch, letter(2))
    await memory.begin(lease.epoch, manifest(1))
    assert not (await memory.commit(commit(lease.epoch, 1))).freed


async def test_grace_of_a_long_lease_is_on_after_the_start_of_postgres(
    memory: Api, rows: Rows
) -> None:
    """The other tests rely on it: `memory` takes nothing over, `taker` does."""
    await memory.lease(letter(1))
    await rows.expire()
    assert (await memory.open(letter(1), worker="w2")).state == "busy"
    assert LONG_S > (await memory.beat()).grace_s > 0
