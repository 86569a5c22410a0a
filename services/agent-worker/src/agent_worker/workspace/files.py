"""Files below one directory, reached without following a link.

Every path is walked from the root, folder by folder, each opened relative to the one before and
never through a symbolic link. So it does not matter when somebody swaps a folder for a link: what
is open stays what it was. A hard link cannot be told from the file it is; the workspace lies in a
directory of its own, where only this user can make one. Writing puts a new file in the place of
the old one, so it never changes what a hard link shares.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from agent_worker.tool import ToolContext, ToolError
from agent_worker.workspace import paths
from agent_worker.workspace.paths import Parts

# More is not looked at: the walk stays within seconds.
MAX_ENTRIES = 200_000
# What an empty file or a folder costs on a disk, about.
ENTRY_BYTES = 4096
PART_PREFIX = ".posthouse-part-"
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
            raise _is_folder(path)
        with self._folder(parts[:-1], path) as folder, _told(path):
            descriptor = os.open(parts[-1], _READ, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                _check_regular(os.fstat(descriptor), path)
                yield file

    def replace(self, parts: Parts, data: bytes, limit: int) -> bool:
        """Write a file: afterwards it has ``data``, or what it had before; True if it is new.

        Creates folders. Raises ToolError also if all files would have more than ``limit`` bytes.
        """
        path = _path(parts)
        if not parts:
            raise _is_folder(path)
        self._make_root()
        with self._folder(parts[:-1], path, create=True) as folder, _told(path):
            before = _status(parts[-1], folder)
            if before is not None:
                _check_regular(before, path)
            self._check_room(len(data) - (before.st_size if before else -ENTRY_BYTES), limit)
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
                    raise ToolError(f"more than {MAX_ENTRIES:,} files; name a folder to look in.")
                if stat.S_ISDIR(status.st_mode) and len(parts) < paths.MAX_DEPTH:
                    folders.append((*parts, name))
                elif stat.S_ISREG(status.st_mode) and not name.startswith(PART_PREFIX):
                    yield Found((*parts, name), status.st_size, status.st_mtime)
            waiting += reversed(folders)

    def used(self) -> int:
        """Bytes of all files; each counts 4 kB at least, so that their number is bounded too."""
        return sum(max(file.size, ENTRY_BYTES) for file in self.walk())

    def _entries(self, parts: Parts, must_be_there: bool) -> list[tuple[str, os.stat_result]]:
        try:
            with self._folder(parts, _path(parts)) as folder, os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
                listed = [(name, _status(name, folder)) for name in names if _is_text(name)]
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

    def _make_root(self) -> None:
        with _told(str(self.root)):
            self.root.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)

    @contextmanager
    def _folder(self, parts: Parts, path: str, create: bool = False) -> Iterator[int]:
        """A descriptor of a folder; ``path`` is what the model asked for."""
        with _told(path):
            folder = os.open(self.root, _FOLDER)
        try:
            with _told(path):
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
