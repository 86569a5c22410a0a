"""The HTTP interface as a channel: its readers follow the events of a conversation.

The answer of a turn is in the last event of its workflow already. What belongs to no workflow
(replies to commands, refusals) becomes an event here.
"""

from collections.abc import Sequence
from typing import Protocol

from gateway.egress import Egress
from gateway.ports import Capabilities, Channel, Part
from posthouse.address import Address
from posthouse.messages import OutboundMessage
from posthouse.settings import Settings

NAME = "web"


class Readers(Protocol):
    """Those who read the events of a conversation, at any gateway."""

    async def show(self, message: OutboundMessage) -> None:
        """Show them a message; they know a repeat by its id. Raises Unavailable."""
        ...


def address(id: str) -> Address:
    """A conversation or a person of this channel. Raises AddressError."""
    return Address.im(NAME, id)


class Web:
    """The channel ``web``, always there."""

    name = NAME
    domain = NAME
    capabilities = Capabilities(idempotent=True)

    def __init__(self, readers: Readers | None = None) -> None:
        self._readers = readers

    def split(self, message: OutboundMessage) -> Sequence[Part]:
        """One part, however long."""
        return [Part(message.content, message.media)]

    async def send(self, message: OutboundMessage, part: Part, idempotency_key: str) -> None:
        """Show what is no answer to the readers, if there are any. Raises Unavailable."""
        if self._readers is not None and message.kind != "final":
            await self._readers.show(message)


def build(settings: Settings, egress: Egress) -> list[Channel]:
    """The one channel; ``main`` gives it its readers when the bus is there."""
    return [Web()]
