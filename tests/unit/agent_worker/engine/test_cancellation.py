"""Cut short by the user, by the deadline, or by the worker: three different ends."""

import asyncio
import time
from collections.abc import Callable

import pytest

from agent_worker.engine import Cancellation, InMemoryJournal, RunConfig, run
from agent_worker.llm.client import ChatResponse
from tests.unit.agent_worker.fakes import Recorder, ScriptedModel, calls, config, results, says


class Gate:
    """Something that hangs until it is cancelled, and says when it began to."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.ended = False

    async def hang(self) -> ChatResponse:
        """Hang."""
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True
        raise AssertionError("unreachable")


def in_model(gate: Gate) -> RunConfig:
    """Hangs in its second model call, after one finished tool call."""
    model = ScriptedModel(calls(("look", {})), gate.hang)
    return config(model, Recorder().tool("look"))


def in_write(gate: Gate) -> RunConfig:
    """Hangs in a write, after a read, before another write."""
    recorder = Recorder()
    tools = (
        recorder.tool("look"),
        recorder.tool("slow", "write", wait=gate.hang),
        recorder.tool("later", "write"),
    )
    model = ScriptedModel(calls(("look", {}), ("slow", {}), ("later", {})))
    return config(model, *tools)


def in_reads(gate: Gate) -> RunConfig:
    """Hangs in concurrent reads, more than may run at once."""
    recorder = Recorder()
    tools = recorder.tool("look"), recorder.tool("slow", wait=gate.hang)
    return config(ScriptedModel(calls(("look", {}), *[("slow", {})] * 12)), *tools)


PLACES = [in_model, in_write, in_reads]


@pytest.mark.parametrize("place", PLACES)
async def test_a_user_stop_interrupts_at_once_and_is_answered(
    place: Callable[[Gate], RunConfig],
) -> None:
    gate = Gate()
    given = place(gate)
    task = asyncio.create_task(run(given))
    await gate.reached.wait()

    given.cancellation.stop("user")
    answer = await task

    assert gate.ended
    assert answer.content == "Agent was cancelled."
    assert answer.error is not None
    assert (answer.error.code, answer.error.details) == ("cancelled", {"reason": "user"})
    assert "look" in answer.tools_used
    assert_paired(given)
    assert not task.cancelling()


@pytest.mark.parametrize("place", PLACES)
async def test_the_deadline_interrupts_and_is_answered(
    place: Callable[[Gate], RunConfig],
) -> None:
    gate = Gate()
    given = place(gate)
    given.deadline_ms = int(time.time() * 1000) + 200

    answer = await run(given)

    assert gate.ended
    assert answer.error is not None
    assert answer.error.code == "deadline"
    assert answer.content.startswith("The time for this request ran out.")
    assert_paired(given)


@pytest.mark.parametrize("place", PLACES)
async def test_the_end_of_the_worker_is_not_answered(
    place: Callable[[Gate], RunConfig],
) -> None:
    gate = Gate()
    task = asyncio.create_task(run(place(gate)))
    await gate.reached.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.ended


async def test_the_end_of_the_worker_beats_a_user_stop_at_the_same_moment() -> None:
    gate = Gate()
    given = in_model(gate)
    task = asyncio.create_task(run(given))
    await gate.reached.wait()

    given.cancellation.stop("user")
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_call_that_was_cut_off_says_so_in_the_history() -> None:
    gate = Gate()
    given = in_write(gate)
    task = asyncio.create_task(run(given))
    await gate.reached.wait()
    given.cancellation.stop()

    answer = await task

    assert answer.tools_used == ("look", "slow")
    assert results([entry.message for entry in given.transcript]) == [
        "look done",
        "Error: this call was interrupted. Whether it had any effect is unknown.",
        "Error: this call was not run.",
    ]


async def test_a_run_stopped_before_it_starts_asks_nothing() -> None:
    cancellation = Cancellation()
    cancellation.stop("interrupt")
    model = ScriptedModel()

    answer = await run(config(model, cancellation=cancellation))

    assert answer.error is not None
    assert answer.error.details == {"reason": "interrupt"}
    assert model.requests == []


async def test_a_deadline_in_the_past_asks_nothing() -> None:
    model = ScriptedModel()

    answer = await run(config(model, deadline_ms=1))

    assert answer.error is not None
    assert answer.error.code == "deadline"
    assert model.requests == []


async def test_a_stop_from_inside_the_run_counts_at_the_next_step_border() -> None:
    """The journal learns of a stop while it records, in the run's own task."""
    cancellation = Cancellation()

    class TellingJournal(InMemoryJournal):
        async def record(self, *args: object, **kwargs: object) -> int | None:
            cancellation.stop("user")
            return await super().record(*args, **kwargs)  # type: ignore[arg-type]

    recorder = Recorder()
    model = ScriptedModel(calls(("pay", {})))
    given = config(
        model,
        recorder.tool("pay", "write"),
        cancellation=cancellation,
        journal=TellingJournal(),
    )

    answer = await run(given)

    assert answer.error is not None
    assert answer.error.code == "cancelled"
    assert recorder.log == []
    await asyncio.sleep(0)  # no cancel is left over for what the task does next


async def test_a_stop_after_the_answer_changes_nothing() -> None:
    given = config(ScriptedModel(says("done")))

    answer = await run(given)
    given.cancellation.stop()

    assert answer.content == "done"
    await asyncio.sleep(0)


async def test_a_model_call_cancelled_from_within_is_a_model_failure() -> None:
    async def cancelled() -> ChatResponse:
        future: asyncio.Future[ChatResponse] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    answer = await run(config(ScriptedModel(cancelled)))

    assert answer.error is not None
    assert answer.error.code == "llm_generate"


async def test_what_the_journal_raises_ends_the_run_and_its_reads() -> None:
    gate = Gate()

    class Lost(Exception):
        """The lease is gone."""

    class FencedJournal(InMemoryJournal):
        async def record(self, kind: str, *args: object, **kwargs: object) -> int | None:
            if kind == "tool_result":
                await gate.reached.wait()
                raise Lost
            return await super().record(kind, *args, **kwargs)  # type: ignore[arg-type]

    given = in_reads(gate)
    given.journal = FencedJournal()

    with pytest.raises(Lost):
        await run(given)
    assert gate.ended


async def test_other_timeouts_pass_unchanged() -> None:
    """A journal that times out is no deadline."""

    class SlowJournal(InMemoryJournal):
        async def record(self, *args: object, **kwargs: object) -> int | None:
            raise TimeoutError("journal")

    given = config(ScriptedModel(says("ok")), journal=SlowJournal(), deadline_ms=None)

    with pytest.raises(TimeoutError, match="journal"):
        await run(given)


def assert_paired(given: RunConfig) -> None:
    """Each call of the transcript is followed by its result, and the end is what the user saw."""
    messages = [entry.message for entry in given.transcript]
    ids = [call["id"] for m in messages for call in m.get("tool_calls", ())]
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ids
    assert messages[-1]["role"] == "assistant"
    assert messages[-1]["content"]
