"""The HTTP interface as a channel: clients read the history, so there is nothing to send."""

from collections.abc import Sequence

from gateway.egress import Egress
from gateway.ports import Capabilities, Channel, Part
from posthouse.address import Address
from posthouse.messages import OutboundMessage
from posthouse.settings import Settings

NAME = "web"


def address(id: str) -> Address:
    """A conversation or a person of this channel. Raises AddressError."""
    return Address.im(NAME, id)


class Web:
    """The channel ``web``, always there."""

    name = NAME
    domain = NAME
    capabilities = Capabilities(idempotent=True)

    def split(self, message: OutboundMessage) -> Sequence[Part]:
        """One part, however long."""
        return [Part(message.content, message.media)]

    async def send(self, message: OutboundMessage, part: Part, idempotency_key: str) -> None:
        """Nothing to do: that it is delivered is recorded by the caller."""


def build(settings: Settings, egress: Egress) -> list[Channel]:
    """The one channel."""
    return [Web()]
