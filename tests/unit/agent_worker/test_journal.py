"""The journal of a turn: steps in order, nothing recorded twice."""

import asyncio
from typing import cast

import pytest

from agent_worker.ports import TurnApi
from agent_worker.turns.journal import HandOver, TurnJournal
from posthouse.errors import Unavailable
from posthouse.turns import Ack, Controls, Lease, Position, RecordRequest, Step
from tests.unit.agent_worker.ports import FakeTurnApi

PLACE = Position(generation=1, seq=1)
LEASE = Lease(key="im.cli.local", address="im://cli/local", tenant_id=1, epoch=4, checked=PLACE)
STEPS = [
    Step(n=1, kind="response", body={"iteration": 1, "index": 0, "message": "a"}),
    Step(n=2, kind="tool_result", body={"iteration": 1, "index": 1, "message": "b"}),
]


class Memory:
    """Records steps, once it is told to answer."""

    def __init__(self) -> None:
        self.requests: list[RecordRequest] = []
        self.controls: list[Controls] = []
        self.answer = Ack()
        self.error: Exception | None = None
        self.stopping = asyncio.Event()

    async def record(self, request: RecordRequest) -> Ack:
        """Store a step."""
        # Whoever else wants to record gets a chance to overtake.
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.requests.append(request)
        return self.answer

    def journal(self, *steps: Step) -> TurnJournal:
        """A journal over it, with what earlier attempts recorded."""
        return TurnJournal(
            cast(TurnApi, FakeTurnApi(record=self.record)),
            LEASE,
            PLACE,
            list(steps),
            self.stopping,
            lambda: 7,
            self.controls.append,
        )


async def test_steps_count_from_one_behind_the_manifest() -> None:
    memory = Memory()
    journal = memory.journal()
    assert await journal.record("response", 1, {"message": "a"}) == 1
    assert await journal.record("tool_result", 1, {"message": "b"}, index=1) == 2
    assert [request.step for request in memory.requests] == STEPS
    first = memory.requests[0]
    assert (first.key, first.epoch, first.turn, first.event_seq) == ("im.cli.local", 4, PLACE, 7)


async def test_a_resumed_turn_finds_its_steps_and_counts_on() -> None:
    memory = Memory()
    journal = memory.journal(*STEPS)
    found = journal.recorded("tool_result", 1, 1)
    assert found is not None
    assert (found.n, found.body["message"]) == (2, "b")
    assert journal.recorded("tool_result", 1, 0) is None
    assert journal.recorded("response", 2) is None
    assert await journal.record("response", 2, {}) == 3


async def test_concurrent_steps_arrive_in_order() -> None:
    memory = Memory()
    journal = memory.journal()
    numbers = await asyncio.gather(*(journal.record("tool_result", 1, {}, n) for n in range(8)))
    assert numbers == list(range(1, 9))
    assert [request.step.n for request in memory.requests] == numbers
    assert [request.step.body["index"] for request in memory.requests] == list(range(8))


async def test_a_step_that_was_not_stored_leaves_no_gap() -> None:
    memory = Memory()
    journal = memory.journal()
    memory.error = Unavailable("away")
    with pytest.raises(Unavailable):
        await journal.record("response", 1, {})
    memory.error = None
    assert await journal.record("response", 1, {}) == 1


async def test_commands_come_with_the_answer() -> None:
    memory = Memory()
    memory.answer = Ack(controls=Controls(stop_upto=PLACE))
    await memory.journal().record("response", 1, {})
    assert memory.controls == [Controls(stop_upto=PLACE)]


async def test_a_stopping_worker_hands_over_at_a_stored_step() -> None:
    memory = Memory()
    memory.stopping.set()
    with pytest.raises(HandOver):
        await memory.journal().record("response", 1, {"message": "a"})
    assert [request.step for request in memory.requests] == STEPS[:1]
