"""A message on its way to the platform, part by part."""

from dataclasses import dataclass
from functools import partial

import structlog

from gateway.delivery.claim import Claim, Clock
from gateway.delivery.decision import Replica, Send
from gateway.delivery.letter import Letter
from gateway.delivery.parts import Crash, PartSender
from gateway.delivery.patience import bury
from gateway.delivery.record import Current, Entry
from gateway.ports import Channel, Conflict, DeadLetters
from posthouse.errors import PermanentError, TransientError

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Progress:
    """How far a message has come: the part in hand, the record so far, the failures so far."""

    part: int
    entry: Entry
    attempts: int


class Sender:
    """Sends the messages of one bot and records each part before and after."""

    def __init__(
        self, channel: Channel, dead_letters: DeadLetters, me: Replica, clock: Clock
    ) -> None:
        self._parts = PartSender(channel, me, clock)
        self._dead_letters = dead_letters
        self._limits = me.limits
        self._clock = clock

    async def send(self, letter: Letter, step: Send, claim: Claim, entry: Entry) -> float | None:
        """Send from ``step.part`` on: None when the message is over, else seconds to wait.

        Raises Conflict when another replica took the conversation over.
        """
        progress = Progress(step.part, entry, step.attempts)
        if step.lost is not None:
            mark_unknown(letter, progress, step.lost)
        try:
            await self._send_parts(letter, claim, progress)
        except Conflict:
            raise
        except PermanentError as error:
            await bury(self._dead_letters, letter, error.message, progress.attempts + 1)
        except TransientError as error:
            progress.attempts += 1
            if not self._is_hopeless(letter, error, progress.attempts):
                return await self._pause(letter, claim, progress, error)
            reason = f"given up: {error.message}"
            await bury(self._dead_letters, letter, reason, progress.attempts)
        await claim.write(lambda: progress.entry.finished(letter.arrival.seq, self._clock()))
        log.info("delivery.over", key=letter.key, seq=letter.arrival.seq)
        return None

    async def _send_parts(self, letter: Letter, claim: Claim, progress: Progress) -> None:
        parts = self._parts.split(letter.message)
        while progress.part <= len(parts):
            await claim.write(partial(self._begun, letter, progress))
            part, key = parts[progress.part - 1], self._parts.key(letter, progress.part)
            async with claim.kept(self._clock):
                known = await self._parts.send(letter.message, part, key)
            if not known:
                mark_unknown(letter, progress, progress.part)
            progress.part += 1

    def _begun(self, letter: Letter, progress: Progress) -> Entry:
        current = self._parts.sending(letter, progress.part, progress.attempts)
        return progress.entry.with_current(current, self._clock())

    def _is_hopeless(self, letter: Letter, error: TransientError, attempts: int) -> bool:
        if isinstance(error, Crash):
            return attempts >= self._limits.max_crashes
        age_s = (self._clock() - letter.arrival.published) / 1000
        return age_s > self._limits.give_up_s

    async def _pause(
        self, letter: Letter, claim: Claim, progress: Progress, error: TransientError
    ) -> float:
        backoff_s: float = self._limits.backoff_s * 2 ** min(progress.attempts - 1, 16)
        delay_s = max(error.retry_after_s, min(backoff_s, self._limits.max_backoff_s))
        await claim.write(lambda: self._paused(letter, progress, delay_s))
        log.warning(
            "delivery.failed",
            key=letter.key,
            seq=letter.arrival.seq,
            part=progress.part,
            attempts=progress.attempts,
            code=error.code,
            reason=error.message,
        )
        return delay_s

    def _paused(self, letter: Letter, progress: Progress, delay_s: float) -> Entry:
        now, seq, before = self._clock(), letter.arrival.seq, progress.part - 1
        current = Current(
            seq=seq,
            part=before,
            state="unknown" if progress.entry.is_unknown(seq, before) else "sent",
            until=now + round(delay_s * 1000),
            attempts=progress.attempts,
        )
        return progress.entry.with_current(current, now)


def mark_unknown(letter: Letter, progress: Progress, part: int) -> None:
    """Note that nobody knows whether the platform took a part."""
    progress.entry = progress.entry.mark_unknown(letter.arrival.seq, part)
    log.warning("delivery.unknown", key=letter.key, seq=letter.arrival.seq, part=part)
