"""Searches files for a regular expression; a program of its own, since it must be killable.

Python's ``re`` may need exponential time, holds the interpreter all the while and cannot be
stopped. The request is JSON on the standard input. What is found goes to the standard output as
it is found; a refusal too, with the exit code 3.
"""

import json
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agent_worker.tool import ToolError
from agent_worker.workspace import text
from agent_worker.workspace.files import Workspace
from agent_worker.workspace.patterns import PathPattern

REFUSED = 3
MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_MATCHES = 200
MAX_LINE = 300
BEFORE_MATCH = 100
# Behind the parent's own limit; it counts when the parent is killed.
CPU_S = 30
MEMORY_BYTES = 1024 * 1024 * 1024
NICE = 10
MORE = "[more lines match; narrow the pattern, the path or the glob]"


class Request(NamedTuple):
    """What to look for; ``path`` and ``glob`` may be ''. ``context`` is in lines."""

    root: str
    pattern: str
    path: str = ""
    glob: str = ""
    ignore_case: bool = False
    context: int = 0


class _Match(NamedTuple):
    line: int
    start: int


def search(request: Request) -> Iterator[str]:
    """Lines of the result. Raises ToolError for a request that cannot be understood."""
    pattern = _compiled(request)
    wanted = PathPattern(request.glob) if request.glob else None
    workspace = Workspace(Path(request.root))
    room, characters, too_large = MAX_MATCHES, 0, 0
    for file in workspace.find(workspace.parse(request.path)):
        if wanted and not wanted.matches(file.parts):
            continue
        if file.size > MAX_FILE_BYTES:
            too_large += 1
            continue
        lines = _lines(workspace, file.parts)
        found = _matches(pattern, lines, room + 1)
        for line in _shown(file.path, lines, found[:room], request.context):
            characters += len(line) + 1
            if characters > text.RESULT_CHARACTERS:
                yield MORE
                return
            yield line
        if len(found) > room:
            yield MORE
            return
        room -= len(found)
    if room == MAX_MATCHES:
        yield "No line matches."
    if too_large:
        yield f"[not searched since larger than {MAX_FILE_BYTES >> 20} MiB: {too_large} files]"


def _compiled(request: Request) -> re.Pattern[str]:
    try:
        return re.compile(request.pattern, re.IGNORECASE if request.ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(f"not a regular expression of Python: {error}.") from error


def _lines(workspace: Workspace, parts: tuple[str, ...]) -> list[str]:
    """Empty for what is no text, and for what is gone meanwhile."""
    try:
        data = workspace.contents(parts, MAX_FILE_BYTES)
        return text.lines_of(text.decode(data, "").content)
    except ToolError:
        return []


def _matches(pattern: re.Pattern[str], lines: list[str], most: int) -> list[_Match]:
    found = []
    for number, line in enumerate(lines):
        if match := pattern.search(line):
            found.append(_Match(number, match.start()))
            if len(found) >= most:
                break
    return found


def _shown(path: str, lines: list[str], found: list[_Match], context: int) -> Iterator[str]:
    """``path:7: text`` for a match, ``path-6- text`` for a line around it, as grep has it."""
    starts = dict(found)
    around = {
        number
        for at in starts
        for number in range(max(at - context, 0), min(at + context + 1, len(lines)))
    }
    previous = None
    for number in sorted(around):
        if context and previous is not None and number > previous + 1:
            yield "--"
        previous = number
        mark = ":" if number in starts else "-"
        yield f"{path}{mark}{number + 1}{mark} {_cut(lines[number], starts.get(number, 0))}"


def _cut(line: str, start: int) -> str:
    """A long line: what is around the match."""
    if len(line) <= MAX_LINE:
        return line
    begin = max(0, min(start - BEFORE_MATCH, len(line) - MAX_LINE))
    head, tail = "…" if begin else "", "…" if begin + MAX_LINE < len(line) else ""
    return head + line[begin : begin + MAX_LINE] + tail


def main() -> None:
    """Entry point."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    if sys.platform == "linux":  # others refuse it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    request: dict[str, Any] = json.load(sys.stdin)
    try:
        for line in search(Request(**request)):
            print(line, flush=True)
    except ToolError as error:
        print(error.message)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
