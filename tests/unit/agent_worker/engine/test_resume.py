"""Crashes at every step border: nothing finished runs twice, no model call is repeated."""

from collections import Counter
from typing import Any

import pytest

from agent_worker.engine import InMemoryJournal, RunConfig, run
from agent_worker.tool import ToolResult
from tests.unit.agent_worker.fakes import (
    Recorder,
    ScriptedModel,
    calls,
    config,
    results,
    says,
)

STEPS = 9  # 3 responses, 2 starts of writes that must not run twice, 4 results


class Crash(Exception):
    """The process is gone."""


class FragileJournal(InMemoryJournal):
    """Crashes when the given record is written: just before it is stored, or just after."""

    def __init__(self, at: int, after: bool) -> None:
        super().__init__()
        self._left = at
        self._after = after

    async def record(
        self, kind: str, iteration: int, body: dict[str, Any], index: int = 0
    ) -> int | None:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Crash
        n = await super().record(kind, iteration, body, index)
        if self._left == 0:
            raise Crash
        return n


class World:
    """A model that answers by what it sees, and tools; both count what is asked of them."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.models: list[ScriptedModel] = []

    def config(self, journal: InMemoryJournal) -> RunConfig:
        """The same run, started anew."""
        script = [
            calls(("read", {}), ("pay", {}), ("put", {})),
            calls(("pay", {})),
            says("all done"),
        ]
        done = sum(1 for kind, _, _ in journal.steps if kind == "response")
        model = ScriptedModel(*script[done:])
        self.models.append(model)
        tools = (
            self.recorder.tool("read"),
            self.recorder.tool("pay", "write"),
            self.recorder.tool("put", "write", idempotent=True),
        )
        return config(model, *tools, journal=journal)

    def asked(self) -> int:
        """How often the model was called, in all attempts."""
        return sum(len(model.requests) for model in self.models)


async def test_a_run_without_a_crash_records_each_step() -> None:
    journal = InMemoryJournal()

    await run(World().config(journal))

    assert len(journal.steps) == STEPS


@pytest.mark.parametrize("at", range(1, STEPS + 1))
async def test_after_a_step_was_stored_nothing_of_it_happens_again(at: int) -> None:
    world, journal = World(), FragileJournal(at, after=True)
    with pytest.raises(Crash):
        await run(world.config(journal))

    resumed = world.config(journal)
    answer = await run(resumed)

    assert answer.content == "all done"
    assert world.asked() == 3
    runs = Counter(line for line in world.recorder.log if line.startswith("+"))
    assert runs["+read"] == runs["+put"] == 1
    assert runs["+pay"] <= 2
    assert_complete(resumed, answer.usage.tool_calls if answer.usage else 0)


@pytest.mark.parametrize("at", range(1, STEPS + 1))
async def test_a_step_that_was_done_but_not_stored_repeats_only_what_may_repeat(at: int) -> None:
    world, journal = World(), FragileJournal(at, after=False)
    with pytest.raises(Crash):
        await run(world.config(journal))

    resumed = world.config(journal)
    answer = await run(resumed)

    assert answer.content == "all done"
    assert world.asked() <= 4
    paid = [c for c in world.recorder.contexts if c.idempotency_key in ("run-1:1:1", "run-1:2:0")]
    assert len(paid) == len({c.idempotency_key for c in paid})
    assert_complete(resumed, answer.usage.tool_calls if answer.usage else 0)


def assert_complete(resumed: RunConfig, tool_calls: int) -> None:
    """The resumed run gives the whole history, by step, and the usage of all attempts."""
    roles = [entry.message["role"] for entry in resumed.transcript]
    assert roles == ["assistant", "tool", "tool", "tool", "assistant", "tool", "assistant"]
    steps = [entry.step for entry in resumed.transcript]
    assert None not in steps
    assert len(set(steps)) == 7
    assert tool_calls == 4


async def test_a_repeated_call_has_the_same_idempotency_key() -> None:
    world = World()
    # response, result of read, start and result of pay, then the result of the idempotent write
    journal = FragileJournal(5, after=False)
    with pytest.raises(Crash):
        await run(world.config(journal))
    await run(world.config(journal))

    keys = [c.idempotency_key for c in world.recorder.contexts]
    repeated = [key for key, times in Counter(keys).items() if times > 1]
    assert repeated == ["run-1:1:2"]


@pytest.mark.parametrize(
    ("text", "told"),
    [("pay", "its outcome is unknown"), ("付款", "该调用在中断前已开始，结果未知")],
)
async def test_a_started_call_that_must_not_repeat_is_told_to_the_model(
    text: str, told: str
) -> None:
    recorder, journal = Recorder(), FragileJournal(2, after=True)
    pay = recorder.tool("pay", "write")
    with pytest.raises(Crash):
        await run(config(ScriptedModel(calls(("pay", {}))), pay, text=text, journal=journal))

    model = ScriptedModel(says("ok"))
    answer = await run(config(model, pay, text=text, journal=journal))

    (outcome,) = results(model.requests[0])
    assert told in outcome
    assert recorder.log == []
    assert answer.tools_used == ("pay",)


async def test_a_replayed_step_is_not_reported_again() -> None:
    events: list[str] = []

    async def note(event_type: str, payload: dict[str, Any]) -> None:
        events.append(event_type)

    world, journal = World(), InMemoryJournal()
    await run(world.config(journal))

    again = world.config(journal)
    again.events = note
    answer = await run(again)

    assert answer.content == "all done"
    assert events == []


async def test_a_recorded_answer_counts_after_the_deadline_too() -> None:
    world, journal = World(), InMemoryJournal()
    await run(world.config(journal))

    late = world.config(journal)
    late.deadline_ms = 1

    assert (await run(late)).content == "all done"


async def test_a_recorded_question_waits_again() -> None:
    journal = InMemoryJournal()
    ask = Recorder().tool("ask", result=ToolResult("Where?", waiting_user=True))
    await run(config(ScriptedModel(calls(("ask", {}))), ask, journal=journal))

    answer = await run(config(ScriptedModel(), ask, journal=journal))

    assert answer.waiting_user
    assert answer.content == "Where?"
