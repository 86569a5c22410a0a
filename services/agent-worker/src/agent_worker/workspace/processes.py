"""Child processes that can be trusted with nothing: bounded in time and output, always killed."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

HEAD_BYTES = 48 * 1024
TAIL_BYTES = 16 * 1024
KILL_TIMEOUT_S = 5.0
_CHUNK = 64 * 1024


class Finished(NamedTuple):
    """``code`` is None for a process that was ended since its time was up."""

    output: str
    code: int | None


class Output:
    """The beginning and the end of what a process says."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """The next piece."""
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (more := len(self._tail) - TAIL_BYTES) > 0:
            del self._tail[:more]
            self._dropped += more

    def text(self) -> str:
        """All of it, with a mark where something is missing."""
        gap = f"\n[… {self._dropped:,} bytes left out …]\n" if self._dropped else ""
        # As one piece: a character may stand across the border.
        return bytes(self._head + gap.encode() + self._tail).decode(errors="replace")


async def run(
    command: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    stdin: bytes = b"",
) -> Finished:
    """Run a program in a session of its own, with nothing but ``env`` in its environment.

    It and its process group are killed when the time is up and when the caller is cancelled.
    Raises OSError if it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    output = Output()
    try:
        async with asyncio.timeout(timeout_s):
            await _talk(process, stdin, output)
        return Finished(output.text(), process.returncode)
    except TimeoutError:
        return Finished(output.text(), None)
    finally:
        await _end(process)


async def _talk(process: asyncio.subprocess.Process, stdin: bytes, output: Output) -> None:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a process without pipes")
    process.stdin.write(stdin)
    process.stdin.close()
    while data := await process.stdout.read(_CHUNK):
        output.add(data)
    await process.wait()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it and its group, unless it has ended: then its id may be another's."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_TIMEOUT_S):
            # asyncio waits for the end of a pipe too, and what stands in it must be read for that.
            while process.stdout and await process.stdout.read(_CHUNK):
                pass
            await process.wait()
