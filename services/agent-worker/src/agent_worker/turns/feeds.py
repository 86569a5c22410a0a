"""Event writers that still have something to publish when their turn is over."""

import asyncio

from agent_worker.events import EventWriter

# A feed that cannot be written for so long is given up: Postgres keeps the record.
PATIENCE_S = 30.0


class Feeds:
    """Keeps the writers of finished turns until their last event is out."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def close(self, writer: EventWriter) -> None:
        """Let a writer finish in the background."""
        task = asyncio.create_task(writer.close(PATIENCE_S), name="feed")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def settled(self, timeout_s: float) -> None:
        """Wait for all of them, at most ``timeout_s`` seconds."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=timeout_s)
