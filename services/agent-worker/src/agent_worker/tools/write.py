"""Tool ``write``: creates or replaces a file of the conversation."""

import asyncio
from typing import Any

from agent_worker.tool import FunctionTool, Tool, ToolContext, tool
from agent_worker.workspace import files, text
from agent_worker.workspace.files import Workspace
from posthouse.settings import Settings


def write_tool(limit: int) -> FunctionTool:
    """The tool, for conversations that may have ``limit`` bytes of files."""

    # The same content once more changes nothing.
    @tool(
        "write",
        "Creates a file in the working directory, or replaces all of it; makes its folders too.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "such as notes/todo.md"},
                "content": {"type": "string", "description": "the whole file"},
            },
            "required": ["path", "content"],
            "additionalProperties": False,
        },
        idempotent=True,
    )
    async def write(ctx: ToolContext, input: dict[str, Any]) -> str:
        """Write it."""
        return await asyncio.to_thread(
            _write, files.of(ctx), input["path"], input["content"], limit
        )

    return write


def _write(workspace: Workspace, path: str, content: str, limit: int) -> str:
    data = content.encode()
    created = workspace.replace(workspace.parse(path), data, limit)
    done = "Created" if created else "Replaced"
    return f"{done} {path}: {len(data):,} bytes, lines: {len(text.lines_of(content)):,}."


def tools(settings: Settings) -> list[Tool]:
    """What this file adds, where conversations have files."""
    return [write_tool(settings.workspace_limit_mb << 20)] if settings.workspace_dir else []
