"""The tool ``grep``."""

import asyncio
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from agent_worker.tools.grep import grep_tool
from agent_worker.workspace.search import MAX_FILE_BYTES, MAX_MATCHES
from tests.unit.agent_worker.tools.workspace import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ws", grep_tool())


async def test_matches_come_with_file_and_line(desk: Desk) -> None:
    desk.put("b/诗.txt", "春眠不觉晓\n处处闻啼鸟\n")
    desk.put("a.txt", "没有\n鸟\n")
    desk.put("旧.txt", "飞鸟".encode("gb18030"))
    assert await desk.call("grep", pattern="鸟") == (
        "a.txt:2: 鸟\n旧.txt:1: 飞鸟\nb/诗.txt:2: 处处闻啼鸟"
    )


async def test_where_to_look_can_be_said(desk: Desk) -> None:
    for path in ("a.py", "src/a.py", "src/a.md"):
        desk.put(path, "Here")
    assert await desk.call("grep", pattern="here") == "No line matches."
    assert await desk.call("grep", pattern="here", ignore_case=True, path="src", glob="*.py") == (
        "src/a.py:1: Here"
    )
    assert await desk.call("grep", pattern="H", path="src/a.md") == "src/a.md:1: Here"


async def test_context_is_shown_once(desk: Desk) -> None:
    desk.put("a", "".join(f"{n}\n" for n in range(1, 21)))
    assert await desk.call("grep", pattern="^(3|5|20)$", context=1) == (
        "a-2- 2\na:3: 3\na-4- 4\na:5: 5\na-6- 6\n--\na-19- 19\na:20: 20"
    )


async def test_many_matches_and_long_lines_are_cut(desk: Desk) -> None:
    desk.put("a", "x\n" * 10_000)
    found = (await desk.call("grep", pattern="x")).split("\n")
    assert len(found) == MAX_MATCHES + 1
    assert found[-1] == "[more lines match; narrow the pattern, the path or the glob]"
    desk.put("min.js", "a" * 50_000 + "needle" + "b" * 50_000)
    found = (await desk.call("grep", pattern="needle", path="min.js")).split("\n")
    assert found[0].startswith("min.js:1: …aaa")
    assert "needle" in found[0]
    assert len(found[0]) < 400


async def test_what_is_no_text_and_what_lies_outside_is_not_searched(desk: Desk) -> None:
    desk.put("../outside/secret", "needle")
    desk.put("program", b"\0needle")
    (desk.root / "link").symlink_to("../outside")
    (desk.root / "file").symlink_to("../outside/secret")
    os.mkfifo(desk.root / "fifo")
    assert await desk.call("grep", pattern="needle") == "No line matches."
    for path in ("link", "link/secret", "file", "../outside"):
        said = await desk.call("grep", pattern="needle", path=path)
        assert said.startswith("Error: ")
        assert "needle" not in said


async def test_what_is_too_large_is_told(desk: Desk) -> None:
    with desk.put("large", "").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    desk.put("small", "x")
    assert await desk.call("grep", pattern="x") == (
        "small:1: x\n[not searched since larger than 32 MiB: 1 files]"
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"pattern": "("}, "not a regular expression of Python: missing )"),
        ({"pattern": "a{99999999999}"}, "not a regular expression of Python"),
        ({"pattern": "x", "path": "missing"}, "there is no missing"),
        ({"pattern": "x", "glob": " "}, "a pattern has 1 to 500 characters"),
        ({"pattern": "x", "context": 99}, "the arguments do not fit grep"),
        ({"pattern": "x", "path": "a\nb"}, "control characters"),
    ],
)
async def test_what_cannot_be_done_is_told(desk: Desk, arguments: dict[str, str], why: str) -> None:
    desk.put("a", "x")
    said = await desk.call("grep", **arguments)
    assert said.startswith("Error: ")
    assert why in said


async def test_an_exponential_pattern_is_ended_and_the_loop_goes_on(desk: Desk) -> None:
    desk = Desk(desk.root, grep_tool(time_limit_s=2))
    desk.put("a", "aha")
    desk.put("b", "a" * 60 + "!")
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.01)

    beating = asyncio.create_task(beat())
    async with asyncio.timeout(30):
        said = await desk.call("grep", pattern="^((a+)+|aha)$")
    beating.cancel()
    assert "Error: not done after 2 s." in said
    assert said.endswith("Found so far:\na:1: aha")
    assert max(b - a for a, b in pairwise(beats)) < 1
