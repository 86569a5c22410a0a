"""Health of a process: named checks, served as ``/healthz`` (alive) and ``/readyz`` (why not).

``/readyz`` answers 200 or 503 with ``{"ready": bool, "checks": {name: "ok" | what is wrong}}``.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from posthouse.errors import PosthouseError

Check = Callable[[], Awaitable[None]]

CHECK_TIMEOUT_S = 2.0
STOP_TIMEOUT_S = 5
WRITE_TIMEOUT_S = 20
"""A client that takes nothing of what is sent for so long is disconnected, dead or not."""


class Health:
    """A set of checks; a check raises to say what is wrong."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Register a check under the name of what it needs, as ``nats`` or ``postgres``."""
        self._checks[name] = check

    async def report(self) -> dict[str, str]:
        """Run all checks at once, each at most ``CHECK_TIMEOUT_S`` seconds."""
        results = await asyncio.gather(*(_run(check) for check in self._checks.values()))
        return dict(zip(self._checks, results, strict=True))

    def routes(self) -> list[Route]:
        """The two endpoints, for any Starlette application."""
        return [
            Route("/healthz", self._alive, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
        ]

    async def _alive(self, request: Request) -> JSONResponse:
        return JSONResponse({"alive": True})

    async def _ready(self, request: Request) -> JSONResponse:
        checks = await self.report()
        ready = all(result == "ok" for result in checks.values())
        return JSONResponse({"ready": ready, "checks": checks}, status_code=200 if ready else 503)


async def _run(check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check()
    except TimeoutError:
        return f"no answer in {CHECK_TIMEOUT_S:g} s"
    except PosthouseError as error:
        return error.message
    except Exception as error:  # a check may fail in any way; the report must not
        return f"{type(error).__name__}: {error}"
    return "ok"


class _QuietServer(uvicorn.Server):
    """Leaves the signals to the process it lives in."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in (found for server in self.servers for found in server.sockets):
            _limit_writes(listening)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _limit_writes(listening: socket.socket) -> None:
    """Connections inherit it. Otherwise whoever sends to a stopped reader waits for ever."""
    if sys.platform == "linux":
        milliseconds = WRITE_TIMEOUT_S * 1000
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


class AppServer:
    """Serves an ASGI application in a process that handles its signals itself."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
        )
        self._server = _QuietServer(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start listening in the background."""
        self._task = asyncio.create_task(self._server.serve(), name="http")

    async def stop(self) -> None:
        """Stop listening; requests under way have ``STOP_TIMEOUT_S`` seconds to end."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class HealthServer(AppServer):
    """Serves the two endpoints for a process that has no other HTTP port."""

    def __init__(self, health: Health, host: str, port: int) -> None:
        super().__init__(Starlette(routes=health.routes()), host, port)
