"""Tool ``grep``: searches files of the conversation for a regular expression."""

import json
import sys
from typing import Any

from agent_worker.tool import FunctionTool, Tool, ToolContext, ToolError, ToolResult, tool
from agent_worker.workspace import files, processes, search
from agent_worker.workspace.processes import Finished
from posthouse.settings import Settings

TIME_LIMIT_S = 20.0
MAX_CONTEXT = 20
_SEARCH = (sys.executable, "-I", "-X", "utf8", "-m", search.__name__)


def grep_tool(time_limit_s: float = TIME_LIMIT_S) -> FunctionTool:
    """The tool; a search that takes longer is killed."""

    @tool(
        "grep",
        "Searches text files of the working directory, line by line, for a regular expression.",
        {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "regular expression of Python"},
                "path": {"type": "string", "description": "file or folder; default: everything"},
                "glob": {
                    "type": "string",
                    "description": "only files of this pattern, such as *.md",
                },
                "ignore_case": {"type": "boolean", "description": "default false"},
                "context": {
                    "type": "integer",
                    "description": "lines to show around each match",
                    "minimum": 0,
                    "maximum": MAX_CONTEXT,
                },
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
        access="read",
    )
    async def grep(ctx: ToolContext, input: dict[str, Any]) -> ToolResult:
        """Search them, in a process that can be killed."""
        request = json.dumps({"root": str(files.of(ctx).root), **input}).encode()
        finished = await processes.run(_SEARCH, {}, time_limit_s, request)
        return _result(finished, time_limit_s)

    return grep


def _result(finished: Finished, time_limit_s: float) -> ToolResult:
    found = finished.output.rstrip("\n")
    if finished.code is None:
        late = (
            f"not done after {time_limit_s:g} s. Make the path narrower or the pattern simpler: "
            "nested repetitions such as (a+)+ take for ever."
        )
        return ToolResult(f"{late} Found so far:\n{found}" if found else late, ok=False)
    if finished.code == search.REFUSED:
        raise ToolError(found)
    if finished.code:
        raise ToolError(f"the search ended with code {finished.code}; make it narrower.")
    return ToolResult(found)


def tools(settings: Settings) -> list[Tool]:
    """What this file adds, where conversations have files."""
    return [grep_tool()] if settings.workspace_dir else []
