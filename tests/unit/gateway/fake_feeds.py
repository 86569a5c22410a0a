"""Events from memory (port Feeds)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from posthouse.address import Address
from posthouse.errors import Unavailable
from posthouse.feed import BEGINNING, Arrived, Place


class FakeFeeds:
    """Feeds that bring ``events`` and then end all streams; ``asked`` says who wanted what."""

    def __init__(self) -> None:
        self.events: list[Arrived] = []
        self.asked: list[tuple[str, Place | None]] = []
        self.stop = asyncio.Event()
        self.open_now = 0
        self.away = False

    @asynccontextmanager
    async def open(self, conversation: Address, after: Place | None) -> AsyncIterator["FakeFeed"]:
        if self.away:
            raise Unavailable("NATS is not connected")
        self.asked.append((str(conversation), after))
        self.open_now += 1
        try:
            yield FakeFeed(self, after or BEGINNING)
        finally:
            self.open_now -= 1


class FakeFeed:
    """One of them."""

    def __init__(self, feeds: FakeFeeds, place: Place) -> None:
        self._feeds = feeds
        self.place = place
        self._left = list(feeds.events)

    async def next(self, timeout_s: float) -> Arrived | None:
        if self._left:
            return self._left.pop(0)
        self._feeds.stop.set()
        return None
