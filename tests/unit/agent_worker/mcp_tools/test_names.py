"""Names of MCP tools: fit for every provider, and different for different tools."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.mcp_tools.names import tool_name

SERVERS = st.from_regex(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", fullmatch=True).filter(
    lambda name: len(name) <= 24
)
TOOLS = st.text(max_size=90) | st.from_regex(r"[A-Za-z0-9_-]{0,70}", fullmatch=True)


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("search", "web__search"),
        ("get_Page-2", "web__get_Page-2"),
        ("_private", "web___private"),
        ("x" * 59, "web__" + "x" * 59),
    ],
)
def test_a_fitting_name_stays(tool: str, name: str) -> None:
    assert tool_name("web", tool) == name


@pytest.mark.parametrize("tool", ["", "查", "a b", "a/b", "x" * 60, "x" * 1000, "\ud800"])
def test_a_changed_name_begins_with_its_server(tool: str) -> None:
    assert tool_name("web", tool).startswith("web__")


@given(SERVERS, TOOLS)
def test_every_name_can_be_written_by_a_model(server: str, tool: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool_name(server, tool))


@given(st.tuples(SERVERS, TOOLS), st.tuples(SERVERS, TOOLS))
def test_no_two_tools_have_one_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (tool_name(*one) == tool_name(*other)) is (one == other)


@given(SERVERS, TOOLS)
def test_the_server_can_be_told_from_the_name(server: str, tool: str) -> None:
    assert tool_name(server, tool).partition("__")[0] == server
