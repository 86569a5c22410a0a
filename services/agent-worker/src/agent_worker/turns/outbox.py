"""Publishes stored outbound messages, in order, and remembers what to report (R12)."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from itertools import groupby
from weakref import WeakValueDictionary

import structlog

from agent_worker.ports import Publisher
from agent_worker.turns.feeds import Feeds
from posthouse import subjects
from posthouse.bus import GENERATION, MSG_ID
from posthouse.errors import PermanentError, TransientError
from posthouse.turns import Outgoing, Published

log = structlog.get_logger(__name__)


REMEMBERED = 4096
# How long a report waits for the final event of its turn; below the age at which others relay.
FEED_PATIENCE_S = 1.0

Place = tuple[str, int, int]
Feed = asyncio.Task[None] | None


class Outbox:
    """What is published here is reported with the next heartbeat; what is not, is relayed.

    Until the report arrives Postgres calls the message unpublished, and whoever holds the
    conversation next would publish it again: so a report asks for a beat (``on_published``), and
    the newest are remembered, to be reported again instead of published again.

    The report of an answer waits for the final event of its turn. So if this worker dies before
    that event is out, the answer is relayed, and who relays an answer completes its feed.
    """

    def __init__(self, publisher: Publisher, feeds: Feeds) -> None:
        self._publisher = publisher
        self._feeds = feeds
        self.on_published: Callable[[], None] = lambda: None
        self._published: OrderedDict[Place, Published] = OrderedDict()
        self._reports: dict[Place, Published] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def publish(self, outgoing: list[Outgoing], feed: Feed = None) -> None:
        """Publish in order, one at a time per conversation. Stops at the first that JetStream
        does not take now: it stays unpublished in Postgres, and some worker's relay brings it.

        ``feed`` is that of a turn of ours; without it these are what others left behind.
        """
        for key, messages in groupby(outgoing, key=lambda message: message.key):
            lock = self._locks.setdefault(key, asyncio.Lock())
            async with lock:
                for message in messages:
                    if not await self._published_once(message, feed):
                        return

    async def _published_once(self, message: Outgoing, feed: Feed) -> bool:
        place = (message.key, message.generation, message.seq)
        report = self._published.get(place)
        if report is None:
            try:
                await self._publish(message)
                failed = None
            except TransientError as error:
                log.warning("outbound.delayed", id=message.id, reason=error.message)
                return False
            except PermanentError as error:
                log.error("outbound.failed", id=message.id, reason=error.message)
                failed = error.message
                await self._bury(message, failed)
            report = Published(
                key=message.key, generation=message.generation, seq=message.seq, failed=failed
            )
            self._remember(place, report)
            if feed is None:
                await self._feeds.complete(message.body)
        self._report(place, report, feed)
        return True

    def _report(self, place: Place, report: Published, feed: Feed) -> None:
        def due(*_: object) -> None:
            timer.cancel()
            if feed is not None:
                feed.remove_done_callback(due)
            self._reports[place] = report
            self.on_published()

        timer = asyncio.get_running_loop().call_later(FEED_PATIENCE_S, due)
        if feed is None or feed.done():
            due()
        else:
            feed.add_done_callback(due)

    def _remember(self, place: Place, report: Published) -> None:
        self._published[place] = report
        if len(self._published) > REMEMBERED:
            self._published.popitem(last=False)

    async def _publish(self, message: Outgoing) -> None:
        headers = {MSG_ID: message.id, GENERATION: str(message.generation)}
        subject = f"{subjects.OUTBOUND_PREFIX}.{message.key}"
        await self._publisher.publish(subject, message.body.to_wire(), headers)

    async def _bury(self, message: Outgoing, reason: str) -> None:
        """A dead letter of what can never be published: who and where, without the content."""
        try:
            await self._publisher.dead_outbound(message, reason)
        except TransientError as error:
            # The row in Postgres keeps the message and its reason.
            log.warning("outbound.not_buried", id=message.id, reason=error.message)

    def reports(self) -> list[Published]:
        """What has been published and not yet been reported."""
        return list(self._reports.values())

    def reported(self, done: list[Published]) -> None:
        """These reports arrived."""
        for report in done:
            self._reports.pop((report.key, report.generation, report.seq), None)
