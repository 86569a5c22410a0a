"""Patterns for paths."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.tool import ToolError
from agent_worker.workspace.patterns import MAX_CHARACTERS, PathPattern

MATCHES = [
    ("*.md", "a.md", True),
    ("*.md", "docs/a.md", True),
    ("*.md", "a.mdx", False),
    ("./*.md", "a.md", True),
    ("./*.md", "docs/a.md", False),
    ("docs/*.md", "docs/a.md", True),
    ("docs/*.md", "docs/x/a.md", False),
    ("docs/**/*.md", "docs/a.md", True),
    ("docs/**/*.md", "docs/x/y/a.md", True),
    ("**", "a/b/c", True),
    ("**/b/**", "a/b/c", True),
    ("**/b/**", "a/c", False),
    ("docs/**", "docs/a", True),
    ("docs/**", "src/a", False),
    ("*", ".hidden", True),
    ("?.txt", "字.txt", True),
    ("[ab].txt", "b.txt", True),
    ("[!ab].txt", "b.txt", False),
    ("[", "[", True),
    ("[z-a]", "b", False),
    ("*.{py,md}", "x/a.py", True),
    ("*.{py,md}", "a.txt", False),
    ("{a,b/{c,d}}.txt", "b/d.txt", True),
    ("报告/*.md", "报告/第一章.md", True),
    ("A.md", "a.md", False),
]


@pytest.mark.parametrize(("pattern", "path", "fits"), MATCHES)
def test_matches(pattern: str, path: str, fits: bool) -> None:
    assert PathPattern(pattern).matches(tuple(path.split("/"))) is fits


@pytest.mark.parametrize("pattern", ["", "  ", "x" * (MAX_CHARACTERS + 1), "{a,b}" * 7])
def test_bad_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ToolError):
        PathPattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["*a" * 200 + "b", "**/a/" * 60 + "b", "[a-z]*" * 80 + "!", "?*" * 200 + "b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    started = time.process_time()
    assert not PathPattern(pattern).matches(("a" * 255,) * 64)
    assert time.process_time() - started < 5


@given(st.text("*?[]{}!-,./ab\\^$(|+", max_size=40), st.text("ab/*[].", min_size=1, max_size=20))
def test_any_pattern_matches_or_is_refused(pattern: str, path: str) -> None:
    with suppress(ToolError):
        PathPattern(pattern).matches(tuple(path.split("/")))
