"""``posthouse up`` and other commands as processes, for tests."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.servers import postgres_folder
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
STANDINS = Path(__file__).with_name("standins")
ANY_PORTS = ("--http-port", "0", "--nats-port", "0", "--postgres-port", "0")
READY_TIMEOUT_S = 120.0
COMMAND_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


async def run_cli(
    *args: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: str | bytes = b"",
) -> Result:
    """Run ``posthouse <args>`` to its end, with ``input`` piped into it."""
    process = await _posthouse(*args, env=env, cwd=cwd, stdin=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            out, err = await process.communicate(
                input.encode() if isinstance(input, str) else input
            )
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Result(int(process.returncode or 0), out.decode(), err.decode())


class Up:
    """A running ``posthouse up`` on free ports, with a directory of its own."""

    def __init__(self, directory: Path, env: Mapping[str, str] | None = None) -> None:
        self.data_dir = directory / "data"
        self.ready_file = directory / "ready.json"
        self._env = env
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process of ``posthouse up`` itself."""
        assert self._process is not None
        return self._process

    async def spawn(self, *args: str) -> None:
        """Start it without waiting; ``args`` come last and so win over the free ports."""
        own = ("--data-dir", str(self.data_dir), "--ready-file", str(self.ready_file))
        self._process = await _posthouse("up", *ANY_PORTS, *own, *args, env=self._env)

    async def start(self, *args: str) -> dict[str, Any]:
        """Start it and wait until it is ready; returns what the ready file says."""
        await self.spawn(*args)
        await eventually(self._ready_or_over, READY_TIMEOUT_S, "posthouse up is ready")
        return self.ready()

    def ready(self) -> dict[str, Any]:
        """What the ready file says now, {} when there is none."""
        try:
            content: dict[str, Any] = json.loads(self.ready_file.read_text())
        except FileNotFoundError:
            return {}
        return content

    def processes(self) -> list[psutil.Process]:
        """Everything that runs below ``posthouse up`` now."""
        return psutil.Process(self.process.pid).children(recursive=True)

    async def stop(self, number: signal.Signals = signal.SIGINT) -> Result:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return await self.end()

    async def end(self) -> Result:
        """Wait for its end."""
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            out, err = await self.process.communicate()
        return Result(int(self.process.returncode or 0), out.decode(), err.decode())

    async def clean_up(self) -> None:
        """Leave nothing behind, whatever happened in the test."""
        if self._process is not None and self._process.returncode is None:
            await self.stop(signal.SIGTERM)

    def _ready_or_over(self) -> bool:
        assert self.process.returncode is None, "posthouse up ended before it was ready"
        # Not the file that a killed one left.
        return self.ready().get("pid") == self.process.pid


@asynccontextmanager
async def stack(env: Mapping[str, str] | None = None) -> AsyncIterator[Up]:
    """An ``Up`` that is certainly stopped in the end, with a directory of its own."""
    with postgres_folder() as directory:
        up = Up(directory, env)
        try:
            yield up
        finally:
            await up.clean_up()


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a zombie does not."""
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def standin_env(directory: Path) -> dict[str, str]:
    """The environment in which the services are stand-ins, steered by files in ``directory``."""
    directory.mkdir(exist_ok=True)
    # As modules of these names on the path they come before the installed services.
    path = os.pathsep.join((str(STANDINS), str(ROOT)))
    return {"PYTHONPATH": path, "STANDIN_DIR": str(directory)}


async def _posthouse(
    *args: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "posthouse",
        *args,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # As in a terminal of its own: signals reach it alone.
        start_new_session=True,
    )
