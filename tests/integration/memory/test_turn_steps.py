"""A turn under its holder: ``begin``, ``record``, ``emit``, ``notify``."""

import pytest

from posthouse import turns
from posthouse.errors import BadRequest, Fenced
from tests.integration.memory.api import Api
from tests.integration.memory.requests import (
    DEADLINE_MS,
    KEY,
    commit,
    letter,
    manifest,
    place,
    said,
    step,
)
from tests.integration.memory.rows import Rows


async def _taken_over(taker: Api, rows: Rows, worker: str = "w2") -> int:
    """The worker of the first message vanished; the epoch of the next one."""
    await rows.expire()
    return (await taker.lease(letter(1), worker=worker)).epoch


async def test_begin_brings_the_messages_and_nothing_else_yet(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    begun = await memory.begin(lease.epoch, manifest(1))
    assert [(m.seq, m.body.content, m.attempts) for m in begun.messages] == [(1, "message 1", 1)]
    assert begun.manifest == manifest(1)
    assert (begun.steps, begun.history, begun.event_seq) == ([], [], 0)
    assert (begun.attempts, begun.vanished, begun.more) == (1, 0, False)


async def test_the_same_holder_asking_again_is_no_new_attempt(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    first = await memory.begin(lease.epoch, manifest(1))
    before = await rows.snapshot()
    assert await memory.begin(lease.epoch, manifest(1)) == first
    assert await rows.snapshot() == before


async def test_the_first_manifest_wins(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1, run_id="first"))
    epoch = await _taken_over(taker, rows)
    await memory.admit(epoch, letter(2))
    begun = await memory.begin(epoch, manifest(1, 2, run_id="second"))
    assert begun.manifest.run_id == "first"
    assert [m.seq for m in begun.messages] == [1]


async def test_merged_messages_are_one_turn(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.open(letter(2))
    begun = await memory.begin(lease.epoch, manifest(1, 2))
    assert [(m.seq, m.attempts) for m in begun.messages] == [(1, 1), (2, 1)]
    assert (await memory.commit(commit(lease.epoch, 1, 2))).freed
    assert await rows.states() == {1: "done", 2: "done"}


async def test_a_merged_message_that_no_longer_waits_is_left_out(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    begun = await memory.begin(lease.epoch, manifest(1, 2))
    assert begun.manifest.positions == [place(1)]


async def test_a_turn_starts_with_the_first_message_that_waits(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(2))
    await memory.open(letter(1))
    before = await rows.snapshot()
    with pytest.raises(BadRequest, match="not the first message that waits"):
        await memory.begin(lease.epoch, manifest(2))
    assert await rows.snapshot() == before


async def test_a_head_that_no_longer_waits_is_refused(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.open(letter(2))
    await memory.commit(commit(lease.epoch, 1))
    with pytest.raises(BadRequest, match="not the first message that waits"):
        await memory.begin(lease.epoch, manifest(1))


async def test_begin_is_for_the_holder(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await _taken_over(taker, rows)
    with pytest.raises(Fenced):
        await memory.begin(lease.epoch, manifest(1))


async def test_history_before_a_turn(memory: Api) -> None:
    for seq in (1, 2, 3):
        lease = await memory.lease(letter(seq))
        await memory.commit(commit(lease.epoch, seq))
    lease = await memory.lease(letter(4))
    begun = await memory.begin(lease.epoch, manifest(4))
    assert [m["content"] for m in begun.history] == ["message 1", "message 2", "message 3"]
    limited = await memory.begin(lease.epoch, manifest(4), limit=2)
    assert [m["content"] for m in limited.history] == ["message 2", "message 3"]
    assert (await memory.begin(lease.epoch, manifest(4), limit=0)).history == []


async def test_history_starts_at_the_newest_new(memory: Api) -> None:
    for seq in (1, 3):
        lease = await memory.lease(letter(seq))
        await memory.commit(commit(lease.epoch, seq))
    await memory.control("new", 2)
    lease = await memory.lease(letter(4))
    begun = await memory.begin(lease.epoch, manifest(4))
    assert [m["content"] for m in begun.history] == ["message 3"]
    assert begun.controls.new_at == place(2)


async def test_a_turn_from_before_new_keeps_its_history(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.open(letter(3))
    await memory.commit(commit(lease.epoch, 1))
    await memory.control("new", 9)
    begun = await memory.begin(lease.epoch, manifest(3))
    assert [m["content"] for m in begun.history] == ["message 1"]


async def test_a_resume_gets_steps_and_event_number(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.record(lease.epoch, 1, step(1), event_seq=4)
    await memory.record(lease.epoch, 1, step(2, kind="tool"), event_seq=9)
    epoch = await _taken_over(taker, rows)
    begun = await memory.begin(epoch, manifest(1))
    assert begun.steps == [step(1), step(2, kind="tool")]
    assert begun.event_seq == 9


async def test_a_repeated_record_is_harmless(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.record(lease.epoch, 1, step(1))
    before = await rows.snapshot()
    await memory.record(lease.epoch, 1, step(1))
    assert await rows.snapshot() == before


@pytest.mark.parametrize("other", [step(1, "something else"), step(1, kind="tool")])
async def test_another_step_under_the_same_number_is_refused(
    memory: Api, rows: Rows, other: turns.Step
) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.record(lease.epoch, 1, step(1))
    before = await rows.snapshot()
    with pytest.raises(BadRequest, match="another step"):
        await memory.record(lease.epoch, 1, other)
    assert await rows.snapshot() == before


async def test_nothing_in_a_step_is_lost(memory: Api, taker: Api, rows: Rows) -> None:
    body = {"none": None, "text": "\\u0000 ü 🐎", "n": [1, 2.5, True, {"deep": None}]}
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.record(lease.epoch, 1, turns.Step(n=1, kind="tool", body=body))
    begun = await memory.begin(await _taken_over(taker, rows), manifest(1))
    assert begun.steps[0].body == body


async def test_record_needs_a_turn_under_way(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    with pytest.raises(BadRequest, match="not under way"):
        await memory.record(lease.epoch, 1, step(1))


async def test_a_zombie_records_nothing(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await _taken_over(taker, rows)
    before = await rows.snapshot()
    with pytest.raises(Fenced):
        await memory.record(lease.epoch, 1, step(1))
    assert await rows.snapshot() == before


async def test_attempts_count_up_and_progress_resets_them_but_never_vanished(
    memory: Api, taker: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    for n in (2, 3):
        epoch = await _taken_over(taker, rows)
        begun = await memory.begin(epoch, manifest(1))
        assert (begun.attempts, begun.vanished) == (n, n - 1)
    await memory.record(epoch, 1, step(1))
    begun = await memory.begin(epoch, manifest(1))
    assert (begun.attempts, begun.vanished) == (1, 2)
    epoch = await _taken_over(taker, rows)
    begun = await memory.begin(epoch, manifest(1))
    assert (begun.attempts, begun.vanished) == (2, 3)


async def test_a_repeated_record_is_no_progress(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.record(lease.epoch, 1, step(1))
    epoch = await _taken_over(taker, rows)
    await memory.begin(epoch, manifest(1))
    await memory.record(epoch, 1, step(1))
    assert (await memory.begin(epoch, manifest(1))).attempts == 2


async def test_a_message_that_never_began_did_not_vanish(
    memory: Api, taker: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    await memory.open(letter(2))
    await memory.begin(lease.epoch, manifest(1))
    await _taken_over(taker, rows)
    assert (await rows.message(1))["vanished"] == 1
    assert (await rows.message(2))["vanished"] == 0


async def test_time_without_a_lease_is_given_back_once(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await rows.expire(seconds=60)
    epoch = (await taker.lease(letter(1), worker="w2")).epoch
    first = (await memory.begin(epoch, manifest(1))).manifest.deadline_ms
    assert 60_000 <= first - DEADLINE_MS < 70_000
    await rows.expire(seconds=500)
    epoch = (await taker.lease(letter(1), worker="w3")).epoch
    assert (await memory.begin(epoch, manifest(1))).manifest.deadline_ms == first


async def test_at_most_the_length_of_the_deadline_is_given_back(
    memory: Api, taker: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    now_ms = int(1000 * await rows.connection.fetchval("select extract(epoch from now())"))
    await memory.begin(lease.epoch, manifest(1, deadline_ms=now_ms + 10_000))
    await rows.expire(seconds=3600)
    epoch = (await taker.lease(letter(1), worker="w2")).epoch
    back = (await memory.begin(epoch, manifest(1))).manifest.deadline_ms - now_ms - 10_000
    assert 8_000 < back <= 10_000


async def test_emit_stores_step_and_message_once(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    first = await memory.emit(lease.epoch, 1, "run:1:0", step=step(1))
    before = await rows.snapshot()
    second = await memory.emit(lease.epoch, 1, "run:1:0", step=step(1))
    assert (first.again, second.again) == (False, True)
    assert second.outgoing == first.outgoing
    assert await rows.snapshot() == before
    assert (first.outgoing.seq, first.outgoing.id) == (1, f"{KEY}:1:1")
    assert (first.outgoing.body.id, first.outgoing.body.seq) == (f"{KEY}:1:1", 1)
    assert (await memory.read(1, after=0)).steps == [step(1)]


async def test_emit_numbers_without_gaps_beside_notify_and_commit(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.emit(lease.epoch, 1, "a")
    await memory.notify("b")
    await memory.emit(lease.epoch, 1, "a")
    await memory.notify("b")
    await memory.emit(lease.epoch, 1, "c")
    await memory.commit(commit(lease.epoch, 1, answers=2))
    wanted = ["a", "b", "c", "answer 1.1", "answer 1.2"]
    assert await rows.sent() == list(enumerate(wanted, start=1))


async def test_a_repeated_emit_after_the_commit_is_harmless(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.open(letter(2))
    await memory.begin(lease.epoch, manifest(1))
    await memory.emit(lease.epoch, 1, "a")
    await memory.commit(commit(lease.epoch, 1))
    assert (await memory.emit(lease.epoch, 1, "a")).again


async def test_emit_needs_a_turn_under_way(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    before = await rows.snapshot()
    with pytest.raises(BadRequest, match="not under way"):
        await memory.emit(lease.epoch, 1, "a", step=step(1))
    assert await rows.snapshot() == before


async def test_a_zombie_emits_nothing(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await _taken_over(taker, rows)
    before = await rows.snapshot()
    with pytest.raises(Fenced):
        await memory.emit(lease.epoch, 1, "a", step=step(1))
    assert await rows.snapshot() == before


async def test_an_emit_whose_step_is_refused_sends_nothing(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.record(lease.epoch, 1, step(1))
    with pytest.raises(BadRequest, match="another step"):
        await memory.emit(lease.epoch, 1, "a", step=step(1, "different"))
    assert await rows.sent() == []


async def test_notify_needs_no_lease_and_no_conversation(memory: Api, rows: Rows) -> None:
    assert (await memory.notify("command:1")).outgoing.seq == 1
    row = await rows.conversation()
    assert (row["owner"], row["epoch"], row["address"]) == (None, 0, "im://cli/local")


async def test_calls_report_waiting_commands(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.open(letter(9))
    await memory.begin(lease.epoch, manifest(1))
    await memory.control("stop", 5)
    await memory.control("new", 6)
    wanted = turns.Controls(stop_upto=place(5), new_at=place(6))
    assert (await memory.begin(lease.epoch, manifest(1))).controls == wanted
    assert (await memory.record(lease.epoch, 1, step(1))).controls == wanted
    assert (await memory.emit(lease.epoch, 1, "a")).controls == wanted
    done = await memory.commit(commit(lease.epoch, 1, history=[said("x")]))
    assert done.controls == wanted
