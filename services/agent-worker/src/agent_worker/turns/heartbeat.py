"""One call a second: renew what is held, report what was published, adopt orphans, relay."""

import asyncio
from collections.abc import Callable

import structlog

from agent_worker import settings
from agent_worker.ports import TurnApi
from agent_worker.turns.holder import Holder
from agent_worker.turns.outbox import Outbox
from posthouse import service, turns
from posthouse.errors import PosthouseError
from posthouse.turns import HeartbeatResult, HeldCall, HeldLease, Lease, Outgoing

log = structlog.get_logger(__name__)


class Conversations:
    """What a worker holds: holders and their tasks, and how many more it may take."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reserved = 0
        self._changed = asyncio.Event()
        self.holders: dict[str, Holder] = {}
        self.tasks: dict[Holder, asyncio.Task[None]] = {}

    @property
    def room(self) -> int:
        """How many more conversations may be taken now."""
        return max(0, self._limit - len(self.tasks) - self._reserved)

    async def reserve(self) -> None:
        """Wait for room and keep a place for what will be fetched."""
        while not self.room:
            self._changed.clear()
            await self._changed.wait()
        self._reserved += 1

    def unreserve(self) -> None:
        """Give the place back: it was used, or is not needed."""
        self._reserved -= 1
        self._changed.set()

    def start(self, holder: Holder) -> None:
        """Run a holder; an older one of the same conversation has lost its lease."""
        self.cancel(holder.lease.key)
        self.holders[holder.lease.key] = holder
        task = asyncio.create_task(holder.run(), name=f"holder {holder.lease.key}")
        self.tasks[holder] = task
        task.add_done_callback(lambda _: self._ended(holder))

    def _ended(self, holder: Holder) -> None:
        del self.tasks[holder]
        if self.holders.get(holder.lease.key) is holder:
            del self.holders[holder.lease.key]
        self._changed.set()

    def cancel(self, key: str) -> None:
        """End the holder of a lost lease, unless its commit decides by itself."""
        holder = self.holders.get(key)
        if holder is not None and not holder.committing:
            self.tasks[holder].cancel()

    async def hand_over(self, timeout_s: float) -> None:
        """Wait for the holders to hand back at a step border; cut short what takes longer."""
        if not self.tasks:
            return
        _, late = await asyncio.wait(set(self.tasks.values()), timeout=timeout_s)
        await service.end(*late)

    def leases(self) -> list[HeldLease]:
        """What to renew: a commit renews or frees by itself."""
        return [
            HeldLease(key=key, epoch=holder.lease.epoch)
            for key, holder in self.holders.items()
            if not holder.freed
        ]


class Heartbeat:
    """Beats from ``start`` to ``stop``; ``hint`` makes the next beat come soon.

    ``alive`` is called with each beat, whatever becomes of it.
    """

    def __init__(
        self,
        worker: str,
        api: TurnApi,
        outbox: Outbox,
        conversations: Conversations,
        calls: dict[str, int],
        adopt: Callable[[Lease], None],
        cancel_call: Callable[[str], None],
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._worker = worker
        self._api = api
        self._outbox = outbox
        self._conversations = conversations
        self._calls = calls
        self._adopt = adopt
        self._cancel_call = cancel_call
        self._alive = alive
        self._hinted = asyncio.Event()
        self._good_beats = 0
        self._task: asyncio.Task[None] | None = None
        self._relaying: set[asyncio.Task[None]] = set()
        self.stopping = False

    def hint(self) -> None:
        """A command waits: look now."""
        self._hinted.set()

    def start(self) -> asyncio.Task[None]:
        """Beat in a task of its own until ``stop``."""
        self._task = asyncio.create_task(self._run(), name="heartbeat")
        return self._task

    async def stop(self) -> None:
        """Stop beating; the last beat reports what was published."""
        if self._task is not None:
            await service.end(self._task)
        await self.beat()

    async def _run(self) -> None:
        while True:
            self._alive()
            await self.beat()
            await asyncio.sleep(settings.MIN_BEAT_S)
            try:
                async with asyncio.timeout(settings.HEARTBEAT_S - settings.MIN_BEAT_S):
                    await self._hinted.wait()
            except TimeoutError:
                continue
            finally:
                self._hinted.clear()

    async def beat(self) -> None:
        """One beat; a failed one is logged, and two good ones must follow before adopting."""
        reports = self._outbox.reports()
        request = turns.HeartbeatRequest(
            worker=self._worker,
            leases=self._conversations.leases(),
            calls=[HeldCall(call_id=c, epoch=e) for c, e in self._calls.items()],
            published=reports,
            adopt=self._may_adopt(),
        )
        try:
            result = await self._api.heartbeat(request)
        except PosthouseError as error:
            self._good_beats = 0
            log.warning("heartbeat.failed", code=error.code, reason=error.message)
            return
        self._good_beats += 1
        self._outbox.reported(reports)
        self._apply(request, result)
        self._relay(result.relay)

    def _relay(self, outgoing: list[Outgoing]) -> None:
        # Beside the beats: a slow stream must not hold up the next renewal.
        if outgoing:
            task = asyncio.create_task(self._outbox.publish(outgoing), name="relay")
            self._relaying.add(task)
            task.add_done_callback(self._relaying.discard)

    def _may_adopt(self) -> int:
        if self.stopping or self._good_beats < 2:
            return 0
        return min(settings.ADOPT_PER_BEAT, self._conversations.room)

    def _apply(self, request: turns.HeartbeatRequest, result: HeartbeatResult) -> None:
        asked = {lease.key: lease.epoch for lease in request.leases}
        for key in result.lost:
            holder = self._conversations.holders.get(key)
            # Freed or taken anew while the beat was on its way: not lost. A commit decides itself.
            settled = holder is None or holder.freed or holder.committing
            if holder is not None and not settled and holder.lease.epoch == asked[key]:
                log.warning("lease.lost", conversation=key, epoch=asked[key])
                self._conversations.cancel(key)
        for key, controls in result.controls.items():
            if holder := self._conversations.holders.get(key):
                holder.obey(controls)
        for call_id in {*result.lost_calls, *result.cancels}:
            self._cancel_call(call_id)
        for lease in result.adopted:
            log.info("lease.adopted", conversation=lease.key, epoch=lease.epoch)
            self._adopt(lease)
