"""Service processes as production starts them, for tests that kill, stop and watch them."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import httpx

from tests.support.wait import eventually

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 35.0


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServiceProcess:
    """``python -m <package>`` with its own log file and health port."""

    def __init__(self, package: str, environment: dict[str, str], folder: Path) -> None:
        self.package = package
        self.health_url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / f"{package}-{self.health_url[-5:]}.log"
        port = self.health_url.rpartition(":")[2]
        self._environment = {
            **os.environ,
            **environment,
            "POSTHOUSE_HEALTH_PORT": port,
            "POSTHOUSE_HTTP_PORT": port,
        }
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> "ServiceProcess":
        """Start and wait until it is ready."""
        await self.spawn()
        await eventually(self._ready, READY_TIMEOUT_S, f"{self.package} ready; see {self.log}")
        return self

    async def spawn(self) -> None:
        """Start without waiting."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self.package, env=self._environment, stdout=log, stderr=log
            )

    async def _ready(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            raise RuntimeError(f"{self.package} ended:\n{self.log.read_text()[-3000:]}")
        async with httpx.AsyncClient(timeout=3) as http:
            try:
                return (await http.get(f"{self.health_url}/readyz")).status_code == 200
            except httpx.TransportError:
                return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self, timeout_s: float | None = STOP_TIMEOUT_S) -> int:
        """Wait for the end; the exit code."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), timeout_s)

    async def stop(self) -> int:
        """SIGTERM, then wait; the exit code."""
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                return await self.ended()
            except TimeoutError:
                self.signal(signal.SIGKILL)
                await self.ended()
                raise
        return self._process.returncode
