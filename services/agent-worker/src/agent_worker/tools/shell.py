"""Tool ``shell``: runs a command in a sandbox; off unless the configuration says ``shell: true``.

There is no way to run it without the sandbox: where that cannot be made, the call fails.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_worker.tool import FunctionTool, Tool, ToolContext, ToolError, ToolResult, tool
from agent_worker.workspace import files, processes, sandbox
from agent_worker.workspace.files import Workspace
from agent_worker.workspace.processes import Finished
from posthouse.settings import Settings

DEFAULT_TIME_LIMIT_S = 60
MAX_TIME_LIMIT_S = 600
# Time to kill and to count files, beyond the command's own.
SLACK_S = 30
CHECK_S = 2.0


def shell_tool(limit: int, program: str = sandbox.PROGRAM) -> FunctionTool:
    """The tool, for conversations that may have ``limit`` bytes of files.

    ``program`` is bubblewrap.
    """

    @tool(
        "shell",
        "Runs a shell command in the working directory, in a sandbox without network. Files "
        "outside of the working directory are read-only or not there.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "for sh"},
                "timeout_s": {
                    "type": "integer",
                    "description": f"default {DEFAULT_TIME_LIMIT_S}",
                    "minimum": 1,
                    "maximum": MAX_TIME_LIMIT_S,
                },
            },
            "required": ["command"],
            "additionalProperties": False,
        },
        timeout_s=MAX_TIME_LIMIT_S + SLACK_S,
    )
    async def shell(ctx: ToolContext, input: dict[str, Any]) -> ToolResult:
        """Run it."""
        time_limit_s = input.get("timeout_s", DEFAULT_TIME_LIMIT_S)
        if "\0" in input["command"]:
            raise ToolError("the command holds a NUL character; leave it out.")
        workspace = files.of(ctx)
        await asyncio.to_thread(workspace.create)
        arguments = sandbox.arguments(input["command"], workspace.root, limit, time_limit_s)
        return await _run([program, *arguments], workspace, time_limit_s, limit)

    return shell


async def _run(
    command: Sequence[str], workspace: Workspace, time_limit_s: int, limit: int
) -> ToolResult:
    run = processes.run(command, sandbox.environment(workspace.root), time_limit_s)
    try:
        finished = await _within(workspace, limit, asyncio.create_task(run))
    except FileNotFoundError as error:
        raise _no_sandbox("bubblewrap (bwrap) is not installed") from error
    except OSError as error:
        raise _no_sandbox(error.strerror or str(error)) from error
    output = finished.output
    if finished.code is None:
        return ToolResult(_noted(output, f"[killed after {time_limit_s} s]"), ok=False)
    if finished.code and output.startswith(f"{sandbox.PROGRAM}: "):
        raise _no_sandbox(output.splitlines()[0])
    if finished.code:
        return ToolResult(_noted(output, f"[exit code {finished.code}]"), ok=False)
    return ToolResult(output)


def _noted(output: str, note: str) -> str:
    return f"{output.rstrip()}\n{note}" if output else note


async def _within(workspace: Workspace, limit: int, run: asyncio.Task[Finished]) -> Finished:
    """Wait for it; end it when the files get too large. What was too large may get smaller."""
    try:
        most = max(limit, await asyncio.to_thread(workspace.used))
        while not (await asyncio.wait({run}, timeout=CHECK_S))[0]:
            if await asyncio.to_thread(workspace.used) > most:
                raise ToolError(
                    f"killed: the working directory got larger than {most:,} bytes. Remove files."
                )
        return run.result()
    finally:
        run.cancel()
        await asyncio.wait({run})


def _no_sandbox(reason: str) -> ToolError:
    return ToolError(
        f"the sandbox cannot be made here: {reason}. Commands are never run without it. Do it "
        "with the other tools, or tell the user that the operator must install bubblewrap 0.8 or "
        "newer and permit user namespaces."
    )


def tools(settings: Settings) -> list[Tool]:
    """What this file adds, where it is switched on and conversations have files."""
    on = settings.shell and settings.workspace_dir
    return [shell_tool(settings.workspace_limit_mb << 20)] if on else []
