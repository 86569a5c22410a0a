"""Tool ``glob``: finds files of the conversation by name."""

import asyncio
from typing import Any

from agent_worker.tool import Tool, ToolContext, tool
from agent_worker.workspace import files
from agent_worker.workspace.files import Workspace
from agent_worker.workspace.patterns import PathPattern
from posthouse.settings import Settings

MAX_SHOWN = 200


@tool(
    "glob",
    "Finds files in the working directory by pattern, newest first: *.md anywhere, src/**/*.py "
    "below src, * for all.",
    {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "with * ? [a-z] ** {a,b}"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
    access="read",
)
async def glob(ctx: ToolContext, input: dict[str, Any]) -> str:
    """Find them."""
    return await asyncio.to_thread(_glob, files.of(ctx), input["pattern"])


def _glob(workspace: Workspace, pattern: str) -> str:
    wanted = PathPattern(pattern.removeprefix(f"{workspace.root}/"))
    found = [file for file in workspace.walk() if wanted.matches(file.parts)]
    if not found:
        return "No file matches."
    found.sort(key=lambda file: (-file.changed, file.parts))
    shown = [file.path for file in found[:MAX_SHOWN]]
    if len(found) > MAX_SHOWN:
        shown.append(f"[{len(found) - MAX_SHOWN:,} more; narrow the pattern]")
    return "\n".join(shown)


def tools(settings: Settings) -> list[Tool]:
    """What this file adds, where conversations have files."""
    return [glob] if settings.workspace_dir else []
