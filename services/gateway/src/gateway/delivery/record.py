"""The delivery record of a conversation: a KV entry changed by compare-and-set only (R17).

``last`` is the highest seq that is over: sent, expired, refused, skipped, or unknown. ``current``
is the message in work. Parts count from 1. Times are Unix milliseconds.
"""

from typing import Literal

from pydantic import Field

from posthouse.messages import Wire

MAX_NOTES = 20

PartState = Literal["sending", "sent", "unknown"]


class Unknown(Wire):
    """A part of which nobody knows whether the platform took it."""

    seq: int
    part: int


class Current(Wire):
    """The message in work. ``sending``: part ``part`` is on its way; ``sent`` and ``unknown``: it
    is over and the next one not begun (part 0 = none is). Until ``until`` only ``owner`` may act;
    with no owner that is the pause after a failure. ``attempts`` counts failures.
    """

    seq: int
    part: int
    state: PartState
    owner: str = ""
    until: int = 0
    key: str = ""
    attempts: int = 0


class Entry(Wire):
    """The record. ``floor``: what came before the record began; ``at``: its latest change; the
    newest notes of ``unknown`` parts and of messages ``skipped`` because nobody had them.
    """

    generation: int
    last: int = 0
    current: Current | None = None
    floor: int = 0
    at: int = 0
    unknown: tuple[Unknown, ...] = Field(default=(), max_length=MAX_NOTES)
    skipped: tuple[int, ...] = Field(default=(), max_length=MAX_NOTES)

    def in_work(self) -> Current | None:
        """The current message, None when it is over."""
        current = self.current
        return current if current is not None and current.seq > self.last else None

    def to_value(self) -> bytes:
        """JSON for the bucket; ``current`` is null when nothing is in work."""
        return self.model_dump_json().encode()

    def mark_unknown(self, seq: int, part: int) -> "Entry":
        """Note that the outcome of a part is unknown; the oldest notes make room."""
        notes = (*self.unknown, Unknown(seq=seq, part=part))[-MAX_NOTES:]
        return self.model_copy(update={"unknown": notes})

    def is_unknown(self, seq: int, part: int) -> bool:
        """True if a note says that the outcome of the part is unknown."""
        return Unknown(seq=seq, part=part) in self.unknown

    def with_current(self, current: Current, now: int) -> "Entry":
        """The same with another message or part in work."""
        return self.model_copy(update={"current": current, "at": now})

    def finished(self, seq: int, now: int) -> "Entry":
        """The same with ``seq`` over."""
        return self.model_copy(update={"last": seq, "current": None, "at": now})

    def begun_at(self, last: int, now: int) -> "Entry":
        """The same, for a conversation that goes on behind ``last``."""
        return self.finished(last, now).model_copy(update={"floor": last})

    def without(self, seq: int, now: int) -> "Entry":
        """The same with ``seq`` over, never seen."""
        skipped = (*self.skipped, seq)[-MAX_NOTES:]
        return self.finished(seq, now).model_copy(update={"skipped": skipped})

    def never_saw(self, seq: int) -> bool:
        """True for a message that was passed over: it came before the record, or was skipped."""
        return seq <= self.floor or seq in self.skipped
