"""Ways to an MCP server: the pipes of a child process, or HTTP."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from posthouse.errors import ConfigError
from posthouse.secrets import read_secret
from posthouse.settings import McpServerSettings

# Servers may hold a stream of events open in silence; calls have limits of their own.
HTTP_TIMEOUT = httpx2.Timeout(30.0, read=300.0)

Opener = Callable[[Callable[[], None]], AbstractAsyncContextManager[TransportStreams]]


def opener(name: str, settings: McpServerSettings) -> Opener:
    """What opens a transport and calls back when the server has ended it.

    Raises ConfigError for a variable that is not set.
    """
    env = _values(f"mcp.{name}.env", settings.env)
    headers = _values(f"mcp.{name}.headers_env", settings.headers_env)

    @asynccontextmanager
    async def opened(on_end: Callable[[], None]) -> AsyncIterator[TransportStreams]:
        ways = _pipes(settings, env) if settings.command else _http(settings, headers)
        async with ways as (read, write):
            yield _Watched(read, on_end), write

    return opened


def _values(key: str, variables: dict[str, str]) -> dict[str, str]:
    values = {}
    for name, variable in variables.items():
        try:
            values[name] = read_secret(name, env=variable, file="")
        except ConfigError as error:
            raise ConfigError(f"{key}: the variable {variable} is not set or empty") from error
    return values


@asynccontextmanager
async def _pipes(
    settings: McpServerSettings, env: dict[str, str]
) -> AsyncIterator[TransportStreams]:
    """The child sees ``env``, and of our environment no more than PATH, HOME and the like."""
    program, *arguments = settings.command
    parameters = StdioServerParameters(command=program, args=arguments, env=env)
    # What it says on stderr may hold anything, and our log holds no message text.
    with Path(os.devnull).open("w") as nowhere:  # noqa: ASYNC230 - opening it cannot block
        async with stdio_client(parameters, nowhere) as streams:
            yield streams


@asynccontextmanager
async def _http(
    settings: McpServerSettings, headers: dict[str, str]
) -> AsyncIterator[TransportStreams]:
    """The operator chose the address, so it may be a private one, unlike those of ``fetch``."""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=HTTP_TIMEOUT) as client,
        streamable_http_client(settings.url, http_client=client) as streams,
    ):
        yield streams


class _Watched:
    """A stream of messages that tells when it ends."""

    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], on_end: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._on_end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
