"""Files below one directory, reached without following a link.

Every path is walked from the root, folder by folder, each opened relative to the one before and
never through a symbolic link. So it does not matter when somebody swaps a folder for a link: what
is open stays what it was. A hard link cannot be told from the file it is; the workspace lies in a
directory of its own, where only this user can make one. Writing puts a new file in the place of
the old one, so it never changes what a hard link shares.
"""

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from agent_worker.tool import ToolContext, ToolError
from agent_worker.workspace import paths, problems
from agent_worker.workspace.paths import Parts

# More is not looked at: the walk stays within seconds.
MAX_ENTRIES = 200_000
# What an empty file or a folder costs on a disk, about.
ENTRY_BYTES = 4096
PART_PREFIX = ".posthouse-part-"
LEFT_OVER_S = 3600.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO waits for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


class Found(NamedTuple):
    """A regular file: size in bytes, time of the last change in seconds."""

    parts: Parts
    size: int
    changed: float

    @property
    def path(self) -> str:
        """Relative to the root."""
        return "/".join(self.parts)


class Workspace:
    """The directory ``root``; it is created by the first write. Errors are ToolErrors."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def parse(self, path: str) -> Parts:
        """See ``paths.parse``."""
        return paths.parse(path, self.root)

    @contextmanager
    def open(self, parts: Parts) -> Iterator[BinaryIO]:
        """A regular file, to read. Never blocks, whatever lies there."""
        path = _path(parts)
        if not parts:
            raise problems.is_folder(path)
        with self._folder(parts[:-1], path) as folder, problems.told(path):
            descriptor = os.open(parts[-1], _READ, dir_fd=folder)
            try:
                problems.check_regular(os.fstat(descriptor), path)
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    yield file
            finally:
                os.close(descriptor)

    def contents(self, parts: Parts, limit: int) -> bytes:
        """All of a regular file. Raises ToolError if that is more than ``limit`` bytes."""
        with self.open(parts) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ToolError(f"{_path(parts)} is larger than {limit >> 20} MiB. Use grep.")
        return data

    def replace(self, parts: Parts, data: bytes, limit: int) -> bool:
        """Write a file: afterwards it has ``data``, or what it had before; True if it is new.

        Creates folders. Raises ToolError also if all files would have more than ``limit`` bytes.
        """
        path = _path(parts)
        if not parts:
            raise problems.is_folder(path)
        self.create()
        with self._folder(parts[:-1], path, create=True) as folder, problems.told(path):
            before = _status(parts[-1], folder)
            if before is not None:
                problems.check_regular(before, path)
            freed = _cost(before.st_size) if before else 0
            self._check_room(_cost(len(data)) - freed, limit)
            mode = stat.S_IMODE(before.st_mode) & 0o777 if before else _FILE_MODE
            _put(parts[-1], data, mode, folder)
        return before is None

    def walk(self, below: Parts = ()) -> Iterator[Found]:
        """The regular files below a folder, by name; those in folders that cannot be read left out.

        Raises ToolError if ``below`` is no folder, and if there are more than 200,000 entries.
        """
        seen = 0
        waiting = [below]
        while waiting:
            parts = waiting.pop()
            folders = []
            for name, status in self._entries(parts, must_be_there=parts == below):
                seen += 1
                if seen > MAX_ENTRIES:
                    raise ToolError(f"there are more than {MAX_ENTRIES:,} files; name a folder.")
                if stat.S_ISDIR(status.st_mode) and len(parts) < paths.MAX_DEPTH:
                    folders.append((*parts, name))
                elif stat.S_ISREG(status.st_mode) and not name.startswith(PART_PREFIX):
                    yield Found((*parts, name), status.st_size, status.st_mtime)
            waiting += reversed(folders)

    def find(self, below: Parts) -> Iterator[Found]:
        """The file itself, or what ``walk`` finds below the folder."""
        if below:
            with self._folder(below[:-1], _path(below)) as folder:
                status = _status(below[-1], folder)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                problems.check_regular(status, _path(below))
                yield Found(below, status.st_size, status.st_mtime)
                return
        yield from self.walk(below)

    def used(self) -> int:
        """Bytes of all files; each counts 4 kB at least, so that their number is bounded too."""
        return sum(_cost(file.size) for file in self.walk())

    def _entries(self, parts: Parts, must_be_there: bool) -> list[tuple[str, os.stat_result]]:
        try:
            with self._folder(parts, _path(parts)) as folder, os.scandir(folder) as entries:
                names = sorted(e.name for e in entries if paths.can_be_named(e.name))
                listed = [(name, _status(name, folder)) for name in names]
        except (ToolError, OSError):
            if must_be_there and parts:
                raise
            return []
        return [(name, status) for name, status in listed if status is not None]

    def _check_room(self, more: int, limit: int) -> None:
        used = self.used()
        if more > 0 and used + more > limit:
            raise ToolError(
                f"the working directory holds {used:,} of at most {limit:,} bytes, and this adds "
                f"{more:,}. Write less, or empty files that are not needed."
            )

    def create(self) -> None:
        """Make the directory, for this user alone."""
        with problems.told(str(self.root)):
            self.root.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            self.root.mkdir(mode=_FOLDER_MODE, exist_ok=True)

    @contextmanager
    def _folder(self, parts: Parts, path: str, create: bool = False) -> Iterator[int]:
        """A descriptor of a folder; ``path`` is what the model asked for."""
        with problems.told(path):
            folder = os.open(self.root, _FOLDER)
        try:
            with problems.told(path):
                for name in parts:
                    if create:
                        with suppress(FileExistsError):
                            os.mkdir(name, _FOLDER_MODE, dir_fd=folder)
                    below = os.open(name, _FOLDER, dir_fd=folder)
                    os.close(folder)
                    folder = below
            yield folder
        finally:
            os.close(folder)


def of(ctx: ToolContext) -> Workspace:
    """The workspace of the conversation that calls. Raises ToolError if it has none."""
    if ctx.workspace is None:
        raise ToolError("this request belongs to no conversation, and so it has no files.")
    return Workspace(ctx.workspace)


def _cost(size: int) -> int:
    return max(size, ENTRY_BYTES)


def _put(name: str, data: bytes, mode: int, folder: int) -> None:
    """Write a part file and rename it: others see the old file or the whole new one."""
    _remove_left_overs(folder)
    part = PART_PREFIX + secrets.token_hex(8)
    descriptor = os.open(part, _CREATE, _FILE_MODE, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file, ExitStack() as failed:
        failed.callback(_unlink, part, folder)
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        failed.pop_all()


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _remove_left_overs(folder: int) -> None:
    """Parts that a killed worker left; a young one may still be written by another call."""
    for name in os.listdir(folder):
        if name.startswith(PART_PREFIX):
            status = _status(name, folder)
            if status and time.time() - status.st_mtime > LEFT_OVER_S:
                with suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(name, dir_fd=folder)


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _path(parts: Parts) -> str:
    return "/".join(parts) or "the working directory"
