"""Child processes: started in a session of their own, ended by us, and gone when we are gone."""

import asyncio
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from posthouse.embedded.account import Account
from posthouse.errors import PosthouseError

MAX_LOG_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 8 * 1024
TAIL_LINES = 12
LOW_SPACE_BYTES = 32 * 1024 * 1024
POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


class StartError(PosthouseError):
    """A process did not come up; the message holds the end of its log."""

    code = "start"


@dataclass(frozen=True)
class Command:
    """What to run: ``env`` is added to ours, ``account`` is whose rights it gets."""

    args: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    account: Account | None = None
    # What the kernel sends it when our process is gone (Linux only).
    death_signal: signal.Signals = signal.SIGKILL


class ChildProcess:
    """One process, over all its restarts. Subclasses say how to run it and when it is ready.

    ``start`` must be called in the main thread: the kernel ends a child with the thread that
    started it.
    """

    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 30.0
    start_timeout_s: float = 60.0

    def __init__(self, name: str, log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def command(self) -> Command:
        """What to run."""
        raise NotImplementedError

    async def is_ready(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """What must be done before each start: files, left-over processes."""

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

    async def start(self) -> None:
        """Run it and wait until it is ready.

        Raises StartError when it ends first or is not ready in ``start_timeout_s`` seconds (then
        it is killed), and OSError when the log or the program cannot be opened.
        """
        await self.prepare()
        self.spawn()
        await self.wait_ready()

    def spawn(self) -> None:
        """Run it, without waiting. Raises OSError."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        _rotate(self.log_file)
        with self.log_file.open("ab") as output:
            self._log_start = output.tell()
            self._process = popen(self.command(), output.fileno())

    async def wait_ready(self) -> None:
        """Wait until it answers. Raises StartError."""
        try:
            async with asyncio.timeout(self.start_timeout_s):
                while not await self.is_ready():
                    if not self.running:
                        raise self._failed(f"ended with exit code {self.exit_code}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            self.kill()
            raise self._failed(f"was not ready in {self.start_timeout_s:g} s") from None

    async def stop(self) -> None:
        """Ask it to stop; kill it after ``grace_s`` seconds. Does nothing when it does not run."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(self.stop_signal)
        if not await self.ended(self.grace_s):
            self.kill()
            await self.ended(self.grace_s)

    def kill(self) -> None:
        """SIGKILL to it and to what it started in its process group."""
        if self._process is not None and self.running:
            # Its id cannot be another's yet: we have not collected its exit code.
            os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self, timeout_s: float) -> bool:
        """Wait for its end; False when it still runs after ``timeout_s`` seconds."""
        return await eventually(lambda: not self.running, timeout_s)

    def log_tail(self) -> str:
        """The last lines it wrote since its latest start."""
        with self.log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def _failed(self, what: str) -> StartError:
        free = shutil.disk_usage(self.log_file.parent).free
        hint = f"; only {free // 1024} kB of disk space are left" if free < LOW_SPACE_BYTES else ""
        text = f"{self.name} {what}{hint}. The end of {self.log_file}:\n{self.log_tail()}"
        return StartError(text, process=self.name, exit_code=self.exit_code)


async def eventually(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until the condition holds; False when it still does not after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


def popen(
    command: Command, output: int, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a command with both outputs to the file descriptor ``output``. Raises OSError."""
    account = command.account
    return subprocess.Popen(
        [str(argument) for argument in command.args],
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=command.cwd,
        env={**os.environ, **command.env},
        start_new_session=True,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        preexec_fn=_end_with_parent(command.death_signal),
    )


def _end_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    # Looked up before the fork; after it only plain calls are safe.
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it was gone before we asked
            os._exit(1)

    return in_child


def _rotate(file: Path) -> None:
    if file.exists() and file.stat().st_size > MAX_LOG_BYTES:
        file.replace(file.with_name(f"{file.name}.1"))
