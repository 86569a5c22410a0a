"""Child processes: with a log file each, watched and ended by us."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from posthouse.embedded.spawn import Command, popen
from posthouse.errors import PosthouseError

MAX_LOG_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 8 * 1024
TAIL_LINES = 12
LOW_SPACE_BYTES = 32 * 1024 * 1024
POLL_S = 0.02
KILL_TIMEOUT_S = 10.0


class StartError(PosthouseError):
    """Something did not come up; the message says why, or holds the end of its log."""

    code = "start"


async def eventually(
    condition: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S
) -> bool:
    """Wait until the condition holds; False when it still does not after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(poll_s)
    return True


class ChildProcess:
    """One child over all its restarts. Subclasses say what to run."""

    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 30.0

    def __init__(self, name: str, log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def command(self) -> Command:
        """What to run."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """Process id of the latest start, 0 before the first."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll() if self._process else None

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Run it, without waiting. Raises OSError when the log or the program cannot be opened."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        _rotate(self.log_file)
        with self.log_file.open("ab") as output:
            self._log_start = output.tell()
            self._process = popen(self.command(), output.fileno())

    async def stop(self) -> None:
        """Ask it to stop; kill it after ``grace_s`` seconds. Does nothing when it does not run."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(self.stop_signal)
        if not await self.ended(self.grace_s):
            await self.end()

    async def end(self) -> None:
        """Kill it, if it still runs, and wait for its end."""
        self.kill()
        await self.ended(KILL_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL to it and to what it started in its process group."""
        if self._process is not None and self.running:
            # Its id cannot be another's yet: we have not collected its exit code.
            os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self, timeout_s: float, poll_s: float = POLL_S) -> bool:
        """Wait for its end; False when it still runs after ``timeout_s`` seconds."""
        return await eventually(lambda: not self.running, timeout_s, poll_s)

    def log_tail(self) -> str:
        """The last lines it wrote since its latest start."""
        with self.log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def failed(self, what: str) -> StartError:
        """The error that it ``what``, with the end of its log."""
        free = shutil.disk_usage(self.log_file.parent).free
        hint = f"; only {free // 1024} kB of disk space are left" if free < LOW_SPACE_BYTES else ""
        text = f"{self.name} {what}{hint}. The end of {self.log_file}:\n{self.log_tail()}"
        return StartError(text, process=self.name, exit_code=self.exit_code)


class Program(ChildProcess):
    """A child that does one thing and ends."""

    def __init__(self, name: str, command: Command, log_file: Path) -> None:
        super().__init__(name, log_file)
        self._command = command

    def command(self) -> Command:
        """What to run."""
        return self._command

    async def run(self, timeout_s: float) -> None:
        """Run it to its end. Raises StartError when it fails or takes too long, and OSError."""
        self.spawn()
        try:
            if not await self.ended(timeout_s):
                raise self.failed(f"did not end in {timeout_s:g} s")
        finally:
            await self.end()
        if self.exit_code:
            raise self.failed(f"ended with exit code {self.exit_code}")


class Server(ChildProcess):
    """A child that is ready at some time and then stays. Subclasses say when that is."""

    start_timeout_s: float = 60.0
    ready_poll_s: float = POLL_S

    async def is_ready(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """What must be done before each start: files, left-over processes."""

    async def start(self) -> None:
        """Run it and wait until it is ready.

        Raises StartError when it ends first or is not ready in ``start_timeout_s`` seconds (then
        it is killed), and OSError.
        """
        await self.prepare()
        self.spawn()
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Wait until it answers. Raises StartError."""
        deadline = time.monotonic() + self.start_timeout_s
        while not await self.is_ready():
            if not self.running:
                raise self.failed(f"ended with exit code {self.exit_code}")
            if time.monotonic() > deadline:
                await self.end()
                raise self.failed(f"was not ready in {self.start_timeout_s:g} s")
            await asyncio.sleep(self.ready_poll_s)


def _rotate(file: Path) -> None:
    if file.exists() and file.stat().st_size > MAX_LOG_BYTES:
        file.replace(file.with_name(f"{file.name}.1"))
