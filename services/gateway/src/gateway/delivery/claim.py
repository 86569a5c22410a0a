"""A replica's hold on the record of one conversation."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

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

    async def write(self, entry: Entry) -> None:
        """Replace the record, whenever the bus answers. Raises Conflict."""
        await insist(lambda: self._replace(entry), self._key)

    async def _replace(self, entry: Entry) -> None:
        try:
            self._revision = await self._records.write(self._key, entry, self._revision)
        except Conflict:
            found, revision = await self._records.read(self._key)
            # A write whose answer was lost: this one, or a renewal before it.
            if found != entry and not self._is_ours(found):
                raise
            self._revision = revision
            if found != entry:
                self._revision = await self._records.write(self._key, entry, revision)
        self._entry = entry

    def _is_ours(self, found: Entry | None) -> bool:
        current = found.in_work() if found is not None else None
        return current is not None and current.owner == self._owner

    @contextlib.asynccontextmanager
    async def kept(self, clock: Clock) -> AsyncIterator[None]:
        """Renews the lease while the body runs; cancels it, raising Conflict, when it is lost."""
        hold_s = self._limits.lease_s - self._limits.lease_margin_s
        try:
            async with asyncio.timeout(hold_s) as scope:
                renewal = asyncio.create_task(self._renew(scope, hold_s, clock))
                try:
                    yield
                finally:
                    renewal.cancel()
                    await asyncio.gather(renewal, return_exceptions=True)
        except TimeoutError as error:
            if scope.expired():
                raise Conflict("the lease could not be kept", key=self._key) from error
            raise

    async def _renew(self, scope: asyncio.Timeout, hold_s: float, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        while self._entry is not None and self._entry.current is not None:
            await asyncio.sleep(self._limits.lease_s / 3)
            began, now = loop.time(), clock()
            until = now + round(self._limits.lease_s * 1000)
            renewed = self._entry.current.model_copy(update={"until": until})
            try:
                await self.write(self._entry.with_current(renewed, now))
            except Conflict:
                scope.reschedule(loop.time())
                return
            scope.reschedule(began + hold_s)
