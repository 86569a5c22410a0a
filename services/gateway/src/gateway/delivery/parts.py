"""One part on its way to the platform."""

import asyncio
import hashlib
from collections.abc import Sequence

import structlog

from gateway.delivery.claim import Clock
from gateway.delivery.decision import Replica
from gateway.delivery.letter import Letter
from gateway.delivery.record import Current
from gateway.ports import Channel, OutcomeUnknown, Part
from posthouse.errors import PermanentError, PosthouseError
from posthouse.messages import OutboundMessage

log = structlog.get_logger(__name__)


class Crash(OutcomeUnknown):
    """The channel raised an error that it should not raise."""

    code = "channel_crash"


def idempotency_key(conversation: str, generation: int, seq: int, part: int) -> str:
    """The same for the same part, whoever sends it and when; 32 hex digits."""
    text = f"{conversation}\n{generation}\n{seq}\n{part}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class PartSender:
    """Sends parts through a channel and sorts out how that may end."""

    def __init__(self, channel: Channel, me: Replica, clock: Clock) -> None:
        self._channel = channel
        self._me = me
        self._clock = clock

    def split(self, message: OutboundMessage) -> Sequence[Part]:
        """The parts of a message. Raises PermanentError when there are none."""
        try:
            parts = self._channel.split(message)
        except Exception as error:
            log.exception("delivery.split_failed", channel=self._channel.name)
            raise PermanentError("the channel cannot split the message") from error
        if not parts:
            raise PermanentError("the channel has nothing to send of the message")
        return parts

    def sending(self, letter: Letter, part: int, attempts: int) -> Current:
        """The record of a part on its way; the lease begins now."""
        return Current(
            seq=letter.arrival.seq,
            part=part,
            state="sending",
            owner=self._me.owner,
            until=self._clock() + round(self._me.limits.lease_s * 1000),
            key=self.key(letter, part),
            attempts=attempts,
        )

    def key(self, letter: Letter, part: int) -> str:
        """The idempotency key of a part."""
        return idempotency_key(letter.key, *letter.place, part)

    async def send(self, message: OutboundMessage, part: Part, key: str) -> bool:
        """True when the platform took the part, False when nobody knows and nobody may retry.

        Raises TransientError when it can be sent again, PermanentError when it never can.
        """
        try:
            async with asyncio.timeout(self._me.limits.send_s):
                await self._channel.send(message, part, key)
        except TimeoutError:
            return self._unclear(OutcomeUnknown("the channel did not answer in time"))
        except OutcomeUnknown as error:
            return self._unclear(error)
        except PosthouseError:
            raise
        except Exception as error:
            log.exception("delivery.channel_crashed", channel=self._channel.name)
            return self._unclear(Crash(f"the channel raised {type(error).__name__}"))
        return True

    def _unclear(self, error: OutcomeUnknown) -> bool:
        if self._me.idempotent:
            raise error
        return False
