"""Patterns for paths, as shells have them: ``*``, ``?``, ``[a-z]``, ``**`` and ``{a,b}``."""

import fnmatch
import re

from agent_worker.tool import ToolError
from agent_worker.workspace.paths import Parts

MAX_ALTERNATIVES = 64
MAX_CHARACTERS = 500
_BRACES = re.compile(r"\{([^{}]*)\}")
_ANY_FOLDERS = None


class PathPattern:
    """One pattern. Without a slash it is for names, in whatever folder; else for whole paths.

    Raises ToolError for a pattern that is empty, too long or has too many alternatives.
    """

    def __init__(self, pattern: str) -> None:
        if not pattern.strip() or len(pattern) > MAX_CHARACTERS:
            raise ToolError(f"a pattern has 1 to {MAX_CHARACTERS} characters, such as **/*.md.")
        self._alternatives = [_compiled(one) for one in _expanded(pattern)]

    def matches(self, parts: Parts) -> bool:
        """Whether the path fits; in time of path times pattern, whatever they are."""
        return any(_fits(pieces, parts) for pieces in self._alternatives)


_Pieces = list[re.Pattern[str] | None]


def _compiled(pattern: str) -> _Pieces:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if "/" not in pattern:
        names.insert(0, "**")
    # A name cannot be longer, and translate writes stars so that they do not backtrack.
    return [_ANY_FOLDERS if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _expanded(pattern: str) -> list[str]:
    """``a.{b,c}`` is ``a.b`` and ``a.c``."""
    done, waiting = [], [pattern]
    while waiting:
        found = _BRACES.search(one := waiting.pop(0))
        if found is None:
            done.append(one)
            continue
        head, tail = one[: found.start()], one[found.end() :]
        waiting += [head + choice + tail for choice in found[1].split(",")]
        if len(waiting) + len(done) > MAX_ALTERNATIVES:
            raise ToolError(f"the braces make more than {MAX_ALTERNATIVES} patterns; use fewer.")
    return done


def _fits(pieces: _Pieces, parts: Parts) -> bool:
    """Follow all ways at once: a set of positions in the pattern, one step for each name."""
    here = _skipping({0}, pieces)
    for name in parts:
        after = set()
        for at in here:
            if at == len(pieces):
                continue
            piece = pieces[at]
            if piece is _ANY_FOLDERS:
                after.add(at)
            elif piece.match(name):
                after.add(at + 1)
        here = _skipping(after, pieces)
    return len(pieces) in here


def _skipping(positions: set[int], pieces: _Pieces) -> set[int]:
    """The positions, and those behind a ``**``, which fits nothing too."""
    reached = set(positions)
    for at in sorted(positions):
        while at < len(pieces) and pieces[at] is _ANY_FOLDERS:
            at += 1
            reached.add(at)
    return reached
