"""The shipped tools through the engine, as a model uses them."""

import re
from datetime import UTC, datetime

import pytest

from agent_worker.engine import RunConfig, run
from agent_worker.registry import ToolRegistry, load_tools
from posthouse.settings import Settings
from tests.unit.agent_worker.fakes import ScriptedModel, calls, results, says


@pytest.fixture(scope="module")
def registry() -> ToolRegistry:
    """What a worker loads."""
    return load_tools(Settings())


async def result(registry: ToolRegistry, tool: str, arguments: dict[str, object]) -> str:
    model = ScriptedModel(calls((tool, arguments)), says("ok"))
    await run(
        RunConfig(
            llm_client=model,
            model="",
            tools=registry,
            messages=[{"role": "user", "content": "go"}],
        )
    )
    (found,) = results(model.requests[-1])
    return found


async def test_calculator(registry: ToolRegistry) -> None:
    assert await result(registry, "calculator", {"expression": "17*23+4"}) == "395"
    assert await result(registry, "calculator", {"expression": "1/0"}) == "Error: division by zero."


async def test_current_time_is_utc_by_default(registry: ToolRegistry) -> None:
    before = datetime.now(UTC).replace(microsecond=0)

    found = await result(registry, "current_time", {})

    shown = re.match(r"(\S+ \S+) (\w+day), UTC$", found)
    assert shown is not None
    read = datetime.strptime(shown[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    assert before <= read <= datetime.now(UTC)
    assert shown[2] == read.strftime("%A")


async def test_current_time_in_a_zone(registry: ToolRegistry) -> None:
    assert "Asia/Shanghai (UTC+0800)" in await result(
        registry, "current_time", {"zone": "Asia/Shanghai"}
    )


@pytest.mark.parametrize("zone", ["Mars/Base", "../etc/passwd", "/etc/localtime", "a" * 300])
async def test_a_bad_zone_is_told(registry: ToolRegistry, zone: str) -> None:
    found = await result(registry, "current_time", {"zone": zone})

    assert found.startswith("Error: there is no time zone")
    assert "Asia/Shanghai" in found


async def test_ask_user_ends_the_turn_with_its_question(registry: ToolRegistry) -> None:
    answer = await run(
        RunConfig(
            llm_client=ScriptedModel(calls(("ask_user", {"question": "你在哪个城市？"}))),
            model="",
            tools=registry,
            messages=[{"role": "user", "content": "天气"}],
        )
    )

    assert answer.waiting_user
    assert answer.content == "你在哪个城市？"


async def test_an_empty_question_is_refused(registry: ToolRegistry) -> None:
    assert await result(registry, "ask_user", {"question": " "}) == "Error: the question is empty."
