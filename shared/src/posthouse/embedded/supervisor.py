"""Keeps processes running: starts them, starts them again when they end, stops them in order."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import structlog

from posthouse.embedded.process import Server, StartError
from posthouse.service import EXIT_REFUSED, end

log = structlog.get_logger(__name__)

FIRST_STARTS = 3
FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 5.0
STABLE_AFTER_S = 30.0
WATCH_S = 3600.0
WATCH_POLL_S = 0.1


class Supervisor:
    """Looks after servers. ``changed`` is called after each restart, when process ids are new."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._servers: list[Server] = []
        self._watches: list[asyncio.Task[None]] = []

    async def start(self, server: Server) -> None:
        """Start a server, and from then on start it again whenever it ends.

        Raises StartError when it refuses to start, or does not come up in three attempts, and
        OSError.
        """
        self._servers.append(server)
        for attempt in range(1, FIRST_STARTS + 1):
            try:
                await server.start()
                break
            except StartError as error:
                if server.exit_code == EXIT_REFUSED or attempt == FIRST_STARTS:
                    raise
                log.warning("process.start_failed", process=server.name, reason=_headline(error))
            await asyncio.sleep(_backoff_s(attempt))
        self._watches.append(asyncio.create_task(self._watch(server), name=server.name))

    async def stop(self, order: Iterable[Sequence[Server]]) -> None:
        """Stop the groups one after the other, then all others; those of a group together."""
        await end(*self._watches)
        for group in (*order, self._servers):
            await asyncio.gather(*(server.stop() for server in group))

    def kill(self) -> None:
        """End all of them at once, without grace."""
        for server in self._servers:
            server.kill()

    async def _watch(self, server: Server) -> None:
        failures, started = 0, time.monotonic()
        while True:
            if not await server.ended(WATCH_S, WATCH_POLL_S):
                continue
            log.warning("process.ended", process=server.name, exit_code=server.exit_code)
            if time.monotonic() - started > STABLE_AFTER_S:
                failures = 0
            failures += 1
            await asyncio.sleep(_backoff_s(failures))
            started = time.monotonic()
            try:
                await server.start()
                log.info("process.restarted", process=server.name, pid=server.pid)
                self._changed()
            except (StartError, OSError) as error:
                log.error("process.start_failed", process=server.name, reason=_headline(error))


def _headline(error: Exception) -> str:
    """Without the log lines below it."""
    return str(error).partition("\n")[0]


def _backoff_s(failures: int) -> float:
    return min(FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 8), MAX_BACKOFF_S)
