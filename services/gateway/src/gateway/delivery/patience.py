"""What must reach the bus however long that takes, since nobody else knows it."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from gateway.delivery.letter import Letter
from gateway.ports import Conflict, DeadLetters
from posthouse.errors import TransientError

log = structlog.get_logger(__name__)

RETRY_S = 0.5


async def insist(call: Callable[[], Awaitable[None]], key: str) -> None:
    """Repeat a call until the bus answers. Raises Conflict and errors that do not pass."""
    while True:
        try:
            return await call()
        except Conflict:
            raise
        except TransientError as error:
            log.warning("delivery.not_recorded_yet", key=key, reason=error.message)
            await asyncio.sleep(RETRY_S)


async def bury(dead_letters: DeadLetters, letter: Letter, reason: str, attempts: int = 0) -> None:
    """Dead-letter a message; the same message is kept once."""

    async def keep() -> None:
        await dead_letters.keep(
            subject=letter.subject,
            body=letter.body,
            reason=reason,
            msg_id=letter.name,
            stream_seq=letter.stream_seq,
            attempts=attempts,
        )

    await insist(keep, letter.key)
    log.warning("delivery.dead", key=letter.key, seq=letter.arrival.seq, reason=reason)
