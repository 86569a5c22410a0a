"""Tool calls: order, isolation of failures, what the model is told."""

import asyncio
from typing import Any

import pytest

from agent_worker.engine import run
from agent_worker.tool import FunctionTool, ToolError, ToolResult
from tests.unit.agent_worker.fakes import Recorder, ScriptedModel, calls, config, results, says

NAMED: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "times": {"type": "integer", "minimum": 1}},
    "required": ["name"],
    "additionalProperties": False,
}


async def outcomes(model: ScriptedModel, *tools: FunctionTool, **more: Any) -> list[str]:
    """The tool results that the model saw in its last request."""
    await run(config(model, *tools, **more))
    return results(model.requests[-1])


async def test_reads_run_together_then_writes_one_by_one_results_in_call_order() -> None:
    recorder = Recorder()
    tools = [
        recorder.tool("w1", "write"),
        recorder.tool("r1"),
        recorder.tool("w2", "write"),
        recorder.tool("r2"),
    ]
    model = ScriptedModel(calls(("w1", {}), ("r1", {}), ("w2", {}), ("r2", {})), says("ok"))

    found = await outcomes(model, *tools)

    assert recorder.log == ["+r1", "+r2", "-r1", "-r2", "+w1", "-w1", "+w2", "-w2"]
    assert found == ["w1 done", "r1 done", "w2 done", "r2 done"]


async def test_at_most_eight_reads_at_once() -> None:
    running = most = 0
    eight = asyncio.Event()

    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 8:
            eight.set()
        await eight.wait()
        await asyncio.sleep(0)
        running -= 1

    model = ScriptedModel(calls(*[("look", {})] * 20), says("ok"))

    found = await outcomes(model, Recorder().tool("look", wait=count))

    assert most == 8
    assert len(found) == 20


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ToolError("name a city."), "Error: name a city."),
        (KeyError("city"), "Error: fail failed: KeyError: 'city'"),
        (TimeoutError("upstream"), "Error: fail failed: TimeoutError: upstream"),
    ],
)
async def test_a_failure_is_told_and_cancels_no_sibling(failure: Exception, told: str) -> None:
    recorder = Recorder()
    tools = (
        recorder.tool("fail", result=failure),
        recorder.tool("look"),
        recorder.tool("w", "write"),
    )
    model = ScriptedModel(calls(("fail", {}), ("look", {}), ("w", {})), says("ok"))

    assert await outcomes(model, *tools) == [told, "look done", "w done"]


async def test_a_tool_that_was_cancelled_from_within_is_a_failed_tool() -> None:
    async def cancelled() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    recorder = Recorder()
    model = ScriptedModel(calls(("odd", {}), ("look", {})), says("ok"))

    found = await outcomes(model, recorder.tool("odd", wait=cancelled), recorder.tool("look"))

    assert found == ["Error: odd was interrupted from within.", "look done"]


async def test_a_tool_has_its_own_time_limit() -> None:
    never = asyncio.Event()
    slow = Recorder().tool("slow", wait=never.wait, timeout_s=0.01)

    found = await outcomes(ScriptedModel(calls(("slow", {})), says("ok")), slow)

    assert found == ["Error: slow did not finish within 0.01 s. Ask for less at once."]


async def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    recorder = Recorder()
    model = ScriptedModel(calls(("lok", {}), ("look", {})), says("ok"))

    found = await outcomes(model, recorder.tool("look"), recorder.tool("write"))

    assert found == ["Error: there is no tool lok. Available: look, write.", "look done"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, "'name' is a required property"),
        ({"name": 3}, "name: 3 is not of type 'string'"),
        ({"name": "a", "times": 0}, "times: 0 is less than the minimum of 1"),
        ({"name": "a", "times": True}, "times: True is not of type 'integer'"),
        ({"name": "a", "what": 1}, "'what' was unexpected"),
        ('{"name": "a', "not valid JSON"),
        ("[1, 2]", "must be one JSON object, not list"),
        ('"text"', "must be one JSON object, not str"),
    ],
)
async def test_arguments_that_do_not_fit_never_reach_the_tool(
    arguments: dict[str, Any] | str, part: str
) -> None:
    recorder = Recorder()
    model = ScriptedModel(calls(("look", arguments)), says("ok"))
    given = config(model, recorder.tool("look", schema=NAMED))

    answer = await run(given)

    (told,) = results(model.requests[-1])
    assert told.startswith("Error: ")
    assert part in told
    assert recorder.log == []
    assert answer.tools_used == ()


async def test_calls_of_a_cut_off_answer_are_not_run() -> None:
    recorder = Recorder()
    model = ScriptedModel(calls(("look", {"name": "whole"}), finish="length"), says("ok"))

    (told,) = await outcomes(model, recorder.tool("look"))

    assert recorder.log == []
    assert "cut off" in told


async def test_calls_are_run_even_if_the_answer_says_stop() -> None:
    model = ScriptedModel(calls(("look", {}), finish="stop"), says("ok"))

    assert await outcomes(model, Recorder().tool("look")) == ["look done"]


async def test_a_tool_may_report_failure_by_its_result() -> None:
    bad = Recorder().tool("bad", result=ToolResult("no such file", ok=False))

    found = await outcomes(ScriptedModel(calls(("bad", {})), says("ok")), bad)

    assert found == ["Error: no such file"]


async def test_a_long_result_is_cut_in_the_middle() -> None:
    long = Recorder().tool("long", result="a" * 700 + "b" * 9000 + "c" * 300)

    (found,) = await outcomes(
        ScriptedModel(calls(("long", {})), says("ok")), long, result_limit=1000
    )

    assert len(found) <= 1000
    assert found.startswith("a" * 600)
    assert found.endswith("c" * 250)
    assert "of 10000 characters left out" in found


async def test_a_result_without_words_says_so() -> None:
    silent = Recorder().tool("silent", result=ToolResult(""))

    found = await outcomes(ScriptedModel(calls(("silent", {})), says("ok")), silent)

    assert found == ["(no output)"]
