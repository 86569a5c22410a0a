"""What happens while agents work, as streams of server-sent events.

The events come over the bus, so every gateway shows the same ones under the same ids, and a
reader that loses one gateway resumes at another.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from gateway.settings import StreamLimits
from posthouse.address import Address
from posthouse.errors import Busy, Unavailable
from posthouse.feed import Arrived, Place

LOOK_S = 1.0
"""How long a quiet stream takes to notice that the process stops."""


class Feed(Protocol):
    """The events of one conversation, which outlive an outage of the bus."""

    @property
    def place(self) -> Place:
        """Behind which it goes on now."""
        ...

    async def next(self, timeout_s: float) -> Arrived | None:
        """The next event; None when none came in about that time."""
        ...


class Feeds(Protocol):
    """Where events are read."""

    def open(self, conversation: Address, after: Place | None) -> AbstractAsyncContextManager[Feed]:
        """A feed behind a place, None = only what comes from now on. Raises Unavailable."""
        ...


class EventStreamResponse(StreamingResponse):
    """An open stream as an answer.

    Not FastAPI's EventSourceResponse: that one ends with an error whenever a client leaves while
    something is being sent (seen with 0.165.0).
    """

    media_type = "text/event-stream"

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        super().__init__(stream, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


class EventStreams:
    """The open streams of this process. They end when ``stop`` is set."""

    def __init__(
        self, feeds: Feeds, stop: asyncio.Event, limits: StreamLimits | None = None
    ) -> None:
        self._feeds = feeds
        self._stop = stop
        self._limits = limits or StreamLimits()
        self._open = 0

    @asynccontextmanager
    async def open(
        self, conversation: Address, after: Place | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The events of a conversation as they are sent. Raises Unavailable and Busy."""
        if self._stop.is_set():
            raise Unavailable("the process is stopping")
        if self._open >= self._limits.max_streams:
            raise Busy(f"{self._limits.max_streams} event streams are open here")
        self._open += 1
        try:
            async with self._feeds.open(conversation, after) as feed:
                yield self._sent(feed)
        finally:
            self._open -= 1

    async def _sent(self, feed: Feed) -> AsyncIterator[bytes]:
        # A client behind a buffering proxy learns that the stream is open. The id has no data and
        # so is no event, but a client that is cut off before the first one goes on from there.
        place = str(feed.place)
        yield format_sse_event(comment="open", id=place, retry=self._limits.retry_ms)
        look_s = min(LOOK_S, self._limits.ping_s)
        spoke = time.monotonic()
        while not self._stop.is_set():
            arrived = await feed.next(look_s)
            if arrived is not None:
                yield _as_sent(arrived)
            elif time.monotonic() >= spoke + self._limits.ping_s:
                yield KEEPALIVE_COMMENT
            else:
                continue
            spoke = time.monotonic()


def _as_sent(arrived: Arrived) -> bytes:
    event_type = arrived.event.event_type
    return format_sse_event(
        id=str(arrived.place),
        # Anyone on the bus may write an event, and a line break would end the field.
        event=event_type if event_type.isprintable() else None,
        # With what is null in its payload, which ``to_wire`` would leave out.
        data_str=arrived.event.model_dump_json(),
    )
