"""Errors of the operating system in words for the model."""

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import stat_result

from agent_worker.tool import ToolError


def check_regular(status: stat_result, path: str) -> None:
    """Raises ToolError for everything but a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise is_folder(path)
    if stat.S_ISLNK(status.st_mode):
        raise is_link(path)
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{path} is no regular file.")


@contextmanager
def told(path: str) -> Iterator[None]:
    """Turns OSError into ToolError; ``path`` is what the model asked for."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"there is no {path}. See with glob what there is.") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise is_link(path) from error
        if error.errno == errno.ENXIO:
            raise ToolError(f"{path} is no regular file.") from error
        raise ToolError(f"{path}: {error.strerror or error}.") from error


def is_folder(path: str) -> ToolError:
    """For a folder in the place of a file."""
    return ToolError(f"{path} is a folder; name a file. See with glob what is in it.")


def is_link(path: str) -> ToolError:
    """For a link anywhere in the path."""
    return ToolError(
        f"{path} leads through a symbolic link or a file that is no folder. Links are not "
        "followed; name the file itself."
    )
