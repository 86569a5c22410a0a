"""The registry: names, schemas, discovery."""

import pkgutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agent_worker import tools as shipped
from agent_worker.registry import ToolRegistry, load_tools
from agent_worker.schemas import ArgumentsCheck
from agent_worker.tool import FunctionTool, Tool
from posthouse.errors import ConfigError
from posthouse.settings import Settings
from tests.unit.agent_worker.fakes import Recorder

FIXTURE_TOOLS = str(Path(__file__).parents[2] / "fixtures" / "tools")
FILE_TOOLS = {"read", "write", "edit", "glob", "grep"}
PLUGIN = """
from agent_worker.tool import tool

@tool({name!r}, "from a file", {{"type": "object"}})
async def act(ctx, input):
    return "ok"

def tools():
    return [act]
"""


def named(name: str, schema: dict[str, Any] | None = None) -> FunctionTool:
    return Recorder().tool(name, schema=schema)


def test_tools_are_found_by_name_in_order_of_registration() -> None:
    b, a = named("b"), named("a")
    registry = ToolRegistry([b, a])

    assert registry.get("a") is a
    assert registry.get("c") is None
    assert registry.list_for("main") == [b, a]
    assert registry.schemas_for("main")[0] == {
        "type": "function",
        "function": {"name": "b", "description": "does b", "parameters": {"type": "object"}},
    }


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ConfigError, match="two tools are named 'a'"):
        ToolRegistry([named("a"), named("a")])


@pytest.mark.parametrize("name", ["", "a b", "工具", "a" * 65, "a.b"])
def test_names_fit_every_provider(name: str) -> None:
    with pytest.raises(ConfigError, match="tool name"):
        ToolRegistry([named(name)])


def test_a_bad_schema_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="tool a: bad input_schema"):
        ToolRegistry([named("a", {"type": "objekt"})])


def test_every_shipped_file_adds_tools_with_a_description() -> None:
    files = {info.name for info in pkgutil.iter_modules(shipped.__path__)}
    offered = load_tools(Settings(workspace_dir="/workspaces", shell=True)).list_for("main")

    assert {tool.function.__module__.rpartition(".")[2] for tool in made_of_functions(offered)} == (
        files
    )
    assert all(tool.description for tool in offered)


def made_of_functions(tools: list[Tool]) -> list[FunctionTool]:
    """All of them are; this tells the type checker."""
    return [tool for tool in tools if isinstance(tool, FunctionTool)]


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        ({}, set()),
        ({"shell": True}, set()),
        ({"workspace_dir": "/ws"}, FILE_TOOLS),
        ({"workspace_dir": "/ws", "shell": True}, FILE_TOOLS | {"shell"}),
    ],
)
def test_files_need_a_workspace_and_the_shell_a_switch(
    settings: dict[str, Any], offered: set[str]
) -> None:
    names = {tool.name for tool in load_tools(Settings(**settings)).list_for("main")}

    assert names & (FILE_TOOLS | {"shell"}) == offered


def test_a_source_is_asked_anew_and_its_names_come_last() -> None:
    recorder = Recorder()
    own, one, other = recorder.tool("own"), recorder.tool("one"), recorder.tool("other")
    offered = [ToolRegistry([one])]
    registry = ToolRegistry([own])
    registry.add_source(lambda: offered[0])
    before = registry.narrowed(lambda tool: True)

    offered[0] = ToolRegistry([other, recorder.tool("own")])

    assert before.list_for("main") == [own, one]
    assert registry.narrowed(lambda tool: True).list_for("main") == [own, other]
    assert registry.narrowed(lambda tool: tool is other).list_for("main") == [other]


def test_a_registry_may_leave_the_arguments_to_the_tools() -> None:
    tool = named("x", {"type": "object", "required": ["y"]})

    assert ToolRegistry([tool]).problems(tool, {})
    assert ToolRegistry([tool], checks_arguments=False).problems(tool, {}) == []


def test_a_file_of_tools_path_adds_tools() -> None:
    registry = load_tools(Settings(tools_path=(FIXTURE_TOOLS,)))

    counted = registry.get("count")
    assert counted is not None
    assert (counted.access, counted.idempotent) == ("write", False)


def test_a_file_that_takes_a_shipped_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="calculator"))

    with pytest.raises(ConfigError, match="two tools are named 'calculator'"):
        load_tools(Settings(tools_path=(str(tmp_path),)))


def test_a_file_may_ask_for_the_settings(tmp_path: Path) -> None:
    plugin = PLUGIN.format(name="mine").replace("def tools():", "def tools(settings):")
    (tmp_path / "mine.py").write_text(
        plugin.replace("    return", "    assert settings.slots == 3\n    return")
    )

    assert load_tools(Settings(tools_path=(str(tmp_path),), slots=3)).get("mine") is not None


def test_a_file_that_breaks_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1/0")

    with pytest.raises(ConfigError, match=r"broken\.py"):
        load_tools(Settings(tools_path=(str(tmp_path),)))


plain = st.sampled_from(["string", "integer", "number", "boolean", "null", "array"])
schemas = st.builds(
    lambda properties, required, closed: {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": required,
        **({"additionalProperties": False} if closed else {}),
    },
    st.dictionaries(st.sampled_from("abc"), plain),
    st.lists(st.sampled_from("abc"), unique=True, max_size=2),
    st.booleans(),
)
values = st.one_of(
    st.text(max_size=3), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none()
)


@example({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": True})
@example({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1.0})
@example({"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}, {"a": "b"})
@given(schemas, st.dictionaries(st.sampled_from("abcd"), values))
def test_the_quick_check_agrees_with_json_schema(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    fits = Draft202012Validator(schema).is_valid(arguments)

    assert (ArgumentsCheck(schema).problems(arguments) == []) == fits
