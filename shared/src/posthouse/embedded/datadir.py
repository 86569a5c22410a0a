"""The directory of one embedded stack: its lock, its logs, and where others find it running."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from posthouse.embedded.process import StartError

DEFAULT = ".posthouse"
MIN_FREE_BYTES = 200 * 1024 * 1024
# Others may pass through, since Postgres may need an account of its own, but not look around.
MODE = 0o711


@dataclass(frozen=True)
class StackInfo:
    """A running stack: where it answers; process ids and ``/readyz`` addresses by service."""

    http_url: str
    nats_url: str
    postgres_dsn: str
    pid: int
    pids: dict[str, int | list[int]]
    ready_urls: dict[str, str] = field(default_factory=dict)


class DataDir:
    """Everything an embedded stack keeps lies below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().resolve()
        self.logs = self.root / "logs"
        self.run = self.root / "run"
        self._lock_file = self.root / "lock"
        self._stack_file = self.root / "stack.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Create the directory and keep it for this process alone.

        Raises StartError when another process has it, when it cannot be written, or when the disk
        is full.
        """
        with _clear_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True, mode=MODE)
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _locked(descriptor, fcntl.LOCK_EX):
                raise StartError(self._in_use(os.read(descriptor, 32).decode().strip()))
            with _clear_errors(self.root):
                self._check_space()
                os.truncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                self.logs.mkdir(exist_ok=True)
                self.run.mkdir(exist_ok=True)
            yield
        finally:
            os.close(descriptor)

    def publish(self, info: StackInfo) -> None:
        """Tell other commands that the stack answers. Raises OSError."""
        write_json(self._stack_file, asdict(info))

    def withdraw(self) -> None:
        """The stack does not answer any more. Raises OSError."""
        self._stack_file.unlink(missing_ok=True)

    def running(self) -> StackInfo | None:
        """The stack that runs on this directory and is ready, or None."""
        try:
            info = StackInfo(**json.loads(self._stack_file.read_text()))
            descriptor = os.open(self._lock_file, os.O_RDONLY)
        except (OSError, ValueError, TypeError):
            return None
        try:
            # A killed stack leaves its file behind, but not its lock.
            return None if _locked(descriptor, fcntl.LOCK_SH) else info
        finally:
            os.close(descriptor)

    def owner(self) -> str:
        """Id of the process that has the lock, ready or not; '' when none has it."""
        try:
            descriptor = os.open(self._lock_file, os.O_RDONLY)
        except OSError:
            return ""
        try:
            free = _locked(descriptor, fcntl.LOCK_SH)
            return "" if free else os.read(descriptor, 32).decode().strip()
        finally:
            os.close(descriptor)

    def _check_space(self) -> None:
        free = shutil.disk_usage(self.root).free
        if free < MIN_FREE_BYTES:
            raise StartError(
                f"only {free >> 20} MB are free for {self.root}, and {MIN_FREE_BYTES >> 20} MB are "
                "needed; make room, or choose another directory with --data-dir"
            )

    def _in_use(self, owner: str) -> str:
        by = f"process {owner}" if owner else "another process"
        return (
            f"{self.root} is in use by another posthouse ({by}); stop that one first, "
            "or choose another directory with --data-dir"
        )


def write_json(file: Path, data: dict[str, Any]) -> None:
    """Write a file that others only ever see whole. Raises OSError."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_text(json.dumps(data, indent=2) + "\n")
    fresh.replace(file)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _clear_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartError(
            f"cannot write to {root}: {reason}; choose another directory with --data-dir"
        ) from error
