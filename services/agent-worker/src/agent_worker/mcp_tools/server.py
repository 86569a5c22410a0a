"""The tools of one MCP server."""

from functools import partial
from typing import Any

import structlog
from anyio import BrokenResourceError, ClosedResourceError
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, Tool, ToolAnnotations

from agent_worker.mcp_tools.connection import PATIENCE_S, Connection
from agent_worker.mcp_tools.names import tool_name
from agent_worker.mcp_tools.results import shown
from agent_worker.mcp_tools.transports import opener
from agent_worker.registry import ToolRegistry
from agent_worker.tool import FunctionTool, ToolContext, ToolError
from agent_worker.web.untrusted import mark
from posthouse.errors import ConfigError
from posthouse.settings import McpServerSettings

log = structlog.get_logger(__name__)

MAX_PAGES = 50
MAX_DESCRIPTION_CHARACTERS = 4000


class McpServer:
    """``tools()`` are those of the last listing; they stay while the server is away.

    Raises ConfigError for a variable that the settings name and that is not set.
    """

    def __init__(self, name: str, settings: McpServerSettings) -> None:
        self._name = name
        self._settings = settings
        self._tools = ToolRegistry()
        self._connection = Connection(name, opener(name, settings), self._read_tools)

    def start(self) -> None:
        """Connect in the background."""
        self._connection.start()

    async def stop(self) -> None:
        """Close the connection; a child process is ended."""
        await self._connection.stop()

    def tools(self) -> ToolRegistry:
        """What the server offers and the settings allow."""
        return self._tools

    async def _read_tools(self, client: Client) -> None:
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        allow = self._settings.allow
        tools = ToolRegistry(checks_arguments=False)
        for tool in found:
            if not allow or tool.name in allow:
                self._add(tool, tools)
        self._tools = tools

    def _add(self, tool: Tool, tools: ToolRegistry) -> None:
        hints = tool.annotations or ToolAnnotations()
        made = FunctionTool(
            name=tool_name(self._name, tool.name),
            description=(tool.description or "")[:MAX_DESCRIPTION_CHARACTERS],
            input_schema=tool.input_schema,
            function=partial(self._use, tool.name),
            access="read" if hints.read_only_hint else "write",
            idempotent=bool(hints.idempotent_hint),
            # Longer than ours, which has words of its own and lets the server know.
            timeout_s=self._settings.timeout_s + 2 * PATIENCE_S,
        )
        try:
            tools.register(made)
        except ConfigError as error:
            log.warning("mcp.tool_left_out", server=self._name, reason=error.message[:300])

    async def _use(self, tool: str, ctx: ToolContext, input: dict[str, Any]) -> str:
        """Call a tool. Raises ToolError."""
        client = await self._connection.client()
        return shown(await self._call(client, tool, input), self._source)

    async def _call(self, client: Client, tool: str, input: dict[str, Any]) -> CallToolResult:
        try:
            return await client.call_tool(tool, input, self._settings.timeout_s)
        except MCPError as error:
            # It may be gone, or its tools are others than we know.
            self._connection.doubt()
            raise ToolError(self._words(error)) from error
        except (ClosedResourceError, BrokenResourceError) as error:
            raise ToolError(self._gone) from error
        except (RuntimeError, ValueError) as error:
            # The library's, for a result that does not fit the protocol or the tool's schema.
            raise ToolError(f"the answer of {self._source} is not valid.") from error

    def _words(self, error: MCPError) -> str:
        if error.code == CONNECTION_CLOSED:
            return self._gone
        if error.code == REQUEST_TIMEOUT:
            return f"{self._source} did not answer within {self._settings.timeout_s:g} s."
        return mark(error.message, self._source)

    @property
    def _source(self) -> str:
        return f"the MCP server {self._name}"

    @property
    def _gone(self) -> str:
        return (
            f"{self._source} ended during the call. Whether the call had an effect is not known. "
            "The server is being started again."
        )
