"""Sub-agent calls (R13-R15)."""

import pytest

from posthouse.calls import CallOpenResult
from posthouse.errors import BadRequest, Fenced
from posthouse.turns import RequestedCall
from tests.integration.memory.api import Api
from tests.integration.memory.requests import KEY, letter, manifest, outbound, step
from tests.integration.memory.rows import Rows


async def _requested(memory: Api, *call_ids: str) -> int:
    """A turn has asked for these calls; its epoch."""
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.record(lease.epoch, 1, step(1), calls=_calls(*call_ids))
    return lease.epoch


def _calls(*call_ids: str, request_hash: str = "h") -> list[RequestedCall]:
    return [RequestedCall(call_id=c, request_hash=request_hash) for c in call_ids]


async def test_a_recorded_call_can_be_opened(memory: Api, rows: Rows) -> None:
    await _requested(memory, "c")
    assert await memory.call_open("c") == CallOpenResult(state="opened", epoch=1)
    row = await rows.call("c")
    assert (row["key"], row["seq"], row["parent_run"], row["owner"]) == (KEY, 1, "", "w1")


async def test_a_call_without_a_record_is_refused(memory: Api) -> None:
    with pytest.raises(BadRequest, match="no such call"):
        await memory.call_open("c")


async def test_a_call_without_a_record_may_be_anonymous(memory: Api, rows: Rows) -> None:
    assert (await memory.call_open("c", anonymous=True)).state == "opened"
    assert (await rows.call("c"))["key"] == ""


async def test_another_request_under_the_same_id_is_refused(memory: Api) -> None:
    await _requested(memory, "c")
    for anonymous in (False, True):
        with pytest.raises(BadRequest, match="another request"):
            await memory.call_open("c", request_hash="other", anonymous=anonymous)


async def test_a_repeat_joins_while_the_owner_lives(memory: Api, rows: Rows) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    before = await rows.snapshot()
    assert await memory.call_open("c", worker="w2") == CallOpenResult(state="joined", epoch=1)
    assert await rows.snapshot() == before


async def test_a_finished_call_answers_from_its_record(memory: Api) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_finish("c", 1, "found it")
    again = await memory.call_open("c", worker="w2")
    assert (again.state, again.result) == ("finished", outbound("found it"))


async def test_a_dead_call_resumes_with_its_steps(memory: Api, taker: Api, rows: Rows) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_record("c", 1, step(0, "first"))
    await memory.call_record("c", 1, step(1, "second"))
    await rows.expire_call("c")
    resumed = await taker.call_open("c", worker="w2")
    assert (resumed.state, resumed.epoch) == ("opened", 2)
    assert [s.body["message"]["content"] for s in resumed.steps] == ["first", "second"]
    assert {s.run_id for s in resumed.steps} == {"c"}


async def test_steps_of_a_call_do_not_mix_with_its_turn(memory: Api) -> None:
    epoch = await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_record("c", 1, step(1, "of the call"))
    assert (await memory.begin(epoch, manifest(1))).steps == [step(1)]
    found = await memory.read(1, run_id="c")
    assert [s.body["message"]["content"] for s in found.steps] == ["of the call"]


async def test_a_repeated_step_is_harmless_another_one_refused(memory: Api, rows: Rows) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_record("c", 1, step(0))
    before = await rows.snapshot()
    await memory.call_record("c", 1, step(0))
    with pytest.raises(BadRequest, match="another step"):
        await memory.call_record("c", 1, step(0, "different"))
    assert await rows.snapshot() == before


async def test_a_call_may_call(memory: Api, rows: Rows) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_record("c", 1, step(0), calls=_calls("d"))
    assert (await memory.call_open("d")).state == "opened"
    row = await rows.call("d")
    assert (row["key"], row["seq"], row["parent_run"]) == (KEY, 1, "c")


async def test_a_zombie_call_changes_nothing(memory: Api, taker: Api, rows: Rows) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await rows.expire_call("c")
    await taker.call_open("c", worker="w2")
    before = await rows.snapshot()
    for late in (
        memory.call_record("c", 1, step(0)),
        memory.call_finish("c", 1),
        memory.call_release("c", 1),
    ):
        with pytest.raises(Fenced):
            await late
    assert await rows.snapshot() == before


async def test_a_repeated_finish_is_harmless(memory: Api, rows: Rows) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_finish("c", 1, "one")
    before = await rows.snapshot()
    await memory.call_finish("c", 1, "one")
    assert await rows.snapshot() == before


async def test_unknown_calls_are_refused_and_their_cancel_ignored(memory: Api) -> None:
    for late in (
        memory.call_record("x", 1, step(0)),
        memory.call_finish("x", 1),
        memory.call_release("x", 1),
    ):
        with pytest.raises(BadRequest, match="no such call"):
            await late
    await memory.call_cancel("x", 1)


async def test_a_released_call_is_resumed_at_once(memory: Api, rows: Rows) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_release("c", 1)
    before = await rows.snapshot()
    await memory.call_release("c", 1)
    with pytest.raises(Fenced):
        await memory.call_record("c", 1, step(0))
    assert (await memory.beat(calls={"c": 1})).lost_calls == ["c"]
    assert await rows.snapshot() == before
    assert (await memory.call_open("c", worker="w2")).epoch == 2


async def test_the_owner_of_a_cancelled_call_is_told(memory: Api) -> None:
    epoch = await _requested(memory, "c", "d")
    await memory.call_open("c")
    await memory.call_open("d")
    assert (await memory.beat(calls={"c": 1, "d": 1})).cancels == []
    await memory.call_cancel("c", epoch)
    told = await memory.beat(calls={"c": 1, "d": 1})
    assert (told.cancels, told.lost_calls) == (["c"], [])


async def test_the_first_reason_of_a_cancel_stays(memory: Api, rows: Rows) -> None:
    epoch = await _requested(memory, "c")
    await memory.call_cancel("c", epoch, "deadline")
    await memory.call_cancel("c", epoch, "stop")
    assert (await rows.call("c"))["cancel_reason"] == "deadline"


async def test_a_finished_call_is_not_cancelled(memory: Api, rows: Rows) -> None:
    epoch = await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_finish("c", 1)
    await memory.call_cancel("c", epoch)
    assert (await rows.call("c"))["cancel_reason"] is None


@pytest.mark.parametrize("state", ["opened", "joined"])
async def test_a_zombie_caller_cannot_cancel_what_its_successor_called(
    memory: Api, taker: Api, rows: Rows, state: str
) -> None:
    first = await _requested(memory, "c")
    if state == "joined":
        await memory.call_open("c")
    await rows.expire()
    second = (await taker.lease(letter(1), worker="w2")).epoch
    assert (await memory.call_open("c", worker="w3")).state == state
    await memory.call_cancel("c", first)
    assert (await rows.call("c"))["cancel_reason"] is None
    await memory.call_cancel("c", second)
    assert (await rows.call("c"))["cancel_reason"] == "stop"


async def test_the_caller_of_a_nested_call_is_the_call_above(
    memory: Api, taker: Api, rows: Rows
) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await memory.call_record("c", 1, step(0), calls=_calls("d"))
    await rows.expire_call("c")
    await taker.call_open("c", worker="w2")
    await memory.call_open("d")
    await memory.call_cancel("d", 1)
    assert (await rows.call("d"))["cancel_reason"] is None
    await memory.call_cancel("d", 2)
    assert (await rows.call("d"))["cancel_reason"] == "stop"


async def test_heartbeats_renew_calls_and_tell_lost_ones(
    memory: Api, taker: Api, rows: Rows
) -> None:
    await _requested(memory, "c")
    await memory.call_open("c")
    await rows.expire_call("c")
    assert (await memory.beat(calls={"c": 1})).lost_calls == []
    assert (await taker.call_open("c", worker="w2")).state == "joined"
    assert (await memory.beat("w2", calls={"c": 1})).lost_calls == ["c"]
    assert (await memory.beat(calls={"c": 2, "x": 1})).lost_calls == ["c", "x"]
    await memory.call_finish("c", 1)
    assert (await memory.beat(calls={"c": 1})).lost_calls == ["c"]
