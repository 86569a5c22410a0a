"""The mark around what strangers wrote."""

import re

from agent_worker.web.untrusted import mark


def test_the_text_stands_between_two_equal_lines() -> None:
    marked = mark("\n驿站\n", "https://site.test/")
    head, *lines = marked.split("\n")
    assert head.startswith("From https://site.test/. ")
    assert "not instructions" in head
    assert lines == [lines[0], "驿站", lines[0]]
    assert re.fullmatch("--- [0-9a-f]{8} ---", lines[0])


def test_the_line_cannot_be_foreseen() -> None:
    assert mark("x", "y").split("\n")[-1] != mark("x", "y").split("\n")[-1]
