"""What to do with an outbound message, given the record of its conversation (R17). Pure.

Times are Unix milliseconds, delays seconds.
"""

from dataclasses import dataclass

from gateway.delivery.record import Current, Entry
from gateway.settings import DeliveryLimits


@dataclass(frozen=True, slots=True)
class Arrival:
    """What counts of a message here: its place, when it was published, when it expires, how
    often it was handed out, and whether the gap before it was waited for already.
    """

    generation: int
    seq: int
    published: int
    expires: int | None = None
    deliveries: int = 1
    waited: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """Who decides: its id, since when it runs, and what its channel can do."""

    owner: str
    started: int
    idempotent: bool
    limits: DeliveryLimits


@dataclass(frozen=True, slots=True)
class Send:
    """Claim the conversation and send from ``part`` on; the outcome of ``lost`` is unknown."""

    part: int
    lost: int | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Hand it back and look again after ``delay_s`` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Done:
    """It is over already: acknowledge."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It can no longer be delivered: dead-letter, and leave the record as it is."""

    reason: str


@dataclass(frozen=True, slots=True)
class Expire:
    """It is too old to be sent: dead-letter, and go on with the next."""

    lost: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Message ``seq`` should have come by now: ask memory for it."""

    seq: int


@dataclass(frozen=True, slots=True)
class Locate:
    """Nothing is recorded of this conversation: find out where to begin."""


Action = Send | Wait | Done | Refuse | Expire | Ask | Locate


def decide(entry: Entry | None, message: Arrival, now: int, me: Replica) -> Action:
    """The next action for a message; after it, or a lost compare-and-set, decide again."""
    if entry is None:
        return _begin(entry, message, now, me)
    if entry.generation > message.generation:
        return Refuse("a restore replaced the generation it belongs to")
    if entry.generation == message.generation and message.seq <= entry.last:
        if entry.never_saw(message.seq):
            return Refuse("it came after the messages that follow it")
        return Done()
    if wait := _held(entry.in_work(), message, now, me):
        return wait
    if entry.generation < message.generation:
        return _begin(entry, message, now, me)
    if message.seq > entry.last + 1:
        return _gap(entry, message, now, me)
    return _next(entry.in_work(), message, now, me)


def pause_s(message: Arrival, limits: DeliveryLimits) -> float:
    """Seconds after which to look again at a busy conversation: soon, then less often."""
    doubled: float = limits.first_look_s * 2 ** min(max(message.deliveries - 1, 0), 16)
    return min(doubled, limits.busy_s)


def _held(current: Current | None, message: Arrival, now: int, me: Replica) -> Wait | None:
    if current is None or current.until <= now or current.owner == me.owner:
        return None
    left_s = (current.until - now) / 1000
    # A pause after a failure lasts as long as it says; another sender may be done any time.
    return Wait(min(left_s, pause_s(message, me.limits)) if current.owner else left_s)


def _begin(entry: Entry | None, message: Arrival, now: int, me: Replica) -> Action:
    if message.seq == 1:
        return _next(None, message, now, me)
    since = max(message.published, me.started, entry.at if entry else 0)
    left_s = me.limits.unrecorded_gap_s - (now - since) / 1000
    return Wait(min(left_s, pause_s(message, me.limits))) if left_s > 0 else Locate()


def _gap(entry: Entry, message: Arrival, now: int, me: Replica) -> Action:
    if message.waited:
        return Ask(entry.last + 1)
    # Measured from the latest progress, or else every backlog would look like a gap.
    current = entry.in_work()
    since = max(message.published, me.started, entry.at, current.until if current else 0)
    left_s = me.limits.gap_s - (now - since) / 1000
    return Wait(min(left_s, pause_s(message, me.limits))) if left_s > 0 else Ask(entry.last + 1)


def _next(current: Current | None, message: Arrival, now: int, me: Replica) -> Action:
    broken_off = current is not None and current.state == "sending"
    lost = current.part if current is not None and broken_off and not me.idempotent else None
    if message.expires is not None and message.expires <= now:
        return Expire(lost)
    if current is None:
        return Send(1)
    again = broken_off and me.idempotent
    return Send(current.part + (not again), lost, current.attempts)
