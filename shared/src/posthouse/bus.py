"""Connections to NATS: plain ones for hot paths, a FastStream broker for handlers.

Settings of R11: ping every 5 s, two outstanding, reconnect for ever. FastStream pitfalls that
are closed here once: no default ack policy, no declared streams, no injection on hot paths.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import nats
import nats.errors
import structlog
from nats.aio.client import Client
from structlog.contextvars import bound_contextvars, get_contextvars

from posthouse.errors import Unavailable

if TYPE_CHECKING:
    from faststream.nats import JStream, NatsBroker

log = structlog.get_logger(__name__)

MSG_ID = "Nats-Msg-Id"
CORRELATION_ID = "Posthouse-Correlation-Id"
TRACE_PARENT = "traceparent"
GENERATION = "Posthouse-Generation"

CALL_ID = "Posthouse-Call-Id"
DEADLINE = "Posthouse-Deadline"
DEPTH = "Posthouse-Depth"
FRAMES = "Posthouse-Frames"
KIND = "Posthouse-Kind"

CONNECT_TIMEOUT_S = 5
DRAIN_TIMEOUT_S = 2.0
# From FastStream's queue to its handlers: two steps of the event loop.
HAND_OVER_S = 0.05
# How often nats-py tries to connect. It must not be for ever before the first connection, which
# would then never fail, nor after the last: a cancellation that comes together with a refused
# connection is lost on it (seen: a process that did not end).
_TRIES = "max_reconnect_attempts"
_FEW = 1
_FOR_EVER = -1
_OPTIONS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "ping_interval": 5,
    "max_outstanding_pings": 2,
    "reconnect_time_wait": 0.25,
    _TRIES: _FEW,
}

Callback = Callable[[], Awaitable[None]]


async def _on_error(error: Exception) -> None:
    # nats-py prints a traceback per reconnect try without this; permission errors come only here.
    log.warning("nats.error", error=type(error).__name__, detail=str(error)[:200])


async def connect(url: str, name: str, reconnected: Callback | None = None) -> Client:
    """A connection that reconnects for ever. Raises Unavailable if the first try fails."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            connection = await nats.connect(
                url, name=name, error_cb=_on_error, reconnected_cb=reconnected, **_OPTIONS
            )
        connection.options[_TRIES] = _FOR_EVER
        return connection
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise Unavailable(
            f"NATS does not answer at {without_password(url)}", url=without_password(url)
        ) from error


def build_broker(
    url: str,
    name: str,
    graceful_timeout_s: float = 25.0,
    on_reconnect: Callable[[], None] | None = None,
) -> "NatsBroker":
    """A FastStream broker: handlers get the message, acks are written out, no injection."""
    # Half of a service's import time, and not every process has handlers.
    from faststream import AckPolicy
    from faststream.nats import NatsBroker

    async def reconnected() -> None:
        log.info("nats.reconnected")
        if on_reconnect is not None:
            on_reconnect()

    return NatsBroker(
        url,
        name=name,
        error_cb=_on_error,
        reconnected_cb=reconnected,
        ack_policy=AckPolicy.MANUAL,
        apply_types=False,
        decoder=_whole,
        logger=None,
        graceful_timeout=graceful_timeout_s,
        **_OPTIONS,
    )


async def start(broker: "NatsBroker") -> None:
    """Connect a broker and start its subscribers. Raises Unavailable if NATS does not answer."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            connection = await broker.connect()
            connection.options[_TRIES] = _FOR_EVER
            await broker.start()
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise Unavailable(f"NATS does not answer: {type(error).__name__}") from error


async def stop(broker: "NatsBroker", timeout_s: float = 26.0) -> None:
    """Take no more requests, answer those that came, then close.

    Raises nothing: NATS may be away. Takes ``DRAIN_TIMEOUT_S`` seconds more at most.
    """
    connection = broker._connection
    await _take_no_more(broker)
    await _quietly(broker.stop, timeout_s)
    if connection is not None:  # FastStream leaves it open when it cannot be drained
        await close(connection)


async def _take_no_more(broker: "NatsBroker") -> None:
    """Leave the queue groups, and begin what has arrived.

    FastStream drops what arrives while it stops: a rolling restart under load lost 19 requests,
    each to a timeout; with this, none.
    """
    from faststream.nats.subscriber.usecases import CoreSubscriber

    heard = [s for s in broker.subscribers if isinstance(s, CoreSubscriber)]
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            subscriptions = [s.subscription for s in heard if s.subscription]
            await asyncio.gather(*(s.drain() for s in subscriptions))  # type: ignore[no-untyped-call]
            await asyncio.sleep(HAND_OVER_S)
    except (nats.errors.Error, OSError, TimeoutError) as error:
        log.info("nats.not_drained", error=type(error).__name__)
    finally:
        # Drained or given up: FastStream would fail on leaving it once more.
        for subscriber in heard:
            subscriber.subscription = None


async def close(connection: Client, timeout_s: float = 5.0) -> None:
    """Send what is buffered, then close. Raises nothing: NATS may be away."""
    connection.options[_TRIES] = _FEW
    await _quietly(connection.close, timeout_s)


async def _quietly(end: Callback, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await end()
    except (nats.errors.Error, OSError, TimeoutError) as error:
        log.info("nats.closed_without_drain", error=type(error).__name__)
    except asyncio.CancelledError:
        # Right after NATS is gone nats-py waits for a future that it has cancelled itself (seen).
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        log.info("nats.closed_without_drain", error="CancelledError")


async def _whole(message: Any) -> Any:
    # Without injection a handler is called with what the decoder returns, and nothing else:
    # ours need the headers and the reply subject too.
    return message


def declared(stream: str) -> "JStream":
    """A stream that exists already. ``declare=True`` would rewrite it (measured)."""
    from faststream.nats import JStream

    return JStream(stream, declare=False)


@contextmanager
def message_scope(headers: Mapping[str, str] | None) -> Iterator[None]:
    """Bind the ids of a message's headers, so that logs and further calls carry them."""
    headers = headers or {}
    ids = {"correlation_id": headers.get(CORRELATION_ID) or uuid4().hex}
    if trace := headers.get(TRACE_PARENT):
        ids["traceparent"] = trace
    with bound_contextvars(**ids):
        yield


def headers_from_context() -> dict[str, str]:
    """Headers that carry the bound ids on."""
    bound = get_contextvars()
    names = {"correlation_id": CORRELATION_ID, "traceparent": TRACE_PARENT}
    return {header: bound[name] for name, header in names.items() if name in bound}


def without_password(url: str) -> str:
    """The URL without user and password, for logs and messages."""
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]
