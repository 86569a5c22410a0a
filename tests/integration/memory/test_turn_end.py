"""The end of a turn: ``commit`` and ``release``."""

import pytest

from posthouse import turns
from posthouse.errors import BadRequest, Fenced
from tests.integration.memory.api import Api
from tests.integration.memory.requests import commit, letter, manifest, place, said, step
from tests.integration.memory.rows import Rows


async def _begun(memory: Api, *seqs: int) -> int:
    """A turn of these messages is under way; its epoch."""
    lease = await memory.lease(letter(seqs[0]))
    for seq in seqs[1:]:
        await memory.open(letter(seq))
    await memory.begin(lease.epoch, manifest(*seqs))
    return lease.epoch


async def _contents(memory: Api) -> list[str]:
    return [m.message["content"] for m in (await memory.recall()).messages]


async def test_commit_frees_when_nothing_waits(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    done = await memory.commit(commit(epoch, 1, answers=2))
    assert (done.freed, done.again, done.waiting) == (True, False, [])
    assert [(o.seq, o.body.content) for o in done.unpublished] == [
        (1, "answer 1.1"),
        (2, "answer 1.2"),
    ]
    assert (await rows.conversation())["owner"] is None
    assert (await rows.message(1))["state"] == "done"


async def test_commit_goes_on_with_what_waits(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    await memory.open(letter(2))
    done = await memory.commit(commit(epoch, 1))
    assert not done.freed
    assert [w.seq for w in done.waiting] == [2]
    assert (await memory.begin(epoch, manifest(2))).attempts == 1
    assert (await memory.commit(commit(epoch, 2))).freed


async def test_commit_renews_the_lease(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    await memory.open(letter(2))
    await rows.expire()
    await memory.commit(commit(epoch, 1))
    alive = "select lease_until > clock_timestamp() from conversation"
    assert await rows.connection.fetchval(alive)


async def test_a_failed_turn_keeps_its_reason(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    request = commit(epoch, 1, state="failed").model_copy(update={"reason": "poison"})
    await memory.commit(request)
    row = await rows.message(1)
    assert (row["state"], row["reason"]) == ("failed", "poison")


async def test_a_turn_may_be_committed_without_begin(memory: Api) -> None:
    """As a message that failed too often is."""
    lease = await memory.lease(letter(1))
    assert (await memory.commit(commit(lease.epoch, 1, state="failed"))).freed


async def test_a_repeat_changes_nothing(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    first = await memory.commit(commit(epoch, 1))
    before = await rows.snapshot()
    second = await memory.commit(commit(epoch, 1))
    assert (second.again, second.freed) == (True, True)
    assert second.unpublished == first.unpublished
    assert await rows.snapshot() == before


async def test_a_repeat_under_the_same_lease_says_what_waits_now(memory: Api) -> None:
    epoch = await _begun(memory, 1)
    await memory.open(letter(2))
    await memory.commit(commit(epoch, 1))
    await memory.open(letter(3))
    second = await memory.commit(commit(epoch, 1))
    assert (second.again, second.freed) == (True, False)
    assert [w.seq for w in second.waiting] == [2, 3]


async def test_a_repeat_after_a_take_over_is_not_fenced(
    memory: Api, taker: Api, rows: Rows
) -> None:
    epoch = await _begun(memory, 1)
    await memory.open(letter(2))
    await memory.commit(commit(epoch, 1))
    await rows.expire()
    await taker.lease(letter(2), worker="w2")
    second = await memory.commit(commit(epoch, 1))
    assert (second.again, second.freed, second.waiting) == (True, True, [])


async def test_a_stale_epoch_commits_nothing(memory: Api, taker: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    await rows.expire()
    await taker.lease(letter(1), worker="w2")
    before = await rows.snapshot()
    with pytest.raises(Fenced):
        await memory.commit(commit(epoch, 1))
    assert await rows.snapshot() == before


async def test_nobody_commits_a_conversation_that_is_not_there(memory: Api) -> None:
    with pytest.raises(Fenced):
        await memory.commit(commit(1, 1))


@pytest.mark.parametrize("seqs", [(1, 3), (1, 1)])
async def test_every_message_must_wait(memory: Api, rows: Rows, seqs: tuple[int, ...]) -> None:
    epoch = await _begun(memory, 1)
    before = await rows.snapshot()
    with pytest.raises(BadRequest, match="not every message"):
        await memory.commit(commit(epoch, *seqs))
    assert await rows.snapshot() == before


async def test_a_turn_has_messages(memory: Api) -> None:
    epoch = await _begun(memory, 1)
    with pytest.raises(BadRequest, match="not every message"):
        await memory.commit(commit(epoch, 1).model_copy(update={"positions": []}))


async def test_a_steered_message_ends_with_the_turn(memory: Api) -> None:
    epoch = await _begun(memory, 1)
    await memory.open(letter(2))
    assert (await memory.commit(commit(epoch, 1, 2))).freed


async def test_a_merged_message_left_out_was_not_begun(memory: Api, taker: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1, 2)
    assert [w.attempts for w in (await memory.commit(commit(epoch, 1))).waiting] == [0]
    await rows.expire()
    assert (await taker.lease(letter(2), worker="w2")).waiting[0].vanished == 0


async def test_history_is_written_out_or_named_as_steps_in_the_given_order(memory: Api) -> None:
    epoch = await _begun(memory, 1)
    for n in (1, 2, 3):
        await memory.record(epoch, 1, step(n, f"step {n}"))
    entries = [said("q"), turns.HistoryEntry(step=2), said("z"), turns.HistoryEntry(step=1)]
    await memory.commit(commit(epoch, 1, history=entries))
    assert await _contents(memory) == ["q", "step 2", "z", "step 1"]


async def test_a_long_history_keeps_its_order(memory: Api) -> None:
    epoch = await _begun(memory, 1)
    entries = [said(str(n)) for n in range(150)]
    await memory.commit(commit(epoch, 1, history=entries))
    newest = await memory.recall(limit=200)
    assert [m.message["content"] for m in newest.messages] == [str(n) for n in range(150)]


@pytest.mark.parametrize("entry", [turns.HistoryEntry(step=7), turns.HistoryEntry()])
async def test_history_that_names_nothing_is_refused(
    memory: Api, rows: Rows, entry: turns.HistoryEntry
) -> None:
    epoch = await _begun(memory, 1)
    before = await rows.snapshot()
    with pytest.raises(BadRequest, match="history entry"):
        await memory.commit(commit(epoch, 1, history=[entry]))
    assert await rows.snapshot() == before


async def test_commit_remembers_how_far_the_holder_looked(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 4)
    await memory.commit(commit(epoch, 4, checked=6))
    assert (await rows.conversation())["checked_seq"] == 6
    lease = await memory.lease(letter(8))
    assert lease.checked == place(6)
    await memory.commit(commit(lease.epoch, 8, checked=2))
    assert (await rows.conversation())["checked_seq"] == 6


async def test_release_hands_back_what_waits_and_uncounts_the_attempt(
    memory: Api, rows: Rows
) -> None:
    epoch = await _begun(memory, 1)
    await memory.release(epoch)
    row = await rows.conversation()
    assert row["owner"] == "w1"
    message = await rows.message(1)
    assert (message["attempts"], message["begun_epoch"]) == (0, None)


async def test_a_handed_back_conversation_is_taken_even_in_grace(memory: Api) -> None:
    epoch = await _begun(memory, 1)
    await memory.release(epoch)
    lease = await memory.lease(letter(1), worker="w2")
    assert (lease.epoch, lease.took_over) == (epoch + 1, "w1")
    assert (lease.waiting[0].attempts, lease.waiting[0].vanished) == (0, 0)


async def test_a_release_frees_when_nothing_waits(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.control("stop", 5)
    await memory.release(lease.epoch)
    assert (await rows.conversation())["owner"] is None


async def test_a_repeated_release_is_harmless(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    await memory.release(epoch)
    before = await rows.snapshot()
    await memory.release(epoch)
    assert await rows.snapshot() == before
    lease = await memory.lease(letter(1), worker="w2")
    await memory.commit(commit(lease.epoch, 1))
    await memory.release(lease.epoch)


async def test_release_is_for_the_holder(memory: Api, taker: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    await rows.expire()
    await taker.lease(letter(1), worker="w2")
    before = await rows.snapshot()
    with pytest.raises(Fenced):
        await memory.release(epoch)
    assert await rows.snapshot() == before


async def test_who_handed_back_holds_nothing(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    await memory.release(epoch)
    before = await rows.snapshot()
    for late in (
        memory.begin(epoch, manifest(1)),
        memory.record(epoch, 1, step(1)),
        memory.emit(epoch, 1, "a"),
        memory.commit(commit(epoch, 1)),
        memory.admit(epoch, letter(2)),
    ):
        with pytest.raises(Fenced):
            await late
    assert await rows.snapshot() == before


async def test_steps_survive_a_hand_over(memory: Api) -> None:
    epoch = await _begun(memory, 1)
    await memory.record(epoch, 1, step(1))
    await memory.release(epoch)
    lease = await memory.lease(letter(1), worker="w2")
    assert (await memory.begin(lease.epoch, manifest(1))).steps == [step(1)]


async def test_time_between_release_and_take_over_is_given_back(memory: Api, rows: Rows) -> None:
    epoch = await _begun(memory, 1)
    await memory.release(epoch)
    await rows.connection.execute(
        "update conversation set idle_since = idle_since - interval '30 s'"
    )
    await memory.lease(letter(1), worker="w2")
    assert 30_000 <= (await rows.message(1))["given_back_ms"] < 40_000
