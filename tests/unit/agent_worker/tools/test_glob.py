"""The tool ``glob``."""

import os
from pathlib import Path

import pytest

from agent_worker.tools.glob import MAX_SHOWN, glob
from tests.unit.agent_worker.tools.workspace import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ws", glob)


def put(desk: Desk, path: str, changed: float) -> None:
    os.utime(desk.put(path, "x"), (changed, changed))


async def test_the_newest_come_first(desk: Desk) -> None:
    put(desk, "b.md", 300)
    put(desk, "docs/旧.md", 100)
    put(desk, "docs/新.md", 400)
    put(desk, "a.md", 300)
    put(desk, "a.txt", 500)
    assert await desk.call("glob", pattern="*.md") == "docs/新.md\na.md\nb.md\ndocs/旧.md"
    assert await desk.call("glob", pattern=f"{desk.root}/docs/*") == "docs/新.md\ndocs/旧.md"


async def test_many_are_cut(desk: Desk) -> None:
    for number in range(MAX_SHOWN + 3):
        put(desk, f"{number:03}", number)
    found = (await desk.call("glob", pattern="*")).split("\n")
    assert found[0] == f"{MAX_SHOWN + 2}"
    assert found[MAX_SHOWN:] == ["[3 more; narrow the pattern]"]


@pytest.mark.parametrize("pattern", ["*.py", "../*", "/etc/*", "link/*", "**/secret"])
async def test_nothing_else_is_found(desk: Desk, pattern: str) -> None:
    outside = desk.put("../outside/secret", "x").parent
    desk.put("a.md", "x")
    (desk.root / "link").symlink_to(outside)
    assert await desk.call("glob", pattern=pattern) == "No file matches."


async def test_an_empty_pattern_is_refused(desk: Desk) -> None:
    assert "a pattern has 1 to 500 characters" in await desk.call("glob", pattern=" ")
