"""A program in a pseudo-terminal, and the screen that a person in front of it sees."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import pexpect
import pyte

from tests.support.wait import eventually

COLUMNS = 80
ROWS = 40
WAIT_S = 30.0
CTRL_C = "\x03"
CTRL_D = "\x04"
ENTER = "\r"
BACKSPACE = "\x7f"
UP = "\x1b[A"
PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"


class _Screen(pyte.Screen):
    """A screen that answers where its cursor is, as terminals do."""

    def __init__(self, columns: int, lines: int, descriptor: int) -> None:
        self._descriptor = descriptor
        super().__init__(columns, lines)

    def write_process_input(self, data: str) -> None:
        os.write(self._descriptor, data.encode())

    def report_device_status(self, mode: int, **options: Any) -> None:
        super().report_device_status(mode)


def _take_ctrl_c() -> None:
    """Tests that run in the background would hand on that it is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """``posthouse <args>`` in a terminal of 80 columns and 40 rows."""

    def __init__(self, *args: str, env: Mapping[str, str] | None = None) -> None:
        inherited = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "NO_COLOR")}
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "posthouse", *args],
            env={**inherited, "TERM": "xterm-256color", "LANG": "en_US.UTF-8", **(env or {})},
            dimensions=(ROWS, COLUMNS),
            preexec_fn=_take_ctrl_c,
        )
        self._screen = _Screen(COLUMNS, ROWS, self._child.child_fd)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = bytearray()
        asyncio.get_running_loop().add_reader(self._child.child_fd, self._read)

    @property
    def rows(self) -> list[str]:
        """What stands on the screen, without the spaces on the right and the empty rows below.

        A wide character takes two cells there, and is one character here.
        """
        return "\n".join(row.rstrip() for row in self._screen.display).rstrip().split("\n")

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(self.rows)

    @property
    def title(self) -> str:
        """The title of the window, '' if nothing set one."""
        return self._screen.title

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._child.child_fd, text.encode())

    async def says(self, words: str, timeout_s: float = WAIT_S) -> None:
        """Wait until the words are on the screen."""
        await self.until(lambda: words in self.text, words, timeout_s)

    async def ready(self, prompt: str = "you>") -> None:
        """Wait for an empty prompt in the last row."""
        await self.until(lambda: self.rows[-1] == prompt, f"the prompt {prompt}")

    async def until(self, probe: Any, what: str, timeout_s: float = WAIT_S) -> None:
        """Wait for something about the screen; a failure shows the screen."""
        try:
            await eventually(probe, timeout_s, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{self.text}") from None

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        self._screen.resize(rows, columns)
        self._child.setwinsize(rows, columns)

    async def ended(self, timeout_s: float = WAIT_S) -> int:
        """Wait for the end of the program; its exit code."""
        await self.until(lambda: not self._child.isalive(), "the end of the program", timeout_s)
        return int(self._child.exitstatus if self._child.exitstatus is not None else -1)

    async def close(self) -> None:
        """Leave nothing behind."""
        asyncio.get_running_loop().remove_reader(self._child.child_fd)
        await asyncio.to_thread(self._child.close, True)

    def _read(self) -> None:
        try:
            data = os.read(self._child.child_fd, 65536)
        except OSError:  # Linux: the program closed its side
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._child.child_fd)
            return
        self.raw += data
        self._stream.feed(data)
