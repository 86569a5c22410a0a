"""The tool ``edit``."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.tool import ToolError, runs_again
from agent_worker.tools.edit import edit_tool, replaced
from tests.unit.agent_worker.tools.workspace import LIMIT, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ws", edit_tool(LIMIT))


async def test_one_passage_is_replaced(desk: Desk) -> None:
    file = desk.put("诗.txt", "春眠不觉晓\n处处闻啼鸟\n")
    said = await desk.call("edit", path="诗.txt", old="啼鸟", new="鸟鸣\n")
    assert said == "Replaced in 诗.txt, line 2."
    assert file.read_text() == "春眠不觉晓\n处处闻鸟鸣\n\n"


async def test_several_are_an_error_with_their_lines(desk: Desk) -> None:
    file = desk.put("a", "x\ny\nx\nxx\n")
    said = await desk.call("edit", path="a", old="x", new="z")
    assert said == (
        "Error: old stands there 4 times, lines 1, 3, 4, 4. Give more of what is around it, or "
        "set replace_all."
    )
    assert file.read_text() == "x\ny\nx\nxx\n"


async def test_all_are_replaced_if_that_is_said(desk: Desk) -> None:
    file = desk.put("a", "x\n" * 12)
    said = await desk.call("edit", path="a", old="x", new="", replace_all=True)
    assert said == "Replaced in a, lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more."
    assert file.read_text() == "\n" * 12


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("missing", "x", "does not stand in the file. Read it"),
        ("", "x", "To create a file, use write"),
        ("line", "line", "nothing would change"),
        ("LINE", "x", "does not stand"),
    ],
)
async def test_what_is_not_clear_is_told(desk: Desk, old: str, new: str, why: str) -> None:
    file = desk.put("a", "line\n")
    assert why in await desk.call("edit", path="a", old=old, new=new)
    assert file.read_text() == "line\n"


async def test_windows_line_ends_stay(desk: Desk) -> None:
    file = desk.put("a", "one\r\ntwo\r\nthree\r\n")
    assert "line 1" in await desk.call("edit", path="a", old="one\ntwo", new="1\n2\n2.5")
    assert file.read_bytes() == b"1\r\n2\r\n2.5\r\nthree\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
async def test_the_encoding_stays(desk: Desk, encoding: str) -> None:
    file = desk.put("a", "旧的内容".encode(encoding))
    await desk.call("edit", path="a", old="旧", new="新🙂")
    assert file.read_bytes() == "新🙂的内容".encode(encoding)


async def test_a_missing_file_and_a_program_are_told(desk: Desk) -> None:
    assert "there is no a" in await desk.call("edit", path="a", old="x", new="y")
    desk.put("a", b"\0x")
    assert "no text file" in await desk.call("edit", path="a", old="x", new="y")


letters = st.text("ab\n", max_size=12)


@given(letters, letters, letters, st.booleans())
def test_it_agrees_with_python(content: str, old: str, new: str, everywhere: bool) -> None:
    count = content.count(old) if old else 0
    try:
        after, lines = replaced(content, old, new, everywhere)
    except ToolError:
        assert count == 0 or old == new or (count > 1 and not everywhere)
        return
    assert after == content.replace(old, new)
    assert len(lines) == count
    assert lines[0] == content[: content.index(old)].count("\n") + 1


def test_it_never_runs_twice() -> None:
    assert not runs_again(edit_tool(LIMIT))
