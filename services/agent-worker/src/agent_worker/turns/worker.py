"""Takes messages from the stream, stores them, and holds the conversations they open."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from agent_worker import ingress, settings
from agent_worker.commands import Commands
from agent_worker.ports import Delivery
from agent_worker.turns.heartbeat import Conversations
from agent_worker.turns.holder import Holder, Services
from posthouse import streams
from posthouse.errors import BadRequest, PosthouseError, TransientError, Unavailable
from posthouse.turns import Lease, OpenResult

log = structlog.get_logger(__name__)


class Worker:
    """The pull loops of a worker."""

    def __init__(
        self, services: Services, conversations: Conversations, commands: Commands
    ) -> None:
        self._s = services
        self._conversations = conversations
        self._commands = commands
        self._taking: set[asyncio.Task[None]] = set()

    def hold(self, lease: Lease) -> None:
        """Start working on a conversation."""
        self._conversations.start(Holder(self._s, lease))

    async def pull_turns(self) -> None:
        """Fetch a message whenever there is room for its conversation, until cancelled."""
        while True:
            await self._conversations.reserve()
            try:
                delivery = await self._s.inbox.fetch(streams.TURNS)
            except Unavailable as error:
                log.warning("inbox.unavailable", reason=error.message)
                self._conversations.unreserve()
                await asyncio.sleep(settings.NAK_DELAY_S)
                continue
            except asyncio.CancelledError:
                self._conversations.unreserve()
                raise
            if delivery is None:
                self._conversations.unreserve()
                continue
            task = asyncio.create_task(self._take(delivery), name="take")
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    async def pull_commands(self) -> None:
        """Commands need no ownership and never wait behind turns (R3)."""
        while True:
            try:
                delivery = await self._s.inbox.fetch(streams.COMMANDS)
                if delivery is not None:
                    await self._settle(delivery, self._commands.handle_delivery(delivery.message))
            except TransientError as error:
                log.warning("inbox.unavailable", reason=error.message)
                await asyncio.sleep(settings.NAK_DELAY_S)

    async def settled(self, timeout_s: float) -> None:
        """Wait for the messages that are being stored, at most ``timeout_s`` seconds."""
        if self._taking:
            await asyncio.wait(self._taking, timeout=timeout_s)

    async def _take(self, delivery: Delivery) -> None:
        try:
            await self._settle(delivery, self._store(delivery))
        finally:
            self._conversations.unreserve()

    async def _store(self, delivery: Delivery) -> None:
        message = delivery.message
        letter = ingress.read(message, self._s.settings.embedded)
        if command := ingress.command_of(letter):
            await self._commands.handle(message, letter, command)
            return
        result = await self._s.notices.open(message, letter)
        await self._go_on(result)

    async def _go_on(self, result: OpenResult) -> None:
        if result.lease is not None:
            self.hold(result.lease)
        await self._s.outbox.publish(result.unpublished)

    async def _settle(self, delivery: Delivery, work: Coroutine[Any, Any, None]) -> None:
        """Ack what was stored; what was not goes back to the stream."""
        seq = delivery.message.position.seq
        try:
            await work
        except BadRequest as error:
            log.error("message.refused", seq=seq, reason=error.message)
        except PosthouseError as error:
            log.warning("message.delayed", seq=seq, code=error.code, reason=error.message)
            await self._give_back(delivery)
            return
        except Exception:
            log.exception("message.broken", seq=seq)
            await self._give_back(delivery)
            return
        try:
            await delivery.ack()
        except TransientError as error:
            # It comes again and is found stored.
            log.warning("ack.lost", seq=seq, reason=error.message)

    async def _give_back(self, delivery: Delivery) -> None:
        try:
            await delivery.nak(settings.NAK_DELAY_S)
        except TransientError as error:
            # Its ack_wait runs out, and it comes again.
            log.warning("nak.lost", seq=delivery.message.position.seq, reason=error.message)
