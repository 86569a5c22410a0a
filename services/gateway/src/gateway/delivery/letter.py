"""Outbound messages as they come from the bus or from memory."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pydantic import ValidationError

from gateway.delivery.decision import Arrival
from gateway.ports import Found
from posthouse import subjects
from posthouse.bus import GENERATION
from posthouse.errors import BadMessage
from posthouse.messages import OutboundMessage
from posthouse.turns import Outgoing

FIRST_GENERATION = 1
"""Of messages without the header: the generation before any restore."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A readable outbound message; ``stream_seq`` is 0 when memory handed it over."""

    key: str
    arrival: Arrival
    message: OutboundMessage
    subject: str
    body: bytes
    stream_seq: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Generation and seq: its place in the conversation."""
        return self.arrival.generation, self.arrival.seq

    @property
    def name(self) -> str:
        """The same for the same message, wherever it came from."""
        return f"delivery:{self.key}:{self.arrival.generation}:{self.arrival.seq}"


def read(found: Found) -> Letter:
    """Understand a message. Raises BadMessage."""
    key = subjects.conversation_key(found.subject)
    try:
        message = OutboundMessage.model_validate_json(found.body)
        generation = int(found.headers.get(GENERATION, FIRST_GENERATION))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise BadMessage(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise BadMessage(f"the header {GENERATION} is no number") from error
    if message.seq is None or message.seq < 1:
        raise BadMessage("an outbound message needs a seq from 1 on")
    if subjects.key(message.conversation) != key:
        raise BadMessage("the body names another conversation than its subject")
    published, expires = milliseconds(found.time), _expiry(message)
    arrival = Arrival(generation, message.seq, published, expires, found.deliveries)
    return Letter(key, arrival, message, found.subject, found.body, found.stream_seq)


def missing(outgoing: Outgoing, asked_by: Letter) -> Letter:
    """A message that memory had and the bus did not bring; ``asked_by`` comes after it."""
    message = outgoing.body
    arrival = replace(asked_by.arrival, seq=outgoing.seq, expires=_expiry(message))
    return Letter(asked_by.key, arrival, message, asked_by.subject, message.to_wire())


def milliseconds(time: datetime) -> int:
    """Unix milliseconds; a time without a zone is UTC."""
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _expiry(message: OutboundMessage) -> int | None:
    return None if message.expires_at is None else milliseconds(message.expires_at)
