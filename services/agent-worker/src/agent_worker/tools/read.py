"""Tool ``read``: lines of a text file of the conversation."""

import asyncio
from typing import Any

from agent_worker.tool import Tool, ToolContext, ToolError, tool
from agent_worker.workspace import files, text
from agent_worker.workspace.files import Workspace
from posthouse.settings import Settings

MAX_LINES = 2000
MAX_LINE = 2000


@tool(
    "read",
    "Reads a text file of the working directory, with line numbers.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "such as notes/todo.md"},
            "offset": {"type": "integer", "description": "first line, from 1", "minimum": 1},
            "limit": {"type": "integer", "description": "how many lines", "minimum": 1},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    access="read",
)
async def read(ctx: ToolContext, input: dict[str, Any]) -> str:
    """Read them."""
    offset, limit = input.get("offset", 1), input.get("limit", MAX_LINES)
    return await asyncio.to_thread(_read, files.of(ctx), input["path"], offset, limit)


def _read(workspace: Workspace, path: str, offset: int, limit: int) -> str:
    data = workspace.contents(workspace.parse(path), text.MAX_BYTES)
    lines = text.lines_of(text.decode(data, path).content)
    if not lines:
        return "(empty file)"
    if offset > len(lines):
        raise ToolError(f"{path} has {len(lines):,} lines only.")
    return _numbered(lines, offset, min(limit, MAX_LINES))


def _numbered(lines: list[str], offset: int, limit: int) -> str:
    shown: list[str] = []
    characters = 0
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        entry = f"{number:6}\t{_cut(line)}"
        characters += len(entry) + 1
        if characters > text.RESULT_CHARACTERS:
            break
        shown.append(entry)
    last = offset - 1 + len(shown)
    if last < len(lines):
        shown.append(f"[line {last} of {len(lines):,}; go on with offset {last + 1}]")
    return "\n".join(shown)


def _cut(line: str) -> str:
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]}[… {len(line) - MAX_LINE:,} more characters]"


def tools(settings: Settings) -> list[Tool]:
    """What this file adds, where conversations have files."""
    return [read] if settings.workspace_dir else []
