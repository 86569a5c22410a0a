"""The real memory service as a child process, and requests for it."""

import sys
from pathlib import Path

import httpx

from posthouse.embedded.ports import LOOPBACK, free_port
from posthouse.embedded.process import Server
from posthouse.embedded.spawn import Command


class MemoryService(Server):
    """``python -m memory`` on the given servers; ready when ``/readyz`` says so."""

    start_timeout_s = 20.0

    def __init__(self, directory: Path, nats_url: str, dsn: str, **settings: str) -> None:
        self.port = free_port()
        super().__init__("memory", directory / f"memory-{self.port}.log")
        self._env = {
            "POSTHOUSE_NATS_URL": nats_url,
            "POSTHOUSE_POSTGRES_DSN": dsn,
            "POSTHOUSE_HEALTH_PORT": str(self.port),
            **{f"POSTHOUSE_MEMORY__{name.upper()}": value for name, value in settings.items()},
        }

    def command(self) -> Command:
        """The service, with its settings in the environment."""
        return Command((sys.executable, "-m", "memory"), env=self._env)

    async def is_ready(self) -> bool:
        """Whether all its checks pass."""
        try:
            return bool((await self.ready())["ready"])
        except httpx.TransportError:
            return False

    async def ready(self) -> dict[str, object]:
        """What ``/readyz`` says. Raises httpx.TransportError while nothing listens."""
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://{LOOPBACK}:{self.port}/readyz", timeout=5)
        return dict(answer.json())
