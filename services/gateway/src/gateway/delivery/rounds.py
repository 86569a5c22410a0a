"""The delivery of one bot: takes messages from the bus and keeps each conversation in order."""

import asyncio
from collections.abc import Awaitable

import structlog

from gateway.delivery import letter as letters
from gateway.delivery.courier import Courier
from gateway.delivery.decision import pause_s
from gateway.delivery.lane import Lane
from gateway.delivery.letter import Letter
from gateway.ports import DeadLetters, Outbox, Parcel
from gateway.settings import DeliveryLimits
from posthouse import service
from posthouse.errors import BadMessage, TransientError

log = structlog.get_logger(__name__)

PAUSE_S = 1.0
BROKEN_PAUSE_S = 5.0


Work = tuple[Letter, Parcel | None]
"""A message to deliver, and what the bus handed over, if it did already."""


class Rounds:
    """Works on at most ``limits.slots`` messages; every conversation goes its own pace."""

    def __init__(
        self,
        outbox: Outbox,
        courier: Courier,
        dead_letters: DeadLetters,
        limits: DeliveryLimits,
    ) -> None:
        self._outbox = outbox
        self._courier = courier
        self._dead_letters = dead_letters
        self._limits = limits
        self._lanes: dict[str, Lane] = {}
        self._held: set[Parcel] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._ahead = 0
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until ``stop`` is set; then end what is under way, hand back the rest."""
        keeping = asyncio.create_task(self._keep())
        try:
            while not stop.is_set():
                await self._take()
        finally:
            self._stopping = True
            await self._finish()
            keeping.cancel()

    async def _take(self) -> None:
        free = self._limits.slots - len(self._held) - self._ahead
        self._room.clear()
        if free <= 0:
            await _at_most(self._room.wait(), self._limits.fetch_s)
            return
        try:
            parcels = await self._outbox.fetch(free, self._limits.fetch_s)
        except TransientError as error:
            log.warning("delivery.no_bus", reason=error.message)
            await asyncio.sleep(PAUSE_S)
            return
        for parcel in parcels:
            self._held.add(parcel)
            await self._sort(parcel)

    async def _sort(self, parcel: Parcel) -> None:
        try:
            letter = letters.read(parcel)
        except BadMessage as error:
            self._start(self._discard(parcel, error))
            return
        if letter.key not in self._lanes:
            self._lanes[letter.key] = Lane()
            self._start(self._run_lane(letter.key))
        lane = self._lanes[letter.key]
        if len(lane) < self._limits.per_conversation:
            lane.push(letter, parcel)
        else:
            await self._settle(parcel, pause_s(letter.arrival, self._limits))

    async def _run_lane(self, key: str) -> None:
        lane, latest = self._lanes[key], None
        try:
            while not self._stopping and (work := await self._next(lane, latest)):
                letter, parcel = work
                delay_s = await self._deliver(letter, parcel)
                if delay_s is not None:
                    await self._hand_back(lane, delay_s)
                    return
                if latest is None or letter.place > latest.place:
                    latest = letter
        finally:
            del self._lanes[key]
            await self._hand_back(lane, 0)

    async def _next(self, lane: Lane, latest: Letter | None) -> Work | None:
        if lane.may_follow(latest):
            return lane.pop()
        following = await self._following(latest)
        if following is not None:
            return following, None
        return lane.pop() if lane else None

    async def _following(self, latest: Letter | None) -> Letter | None:
        """What comes next in the conversation, if it is in the stream.

        Other replicas and this one hand messages of a busy conversation back; to wait until they
        come again would cost a pause for every few messages (6 messages a second, measured).
        """
        if latest is None or not latest.stream_seq:
            return None
        try:
            found = await self._outbox.next_after(latest.subject, latest.stream_seq)
            return letters.read(found) if found is not None else None
        except (TransientError, BadMessage):
            return None  # it is handed out anyway

    async def _deliver(self, letter: Letter, parcel: Parcel | None) -> float | None:
        delay_s: float | None = self._limits.lease_s
        self._ahead += parcel is None
        try:
            delay_s = await self._courier.deliver(letter)
        except Exception:
            log.exception("delivery.broken", key=letter.key, seq=letter.arrival.seq)
            delay_s = BROKEN_PAUSE_S
        finally:
            self._ahead -= parcel is None
            if parcel is not None:
                await self._settle(parcel, delay_s)
        return delay_s

    async def _hand_back(self, lane: Lane, delay_s: float) -> None:
        while lane:
            _, parcel = lane.pop()
            await self._settle(parcel, delay_s)

    async def _discard(self, parcel: Parcel, error: BadMessage) -> None:
        name = f"outbound:{parcel.stream_seq}:{letters.milliseconds(parcel.time)}"
        delay_s: float | None = PAUSE_S
        try:
            await self._dead_letters.keep(
                subject=parcel.subject,
                body=parcel.body,
                reason=error.message,
                msg_id=name,
                stream_seq=parcel.stream_seq,
                attempts=0,
            )
            log.warning("delivery.unreadable", subject=parcel.subject, reason=error.message)
            delay_s = None
        except TransientError as failure:
            log.warning("delivery.no_bus", reason=failure.message)
        finally:
            await self._settle(parcel, delay_s)

    async def _settle(self, parcel: Parcel, delay_s: float | None) -> None:
        self._held.discard(parcel)
        self._room.set()
        await (parcel.ack() if delay_s is None else parcel.nak(delay_s))

    async def _keep(self) -> None:
        """What is held too long would be handed to another replica as well."""
        while True:
            await asyncio.sleep(self._limits.in_progress_s)
            for parcel in list(self._held):
                if parcel in self._held:
                    await parcel.in_progress()

    async def _finish(self) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._limits.grace_s)
            await service.end(*late)
            if late:
                await asyncio.wait(late, timeout=PAUSE_S)
        await self._outbox.close()

    def _start(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _at_most(wait: Awaitable[object], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await wait
    except TimeoutError:
        return
