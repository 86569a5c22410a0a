"""The EVENTS stream as the place where the events of a conversation are read."""

from nats.aio.client import Client

from posthouse import subjects
from posthouse.address import Address
from posthouse.feed import EventFeed, Place


class NatsFeeds:
    """All feeds over one connection."""

    def __init__(self, connection: Client) -> None:
        self._connection = connection

    def open(self, conversation: Address, after: Place | None) -> EventFeed:
        """The feed of a conversation behind a place; entering it raises Unavailable."""
        return EventFeed(self._connection, subjects.events_of(conversation), after)
