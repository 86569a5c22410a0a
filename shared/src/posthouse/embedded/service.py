"""One of our own services as a child process, ready when its ``/readyz`` says so."""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from posthouse.embedded import orphans
from posthouse.embedded.datadir import DataDir
from posthouse.embedded.ports import LOOPBACK
from posthouse.embedded.process import Server, StartError
from posthouse.embedded.spawn import Command
from posthouse.errors import ConfigError
from posthouse.service import EXIT_REFUSED

# In the environment of every service; by it a left-over process is known as ours.
STACK_VARIABLE = "POSTHOUSE_STACK_DIR"
PROBE_TIMEOUT_S = 3.0


class Refused(StartError, ConfigError):
    """The service refuses to start like this; the message is the reason that it gave."""


@dataclass(frozen=True)
class ServiceSpec:
    """What to run: arguments of this Python, and the port on which ``/readyz`` answers."""

    name: str
    args: Sequence[str]
    port: int
    host: str = LOOPBACK
    env: Mapping[str, str] = field(default_factory=dict)


class Service(Server):
    """A service of the stack that lives in ``data``."""

    # While it imports, every look costs it time.
    ready_poll_s = 0.1

    def __init__(self, spec: ServiceSpec, data: DataDir) -> None:
        super().__init__(spec.name, data.logs / f"{spec.name}.log")
        self._spec = spec
        self._data = data
        self._pid_file = data.run / f"{spec.name}.pid"

    @property
    def ready_url(self) -> str:
        """Where it says what it misses."""
        return f"http://{self._spec.host}:{self._spec.port}/readyz"

    def command(self) -> Command:
        """This very Python with the given arguments."""
        env = {**self._spec.env, STACK_VARIABLE: str(self._data.root)}
        return Command((sys.executable, *self._spec.args), env=env)

    def spawn(self) -> None:
        """Run it, without waiting, and note its process id. Raises OSError."""
        super().spawn()
        self._pid_file.write_text(str(self.pid))

    def failed(self, what: str) -> StartError:
        """The error that it ``what``; where it said why it refuses, that in place of its log."""
        reason = _reason(self.log_tail()) if self.exit_code == EXIT_REFUSED else ""
        return Refused(f"{self.name}: {reason}") if reason else super().failed(what)

    async def is_ready(self) -> bool:
        """Whether ``/readyz`` answers 200."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await self._status() == b"200"
        except (OSError, TimeoutError):
            return False

    async def _status(self) -> bytes:
        reader, writer = await asyncio.open_connection(self._spec.host, self._spec.port)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            await writer.drain()
            words = (await reader.readline()).split()
            return words[1] if len(words) > 1 else b""
        finally:
            writer.close()


def _reason(log: str) -> str:
    """The reason in the last line of a log, '' when there is none."""
    try:
        return str(json.loads(log.rpartition("\n")[2])["reason"])
    except (ValueError, KeyError, TypeError):
        return ""


async def end_orphans(data: DataDir) -> None:
    """End the services that a killed stack left. Raises StartError if one does not go.

    On Linux the kernel has ended them already.
    """

    def is_ours(process: psutil.Process) -> bool:
        return process.environ().get(STACK_VARIABLE) == str(data.root)

    found = [orphans.find(file, is_ours) for file in sorted(data.run.glob("*.pid"))]
    await asyncio.gather(*(orphans.end(process, (signal.SIGKILL,)) for process in found if process))
