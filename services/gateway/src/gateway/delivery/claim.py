"""A replica's hold on the record of one conversation."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial

from gateway.delivery.patience import insist
from gateway.delivery.record import Entry
from gateway.ports import Conflict, Records, Stored
from gateway.settings import DeliveryLimits

Clock = Callable[[], int]
"""Unix milliseconds."""


class Claim:
    """Changes the record of a conversation; a change by another replica ends it."""

    def __init__(
        self, records: Records, key: str, stored: Stored, owner: str, limits: DeliveryLimits
    ) -> None:
        self._records = records
        self._key = key
        self._owner = owner
        self._limits = limits
        self._entry, self._revision = stored

    async def write(self, build: Callable[[], Entry]) -> None:
        """Replace the record, whenever the bus answers. Raises Conflict.

        ``build`` makes the entry anew for each try, since its times are those of the try.
        """
        await insist(lambda: self._replace(build()), self._key)

    async def _replace(self, entry: Entry) -> None:
        try:
            self._revision = await self._records.write(self._key, entry, self._revision)
        except Conflict:
            found, revision = await self._records.read(self._key)
            if not self._is_ours(found):
                raise
            # A write of ours whose answer was lost: a renewal, or this one.
            self._revision = await self._records.write(self._key, entry, revision)
        self._entry = entry

    def _is_ours(self, found: Entry | None) -> bool:
        current = found.in_work() if found is not None else None
        return current is not None and current.owner == self._owner

    @contextlib.asynccontextmanager
    async def kept(self, clock: Clock) -> AsyncIterator[None]:
        """Renews the lease while the body runs; cancels it, raising Conflict, when it is lost."""
        try:
            async with asyncio.timeout(self._left_s(clock)) as scope:
                over = asyncio.Event()
                renewal = asyncio.create_task(self._renew(scope, over, clock))
                try:
                    yield
                finally:
                    over.set()  # a cancellation alone may be lost in nats-py (Python 3.11, seen)
                    renewal.cancel()
                    await asyncio.gather(renewal, return_exceptions=True)
        except TimeoutError as error:
            if scope.expired():
                raise Conflict("the lease could not be kept", key=self._key) from error
            raise

    async def _renew(self, scope: asyncio.Timeout, over: asyncio.Event, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        while not over.is_set():
            await asyncio.sleep(self._left_s(clock) / 3)
            try:
                await self.write(partial(self._renewed, clock))
            except Conflict:
                scope.reschedule(loop.time())
                return
            if not over.is_set():
                scope.reschedule(loop.time() + self._left_s(clock))

    def _renewed(self, clock: Clock) -> Entry:
        entry, now = self._entry, clock()
        if entry is None or entry.current is None:
            raise Conflict("there is no lease to keep", key=self._key)
        until = now + round(self._limits.lease_s * 1000)
        return entry.with_current(entry.current.model_copy(update={"until": until}), now)

    def _left_s(self, clock: Clock) -> float:
        """How long the lease still lasts, less a margin."""
        current = self._entry.current if self._entry is not None else None
        until = current.until if current is not None else 0
        return max(0.0, (until - clock()) / 1000 - self._limits.lease_margin_s)
