"""A connection to one MCP server that is made again whenever it is lost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from mcp.client import Client
from mcp.client.client import ConnectMode
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.types import ToolListChangedNotification

from agent_worker.mcp_tools.transports import Opener
from agent_worker.tool import ToolError
from posthouse import service

log = structlog.get_logger(__name__)

# The newest protocol first; the library waits 10 s for servers that never heard of it.
MODE: ConnectMode = "auto"
CONNECT_TIMEOUT_S = 30.0
# A listing that is slower counts as a lost connection.
LIST_TIMEOUT_S = 10.0
# Servers that vanish in silence, as over HTTP, are missed then.
LIST_EVERY_S = 60.0
# How long a call waits for a server that is being started again.
PATIENCE_S = 10.0
FIRST_DELAY_S = 0.5
MAX_DELAY_S = 60.0
# One that ends sooner is started less and less often.
STEADY_S = 30.0
# The library gives a child 2 s to end by itself and 2 s after SIGTERM.
STOP_TIMEOUT_S = 10.0


class Connection:
    """Calls ``read_tools`` when it is made, and whenever the tools may have changed."""

    def __init__(
        self, name: str, opener: Opener, read_tools: Callable[[Client], Awaitable[None]]
    ) -> None:
        self._name = name
        self._open = opener
        self._read_tools = read_tools
        self._client: Client | None = None
        self._made = asyncio.Event()
        self._doubtful = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background."""
        self._task = asyncio.create_task(self._keep(), name=f"mcp {self._name}")

    async def stop(self) -> None:
        """Close the connection; a child process is ended."""
        if self._task is not None:
            # Once, and not as often as it takes: a second time would cut its clearing up short.
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_TIMEOUT_S)
            await service.end(self._task)

    async def client(self) -> Client:
        """The library's client; its calls may be made in any task. Raises ToolError."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._made.wait()
        if self._client is None:
            raise ToolError(
                f"the MCP server {self._name} is not there just now. "
                "Go on without it, or try again later."
            )
        return self._client

    def doubt(self) -> None:
        """Read the tools again; a server that does not answer then is connected anew."""
        self._doubtful.set()

    async def _keep(self) -> None:
        delay_s = FIRST_DELAY_S
        while True:
            began = time.monotonic()
            try:
                await self._hold()
                log.warning("mcp.lost", server=self._name)
            # Whatever a server does, it costs its own tools alone.
            except Exception as error:
                log.warning("mcp.not_connected", server=self._name, reason=_reason(error))
            if time.monotonic() - began > STEADY_S:
                delay_s = FIRST_DELAY_S
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, MAX_DELAY_S)

    async def _hold(self) -> None:
        """Connect, and return when the connection is lost.

        The library's scopes must be left in the task that entered them: this one.
        """
        async with (
            asyncio.timeout(CONNECT_TIMEOUT_S) as limit,
            Client(self._open(self._lose), message_handler=self._hear, mode=MODE) as client,
        ):
            await self._read_tools(client)
            limit.reschedule(None)
            self._client = client
            self._doubtful.clear()
            self._made.set()
            log.info("mcp.connected", server=self._name)
            listening = asyncio.create_task(self._listen(client))
            try:
                await self._watch(client)
            finally:
                self._lose()
                await service.end(listening)

    async def _watch(self, client: Client) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LIST_EVERY_S):
                    await self._doubtful.wait()
            self._doubtful.clear()
            if self._client is not client:
                return
            try:
                async with asyncio.timeout(LIST_TIMEOUT_S):
                    await self._read_tools(client)
            except (MCPError, TimeoutError):
                return

    async def _listen(self, client: Client) -> None:
        """By the newest protocol servers tell of changes to those who ask, and else to all."""
        # Without an ear the tools are read every minute all the same.
        with suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.doubt()

    def _lose(self) -> None:
        self._client = None
        self._made.clear()
        self._doubtful.set()

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.doubt()


def _reason(error: BaseException) -> str:
    """Kind of an error, and what the system says of it; other texts come from the server."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return type(error).__name__
