"""Results of MCP tools as text."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import CallToolResult

from agent_worker.mcp_tools.results import shown
from agent_worker.tool import ToolError


def content(*blocks: dict[str, Any], **more: Any) -> str:
    """What stands between the fences."""
    result = CallToolResult.model_validate({"content": list(blocks), **more})
    return "\n".join(shown(result, "the MCP server s").split("\n")[2:-1])


def resource(**keys: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "file:///a", **keys}}


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "text", "text": "驿站"}, "驿站"),
        (
            {"type": "audio", "data": "MTIz", "mimeType": "audio/ogg"},
            "[audio, audio/ogg, 3 bytes]",
        ),
        (
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            "[resource file:///a, type unknown]",
        ),
        (resource(text="hi"), "[resource file:///a]\nhi"),
        (resource(blob="MTI="), "[resource file:///a, type unknown, 2 bytes]"),
    ],
)
def test_every_kind_of_content(block: dict[str, Any], text: str) -> None:
    assert content(block) == text


def test_structured_content_counts_where_there_is_no_other() -> None:
    structured = {"structuredContent": {"城": ["西安"]}}
    assert content(**structured) == '{"城": ["西安"]}'
    assert content({"type": "text", "text": "as text"}, **structured) == "as text"


def test_nothing_is_said_to_be_nothing() -> None:
    assert content() == "(no output)"


def test_an_error_is_raised_with_its_text() -> None:
    with pytest.raises(ToolError, match="no such page"):
        content({"type": "text", "text": "no such page"}, isError=True)


@given(st.binary(max_size=50))
def test_sizes_are_those_of_the_data(data: bytes) -> None:
    image = {
        "type": "image",
        "mimeType": "image/png",
        "data": base64.b64encode(data).decode(),
    }
    assert content(image) == f"[image, image/png, {len(data)} bytes]"
