"""Starts a process in a session of its own that ends when ours ends."""

import ctypes
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from posthouse.embedded.account import Account

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Command:
    """What to run: ``env`` is added to ours, ``account`` is whose rights it gets."""

    args: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    account: Account | None = None
    # What the kernel sends it when our process is gone (Linux only).
    death_signal: signal.Signals = signal.SIGKILL
    # At most what a pipe holds without a reader, 64 kB.
    stdin: bytes = b""


def popen(command: Command, output: int) -> subprocess.Popen[bytes]:
    """Start a command with both outputs to the file descriptor ``output``. Raises OSError.

    Call it in the main thread: the kernel ends a child with the thread that started it.
    """
    with warnings.catch_warnings():
        # Newer Pythons warn of a fork beside threads; the child makes two plain calls, then exec.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = _popen(command, output)
    if process.stdin is not None:
        with process.stdin as pipe:
            pipe.write(command.stdin)
    return process


def _popen(command: Command, output: int) -> subprocess.Popen[bytes]:
    account = command.account
    return subprocess.Popen(
        [str(argument) for argument in command.args],
        stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
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
    # Looked up before the fork. The child runs this after it has changed its account, which
    # would clear the setting.
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it was gone before we asked
            os._exit(1)

    return in_child
