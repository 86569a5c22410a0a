"""Processes that a killed stack left behind."""

import contextlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import structlog

from posthouse.embedded.process import StartError, eventually

log = structlog.get_logger(__name__)

PATIENCE_S = 10.0


def find(pid_file: Path, is_ours: Callable[[psutil.Process], bool]) -> psutil.Process | None:
    """The live process named in the first line of ``pid_file``, if ``is_ours`` says yes.

    The number alone proves nothing: it may belong to another process by now.
    """
    try:
        process = psutil.Process(int(pid_file.read_text().splitlines()[0]))
        return process if _alive(process) and is_ours(process) else None
    except (OSError, ValueError, IndexError, psutil.Error):
        return None


async def end(process: psutil.Process, signals: Sequence[signal.Signals]) -> None:
    """Send the signals one after the other, 10 s apart, until the process is gone.

    Raises StartError when it survives all of them.
    """
    log.warning("orphan.ending", pid=process.pid)
    for number in signals:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        if await eventually(lambda: not _alive(process), PATIENCE_S):
            return
    raise StartError(f"process {process.pid} is left over and does not end; end it yourself")


def _alive(process: psutil.Process) -> bool:
    # A zombie holds neither port nor file; its parent may never collect it.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
