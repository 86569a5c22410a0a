"""The tool ``read``."""

import asyncio
import os
from pathlib import Path

import pytest

from agent_worker.engine import RunConfig, build_tool_context
from agent_worker.tool import ToolError
from agent_worker.tools.read import MAX_LINES, read
from tests.unit.agent_worker.fakes import ScriptedModel, config
from tests.unit.agent_worker.tools.workspace import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ws", read)


async def test_lines_have_numbers(desk: Desk) -> None:
    desk.put("诗/春晓.txt", "春眠不觉晓\n\n夜来风雨声\n")
    assert await desk.call("read", path="诗/春晓.txt") == (
        "     1\t春眠不觉晓\n     2\t\n     3\t夜来风雨声"
    )


async def test_an_absolute_path_inside_is_fine(desk: Desk) -> None:
    file = desk.put("a.txt", "x")
    assert await desk.call("read", path=str(file)) == "     1\tx"


async def test_a_part_says_how_to_go_on(desk: Desk) -> None:
    desk.put("n", "".join(f"{n}\n" for n in range(1, 101)))
    assert await desk.call("read", path="n", offset=41, limit=2) == (
        "    41\t41\n    42\t42\n[line 42 of 100; go on with offset 43]"
    )
    assert await desk.call("read", path="n", offset=100) == "   100\t100"
    assert await desk.call("read", path="n", offset=101) == "Error: n has 100 lines only."


async def test_a_long_file_is_read_in_whole_lines(desk: Desk) -> None:
    lines = ["字" * 90] * 5000
    desk.put("long", "\n".join(lines))
    read_lines, offset = 0, 1
    while True:
        found = (await desk.call("read", path="long", offset=offset)).split("\n")
        whole = [line for line in found if line.endswith("字" * 90)]
        read_lines += len(whole)
        if len(whole) == len(found):
            break
        assert "left out" not in "".join(found)
        offset = int(found[-1].rpartition(" ")[2].rstrip("]"))
    assert read_lines == 5000


async def test_many_short_lines_are_limited(desk: Desk) -> None:
    desk.put("n", "\n" * 10_000)
    found = await desk.call("read", path="n")
    assert found.endswith(f"[line {MAX_LINES} of 10,000; go on with offset {MAX_LINES + 1}]")


async def test_a_long_line_is_cut(desk: Desk) -> None:
    desk.put("min.js", "x" * 100_000 + "\nend")
    found = await desk.call("read", path="min.js")
    assert "[… 98,000 more characters]\n     2\tend" in found


async def test_chinese_files_of_old_programs_are_read(desk: Desk) -> None:
    desk.put("旧.txt", "汉字编码".encode("gb18030"))
    assert await desk.call("read", path="旧.txt") == "     1\t汉字编码"


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        ("empty", b"", "(empty file)"),
        ("program", b"\x7fELF\0\0", "Error: program is no text file (6 bytes)."),
        ("huge", b"x" * (8 * 1024 * 1024 + 1), "Error: huge is larger than 8 MiB. Use grep."),
    ],
)
async def test_what_cannot_be_shown_is_told(
    desk: Desk, path: str, content: bytes, why: str
) -> None:
    desk.put(path, content)
    assert await desk.call("read", path=path) == why


async def test_what_is_missing_is_told(desk: Desk) -> None:
    assert await desk.call("read", path="x") == "Error: there is no x. See with glob what there is."
    desk.put("a/b", "x")
    assert "Error: a is a folder" in await desk.call("read", path="a")
    assert "outside of the working directory" in await desk.call("read", path="../x")


async def test_a_fifo_holds_nobody_up(desk: Desk) -> None:
    desk.put("a", "x")
    os.mkfifo(desk.root / "fifo")
    async with asyncio.timeout(20):
        assert await desk.call("read", path="fifo") == "Error: fifo is no regular file."


@pytest.mark.parametrize("wrong", [{"offset": 0}, {"limit": 0}, {"offset": -1}, {"lines": 3}])
async def test_bad_arguments_are_refused(desk: Desk, wrong: dict[str, int]) -> None:
    desk.put("a", "x")
    assert "the arguments do not fit read" in await desk.call("read", path="a", **wrong)


async def test_without_a_conversation_there_are_no_files() -> None:
    ctx = build_tool_context(config(ScriptedModel()))
    assert ctx.workspace is None
    with pytest.raises(ToolError, match="belongs to no conversation"):
        await read.execute(ctx, {"path": "x"})


def test_the_workspace_comes_from_the_run() -> None:
    given: RunConfig = config(ScriptedModel(), workspace_root="/ws/im.cli.local")
    assert build_tool_context(given).workspace == Path("/ws/im.cli.local")
