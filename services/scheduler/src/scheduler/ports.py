"""What the handlers need from the outside."""

from typing import Any, Protocol


class Schedules(Protocol):
    """Where the records of the schedules are kept."""

    async def records(self) -> list[dict[str, Any]]:
        """Every record, in the order of their ids. Raises Unavailable."""
        ...
