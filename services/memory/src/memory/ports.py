"""What the handlers need from the outside."""

from typing import Protocol

from posthouse.rpc import Raw


class Database(Protocol):
    """Calls one SQL function per request."""

    async def call(self, function: str, *arguments: object) -> Raw:
        """Run ``function(arguments…)``, answer its JSON. Raises the errors of the adapter."""
        ...

    async def beat(self, *arguments: object) -> Raw:
        """Run the heartbeat on the connections reserved for it."""
        ...
