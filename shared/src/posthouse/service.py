"""How every service process starts and stops: configuration, logs, signals, exit codes.

Exit codes: 0 stopped as asked (G8), 2 configuration or drift that an operator must mend,
1 anything unforeseen.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from posthouse import logs
from posthouse.errors import PermanentError, PosthouseError, Unavailable
from posthouse.settings import Settings, load

log = structlog.get_logger(__name__)

Serve = Callable[[Settings, asyncio.Event], Awaitable[None]]

GRACE_PERIOD_S = 30.0
START_PATIENCE_S = 60.0
RETRY_S = 0.5
EXIT_FAILED = 1
EXIT_REFUSED = 2


def run(service: str, serve: Serve) -> None:
    """Run ``serve(settings, stop)`` until it returns; SIGTERM and SIGINT set ``stop``.

    ``serve`` must return soon after ``stop`` is set, at most ``GRACE_PERIOD_S`` seconds later.
    Ends the process with the exit codes of this module.
    """
    try:
        settings = load()
    except PosthouseError as error:
        print(f"posthouse {service}: {error.message}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    logs.configure(service, settings.log_level)
    try:
        asyncio.run(_serve(settings, serve))
    except PermanentError as error:
        log.error("service.refused", code=error.code, reason=error.message)
        sys.exit(EXIT_REFUSED)
    except PosthouseError as error:
        log.error("service.failed", code=error.code, reason=error.message)
        sys.exit(EXIT_FAILED)


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end.

    Cancelled again until they end: in Python 3.11 ``wait_for`` may swallow a cancellation that
    comes together with its result, and a loop around it would run for ever (seen).
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=RETRY_S)


async def _serve(settings: Settings, serve: Serve) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    log.info("service.starting")
    await serve(settings, stop)
    log.info("service.stopped")


async def patiently(start: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    """Repeat ``start`` while a server it needs is not there yet.

    Raises the last Unavailable after ``START_PATIENCE_S`` seconds; returns early when ``stop``
    is set.
    """
    deadline = asyncio.get_running_loop().time() + START_PATIENCE_S
    while not stop.is_set():
        try:
            return await start()
        except Unavailable as error:
            if asyncio.get_running_loop().time() > deadline:
                raise
            log.warning("service.waiting", reason=error.message)
            try:
                async with asyncio.timeout(RETRY_S):
                    await stop.wait()
            except TimeoutError:
                continue
