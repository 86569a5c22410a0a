"""Bytes as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.tool import ToolError
from agent_worker.workspace.text import decode, lines_of


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "gbk", "gb2312", "utf-16"])
def test_chinese_files_in_use_are_read(encoding: str) -> None:
    said = "春眠不觉晓，处处闻啼鸟。\r\n夜来风雨声"
    read = decode(said.encode(encoding), "诗.txt")
    assert read.content == said
    assert decode(read.encode(said + "🙂"), "诗.txt").content == said + "🙂"


@pytest.mark.parametrize(
    "data", [b"\x7fELF\x02\x01\x01\0\0", b"a\0b", b"\xff\xfe\x00\xd8", b"caf\xe9\n"]
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(ToolError, match="x is no text file"):
        decode(data, "x")


@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_refused(data: bytes) -> None:
    try:
        read = decode(data, "x")
    except ToolError:
        return
    # What was read and not changed is written back as it was, but for a mark of byte order.
    if read.encoding != "utf-16":
        assert read.encode(read.content) == data


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb", ["a", "b"]),
        ("a\x0cb\u2028c\x85d", ["a\x0cb\u2028c\x85d"]),
    ],
)
def test_lines(content: str, lines: list[str]) -> None:
    assert lines_of(content) == lines
