"""An MCP server of the official library, as a program: ``python mcp_server.py [port]``.

Over pipes, or over HTTP on a port of this machine.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.types import Image
from mcp.types import ToolAnnotations

server = MCPServer("for-tests")


@server.tool()
def echo(text: str) -> str:
    """Says the text again."""
    return text


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look() -> str:
    """Changes nothing."""
    return "seen"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True), structured_output=False)
def picture() -> Any:
    """An image between two texts."""
    return ["before", Image(data=b"12345", format="png"), "after"]


@server.tool(name="大/声")
def loud(text: str) -> str:
    """Its name is none for models."""
    return text.upper()


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ToolError("no luck today")


@server.tool()
def variable(key: str) -> str:
    """A variable of its environment."""
    return os.environ.get(key, "not set")


@server.tool()
async def slow(started: str) -> str:
    """Never answers; writes its process id into a file."""
    Path(started).write_text(str(os.getpid()), encoding="utf-8")  # noqa: ASYNC240 - a test's
    await asyncio.Event().wait()
    return "never"


@server.tool()
def crash() -> str:
    """Ends at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
async def learn(ctx: Context) -> str:
    """From now on there is a tool ``learned``."""
    server.add_tool(lambda: "new", name="learned", description="learned just now")
    # By the newest protocol, and by those before it.
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "done"


@server.tool()
def garble() -> str:
    """Writes what is no message."""
    sys.__stdout__.write("this is no JSON\n{}\n[1\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
    return "written"


@server.tool()
def bad() -> str:
    """Its schema is none; see below."""
    return ""


server._tool_manager.get_tool("bad").parameters = {  # type: ignore[union-attr]
    "type": "object",
    "properties": {"x": {"type": "no such type"}},
}

if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
