"""Reads paths as models write them: always to a place inside the workspace, or to an error.

This is about spelling alone. That no link leads out is the business of ``files``.
"""

import re
from pathlib import Path

from agent_worker.tool import ToolError

MAX_NAME_BYTES = 255
# Walking opens one folder after the other, from the root.
MAX_DEPTH = 64
SHOWN_CHARACTERS = 200
# Control characters, and lone surrogates, which no UTF-8 name has.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Parts = tuple[str, ...]


def parse(path: str, root: Path) -> Parts:
    """The folders and the name of a path below ``root``; empty for the root itself.

    ``.`` and ``..`` are resolved as text: links are never followed, so both ways agree. An
    absolute path must lie in ``root``. Raises ToolError for what leads out and for bad names.
    """
    if _UNPRINTABLE.search(path):
        raise ToolError(f"{shown(path)} holds control characters or no valid text; leave them out.")
    if "\\" in path:
        raise ToolError(f"{shown(path)}: separate folders with / in place of \\.")
    parts: list[str] = []
    for name in _relative(path, root).split("/"):
        if name == "..":
            if not parts:
                raise _outside(path, root)
            parts.pop()
        elif name not in ("", "."):
            parts.append(name)
    _check_sizes(path, parts)
    return tuple(parts)


def can_be_named(name: str) -> bool:
    """False for names on the disk that ``parse`` refuses; they are not shown either."""
    return not _UNPRINTABLE.search(name) and "\\" not in name


def shown(path: str) -> str:
    """A path of a model in an error: quoted, and not too long."""
    short = path if len(path) <= SHOWN_CHARACTERS else path[:SHOWN_CHARACTERS] + "…"
    return repr(short)


def _relative(path: str, root: Path) -> str:
    if not path.startswith("/"):
        return path
    base = str(root).rstrip("/")
    if path != base and not path.startswith(base + "/"):
        raise _outside(path, root)
    return path[len(base) :]


def _outside(path: str, root: Path) -> ToolError:
    return ToolError(
        f"{shown(path)} is outside of the working directory {root}. Use a path inside, such as "
        "notes/todo.md."
    )


def _check_sizes(path: str, parts: list[str]) -> None:
    if len(parts) > MAX_DEPTH:
        raise ToolError(f"{shown(path)} is more than {MAX_DEPTH} folders deep; use fewer.")
    if any(len(name.encode()) > MAX_NAME_BYTES for name in parts):
        raise ToolError(f"{shown(path)}: a name has more than {MAX_NAME_BYTES} bytes; shorten it.")
