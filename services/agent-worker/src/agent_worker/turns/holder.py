"""Holds one conversation: turn after turn, in arrival order, until nothing waits."""

import asyncio
from collections import Counter
from typing import NamedTuple

import structlog

from agent_worker import ingress, settings
from agent_worker.ports import Inbox, StreamMessage, TurnApi
from agent_worker.turns.briefing import TurnTools
from agent_worker.turns.journal import HandOver
from agent_worker.turns.notices import Notices
from agent_worker.turns.outbox import Outbox
from agent_worker.turns.turn import Gone, Turn
from posthouse import subjects, turns
from posthouse.address import Address
from posthouse.errors import Fenced, PosthouseError, TransientError
from posthouse.settings import Settings
from posthouse.turns import Controls, Lease, Position

log = structlog.get_logger(__name__)

MAX_COUNTED = 1000


class Services(NamedTuple):
    """What all holders of a worker share."""

    name: str
    settings: Settings
    api: TurnApi
    inbox: Inbox
    outbox: Outbox
    notices: Notices
    turn_tools: TurnTools
    faults: "Faults"
    slots: asyncio.Semaphore
    stopping: asyncio.Event


class Faults:
    """Counts our own exceptions by message, so that a fault of ours ends in an apology too."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int, int]] = Counter()

    def add(self, head: tuple[str, Position]) -> None:
        """One more; old counts go when there are many."""
        if len(self._counts) >= MAX_COUNTED:
            self._counts.clear()
        self._counts[_place(head)] += 1

    def too_many(self, head: tuple[str, Position]) -> bool:
        """True when this message should be given up."""
        return self._counts[_place(head)] >= settings.MAX_ATTEMPTS


def _place(head: tuple[str, Position]) -> tuple[str, int, int]:
    key, position = head
    return key, position.generation, position.seq


class Holder:
    """A lease at work. ``run`` ends when the conversation is free, lost or handed back."""

    def __init__(self, services: Services, lease: Lease) -> None:
        self._s = services
        self.lease = lease
        self.committing = False
        self.freed = False
        self._checked = lease.checked
        self._waiting = lease.waiting
        self._turn: Turn | None = None
        domain = Address.parse(lease.address).domain
        self._merge = services.settings.queue_mode(domain) == "collect"

    def obey(self, controls: Controls) -> None:
        """Hand commands to the running turn."""
        if self._turn is not None:
            self._turn.obey(controls)

    async def run(self) -> None:
        """Work until nothing waits. Hands back on failure, so that another worker goes on."""
        try:
            await self._work()
        except Fenced:
            log.warning("lease.lost", conversation=self.lease.key, epoch=self.lease.epoch)
        except (Gone, HandOver, TransientError) as why:
            log.info("lease.given_back", conversation=self.lease.key, why=type(why).__name__)
            await self._release()
        except asyncio.CancelledError:
            if self._s.stopping.is_set():
                await self._release()
            raise
        except Exception:
            # A fault of ours is no attempt of the message: hand back, count it here, raise alarm.
            log.exception("turn.broken", conversation=self.lease.key)
            if self._waiting:
                self._s.faults.add(self._head())
            await self._release()

    async def _work(self) -> None:
        await self._s.outbox.publish(self.lease.unpublished)
        while self._waiting and not self._s.stopping.is_set():
            positions = await self._next_positions()
            if positions:
                await self._play(positions)
        if not self.freed:
            await self._release()

    async def _play(self, positions: list[Position]) -> None:
        async with self._s.slots:
            if self._s.stopping.is_set():
                raise HandOver
            self._turn = turn = Turn(self._s.turn_tools, self.lease, self._s.stopping)
            try:
                give_up = self._s.faults.too_many(self._head())
                committed = await turn.play(positions, self._checked, self._commits, give_up)
            finally:
                self._turn = None
        # Before anything is awaited: a renewal of a freed lease would be told "lost".
        self.freed = committed.freed
        self.committing = False
        self._waiting = committed.waiting
        await self._s.outbox.publish(committed.unpublished, turn.feed)

    def _head(self) -> tuple[str, Position]:
        return self.lease.key, self._waiting[0].position

    def _commits(self) -> None:
        self.committing = True

    async def _next_positions(self) -> list[Position]:
        """The messages of the next turn, when nothing older can be missing."""
        await self._look_up()
        waiting = [w.position for w in self._waiting]
        return waiting if self._merge else waiting[:1]

    async def _look_up(self) -> None:
        """Admit what the stream has before the messages of the next turn.

        Workers race: a later message may be stored while an earlier one is still on its way.
        """
        while self._waiting:
            target = self._waiting[-1 if self._merge else 0].position
            if target <= self._checked:
                return
            after = self._after(target)
            found = await self._s.inbox.next_message(
                f"{subjects.INBOUND_PREFIX}.{self.lease.key}", after
            )
            if found is None or target <= found.position:
                self._checked = target
                return
            await self._admit(found)
            self._checked = found.position

    def _after(self, target: Position) -> Position:
        if target.generation == self._checked.generation:
            return self._checked
        return Position(generation=target.generation, seq=0)

    async def _admit(self, message: StreamMessage) -> None:
        letter = ingress.read(message, self._s.settings.embedded)
        if ingress.command_of(letter) is not None:
            return  # it is handled where it was delivered, and never becomes a turn
        if any(w.source_id == letter.source_id for w in self._waiting):
            return
        result = await self._s.notices.admit(self.lease, message, letter)
        self._waiting = result.waiting

    async def _release(self) -> None:
        request = turns.ReleaseRequest(key=self.lease.key, epoch=self.lease.epoch)
        try:
            await self._s.api.release(request)
        except PosthouseError as error:
            # It is not renewed any more: the lease runs out by itself.
            log.warning("lease.not_released", conversation=self.lease.key, reason=error.message)
