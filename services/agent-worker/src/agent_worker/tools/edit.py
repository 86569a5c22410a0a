"""Tool ``edit``: replaces a passage in a text file of the conversation."""

import asyncio
from typing import Any

from agent_worker.tool import FunctionTool, Tool, ToolContext, ToolError, tool
from agent_worker.workspace import files, text
from agent_worker.workspace.files import Workspace
from posthouse.settings import Settings

SHOWN_LINES = 10


def edit_tool(limit: int) -> FunctionTool:
    """The tool, for conversations that may have ``limit`` bytes of files."""

    @tool(
        "edit",
        "Replaces a passage of a text file in the working directory. The old passage must stand "
        "there exactly as given, and only once, unless replace_all is true.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "such as notes/todo.md"},
                "old": {"type": "string", "description": "without the line numbers of read"},
                "new": {"type": "string", "description": "what comes in its place"},
                "replace_all": {"type": "boolean", "description": "default false"},
            },
            "required": ["path", "old", "new"],
            "additionalProperties": False,
        },
    )
    async def edit(ctx: ToolContext, input: dict[str, Any]) -> str:
        """Replace it."""
        change = (input["old"], input["new"], input.get("replace_all", False))
        return await asyncio.to_thread(_edit, files.of(ctx), input["path"], change, limit)

    return edit


def _edit(workspace: Workspace, path: str, change: tuple[str, str, bool], limit: int) -> str:
    parts = workspace.parse(path)
    before = text.decode(workspace.contents(parts, text.MAX_BYTES), path)
    after, lines = replaced(before.content, *change)
    workspace.replace(parts, before.encode(after), limit)
    return f"Replaced in {path}, {_at(lines)}."


def replaced(content: str, old: str, new: str, replace_all: bool) -> tuple[str, list[int]]:
    """The new content, and the lines where passages began. Raises ToolError if it is not clear.

    In a file with Windows line ends, those of ``old`` and ``new`` are taken for such.
    """
    if not old:
        raise ToolError("old is empty. To create a file, use write.")
    if old == new:
        raise ToolError("old and new are the same, so nothing would change.")
    if "\r\n" in content and old not in content:
        old, new = _windows(old), _windows(new)
    lines = _lines_of(content, old)
    if not lines:
        raise ToolError(
            "old does not stand in the file. Read it, and copy the passage as it is, with all "
            "spaces and without line numbers."
        )
    if len(lines) > 1 and not replace_all:
        raise ToolError(
            f"old stands there {len(lines)} times, {_at(lines)}. Give more of what is around it, "
            "or set replace_all."
        )
    return content.replace(old, new), lines


def _windows(passage: str) -> str:
    return passage.replace("\r\n", "\n").replace("\n", "\r\n")


def _lines_of(content: str, passage: str) -> list[int]:
    found = []
    line, counted = 1, 0
    at = content.find(passage)
    while at >= 0:
        line += content.count("\n", counted, at)
        counted = at
        found.append(line)
        at = content.find(passage, at + len(passage))
    return found


def _at(lines: list[int]) -> str:
    shown = ", ".join(map(str, lines[:SHOWN_LINES]))
    more = f" and {len(lines) - SHOWN_LINES} more" if len(lines) > SHOWN_LINES else ""
    return f"{'line' if len(lines) == 1 else 'lines'} {shown}{more}"


def tools(settings: Settings) -> list[Tool]:
    """What this file adds, where conversations have files."""
    return [edit_tool(settings.workspace_limit_mb << 20)] if settings.workspace_dir else []
