"""All MCP servers of the configuration."""

import asyncio
import logging
from collections.abc import Mapping

from agent_worker.mcp_tools.server import McpServer
from agent_worker.registry import ToolRegistry
from posthouse.settings import McpServerSettings


class McpServers:
    """Keeps the servers connected, and adds their tools to a registry as they come and go.

    Raises ConfigError for a variable that is named and not set.
    """

    def __init__(self, configured: Mapping[str, McpServerSettings], registry: ToolRegistry) -> None:
        self._servers = [McpServer(name, settings) for name, settings in configured.items()]
        for server in self._servers:
            registry.add_source(server.tools)

    def start(self) -> None:
        """Return at once: a server that is down keeps nobody waiting."""
        # The libraries log what servers send, and addresses with what may be secret in them.
        for library in ("mcp", "httpx2"):
            logging.getLogger(library).setLevel(logging.CRITICAL)
        for server in self._servers:
            server.start()

    async def stop(self) -> None:
        """Close all connections and end all child processes."""
        await asyncio.gather(*(server.stop() for server in self._servers))
