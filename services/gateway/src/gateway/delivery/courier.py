"""Does what ``decision.py`` says: sends, records, dead-letters, asks for what is missing."""

from dataclasses import dataclass, replace

import structlog

from gateway.delivery import letter as letters
from gateway.delivery.claim import Claim, Clock
from gateway.delivery.decision import Ask, Done, Expire, Locate, Refuse, Replica, Send, Wait, decide
from gateway.delivery.letter import Letter
from gateway.delivery.patience import bury
from gateway.delivery.record import Entry
from gateway.delivery.sending import Sender
from gateway.ports import Channel, DeadLetters, Missing, Outbox, Records, Stored
from posthouse.errors import BadMessage, TransientError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outside:
    """What a courier works with."""

    channel: Channel
    outbox: Outbox
    records: Records
    memory: Missing
    dead_letters: DeadLetters
    clock: Clock


class Courier:
    """Delivers the messages of one bot; the caller hands in one at a time per conversation."""

    def __init__(self, outside: Outside, me: Replica) -> None:
        self._out = outside
        self._me = me
        self._sender = Sender(outside.channel, outside.dead_letters, me, outside.clock)

    async def deliver(self, letter: Letter) -> float | None:
        """Go as far as possible now: None when the message is over, else seconds to wait."""
        place = letter.arrival
        try:
            while True:
                stored = await self._out.records.read(letter.key)
                action = decide(stored.entry, place, self._out.clock(), self._me)
                match action:
                    case Done():
                        return None
                    case Wait():
                        return action.delay_s
                    case Refuse():
                        return await self._refuse(letter, action)
                    case Send():
                        claim, entry = self._claim(letter, stored), self._entry(letter, stored)
                        return await self._sender.send(letter, action, claim, entry)
                    case _:
                        delay_s = await self._detour(letter, stored, action)
                        if delay_s is not None:
                            return delay_s
                        place = replace(place, waited=isinstance(action, Ask))
        except TransientError as error:
            log.info("delivery.put_off", key=letter.key, code=error.code, reason=error.message)
            return error.retry_after_s

    async def _detour(
        self, letter: Letter, stored: Stored, action: Expire | Ask | Locate
    ) -> float | None:
        """What changes the record without sending; afterwards decide again."""
        match action:
            case Expire():
                await self._expire(letter, stored, action)
            case Ask():
                return await self._fill_gap(letter, stored, action.seq)
            case Locate():
                await self._begin_record(letter, stored)
        return None

    async def _refuse(self, letter: Letter, action: Refuse) -> float | None:
        await bury(self._out.dead_letters, letter, action.reason)
        return None

    async def _expire(self, letter: Letter, stored: Stored, action: Expire) -> None:
        seq, entry = letter.arrival.seq, self._entry(letter, stored)
        if action.lost is not None:
            entry = entry.mark_unknown(seq, action.lost)
        await bury(self._out.dead_letters, letter, "expired")
        await self._claim(letter, stored).write(lambda: entry.finished(seq, self._out.clock()))

    async def _fill_gap(self, letter: Letter, stored: Stored, seq: int) -> float | None:
        outgoing = await self._out.memory.missing(letter.key, letter.arrival.generation, seq)
        if outgoing is None:
            log.warning("delivery.skipped", key=letter.key, seq=seq)
            entry = self._entry(letter, stored)
            await self._claim(letter, stored).write(lambda: entry.without(seq, self._out.clock()))
            return None
        if outgoing.seq != seq:
            raise TransientError("memory answered another message than was asked for")
        return await self.deliver(letters.missing(outgoing, letter))

    async def _begin_record(self, letter: Letter, stored: Stored) -> None:
        """Nothing is recorded of this generation, and the message is not its first.

        The record is lost, or idle longer than the bucket keeps it, or a restore began a new
        generation. What is acknowledged in the stream is over, so begin with the first that is
        not: to ask memory for all from 1 on would send whole conversations again.
        """
        place = letter.arrival
        last = min(place.seq, await self._first_unfinished(letter)) - 1
        if stored.entry is not None:
            # After a restore: whatever memory has of the new generation was never sent.
            while last and await self._out.memory.missing(letter.key, place.generation, last):
                last -= 1
        entry = self._entry(letter, stored)
        await self._claim(letter, stored).write(lambda: entry.begun_at(last, self._out.clock()))
        log.warning("delivery.record_begun", key=letter.key, last=last)

    async def _first_unfinished(self, letter: Letter) -> int:
        floor = await self._out.outbox.ack_floor()
        found = await self._out.outbox.next_after(letter.subject, floor)
        try:
            arrival = letters.read(found).arrival if found is not None else letter.arrival
        except BadMessage:  # it is dead-lettered when its turn comes
            arrival = letter.arrival
        same = arrival.generation == letter.arrival.generation
        return arrival.seq if same else letter.arrival.seq

    def _claim(self, letter: Letter, stored: Stored) -> Claim:
        return Claim(self._out.records, letter.key, stored, self._me.owner, self._me.limits)

    def _entry(self, letter: Letter, stored: Stored) -> Entry:
        """The record to build on: a newer generation counts from the start."""
        generation = letter.arrival.generation
        if stored.entry is None:
            return Entry(generation=generation)
        if stored.entry.generation == generation:
            return stored.entry
        return Entry(generation=generation, unknown=stored.entry.unknown)
