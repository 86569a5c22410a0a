"""Webhooks: what a platform posts to us, and what a channel makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from posthouse.errors import PermanentError
from posthouse.messages import InboundMessage


class BadSignature(PermanentError):
    """The webhook is not signed as this bot wants it."""

    code = "bad_signature"


class NotAllowed(PermanentError):
    """The sender is not among those whom the bot listens to."""

    code = "not_allowed"


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A request as it came: the very bytes that were signed, header names in small letters."""

    headers: Mapping[str, str]
    body: bytes
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Received:
    """What a webhook brought: messages to store, none for an event without a meaning here, and
    the body of the answer that the platform gets once they are stored.
    """

    messages: tuple[InboundMessage, ...] = ()
    answer: bytes = b"{}"
    media_type: str = "application/json"


@runtime_checkable
class Receiver(Protocol):
    """A channel that receives webhooks, beside what every channel does."""

    @property
    def name(self) -> str:
        """The platform, first part of the path: ``/webhooks/<name>/<bot>``."""
        ...

    def receive(self, request: WebhookRequest) -> Received:
        """Verify, then understand. No I/O: a platform waits, and sends again what takes long.

        Raises BadSignature before it looks into the body, then BadMessage, AddressError and
        NotAllowed.
        """
        ...
