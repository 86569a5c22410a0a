"""Tool ``ask_user``: puts a question to the user and ends the turn until they answer."""

from typing import Any

from agent_worker.tool import Tool, ToolContext, ToolError, ToolResult, tool


@tool(
    "ask_user",
    "Ask the user a question that you cannot go on without. The turn ends; their next message "
    "is the answer.",
    {
        "type": "object",
        "properties": {"question": {"type": "string", "description": "the question, in full"}},
        "required": ["question"],
        "additionalProperties": False,
    },
    access="read",
    timeout_s=5.0,
)
async def ask_user(ctx: ToolContext, input: dict[str, Any]) -> ToolResult:
    """Hand the question on."""
    question = input["question"].strip()
    if not question:
        raise ToolError("the question is empty.")
    return ToolResult(question, waiting_user=True)


def tools() -> list[Tool]:
    """What this file adds."""
    return [ask_user]
