"""Text folded for a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from posthouse.cli.chat.layout import last_rows

texts = st.text(st.sampled_from("ab 中文，👍\né") | st.characters(exclude_categories=["C"]))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", [""]),
        ("abcdef", ["abcd", "ef"]),
        ("abcd", ["abcd"]),
        ("中文字", ["中文", "字"]),
        ("a中文", ["a中", "文"]),
        ("one\n\ntwo", ["one", "", "two"]),
        ("\ta", ["    ", "a"]),
        ("1\n2\n3\n4", ["2", "3", "4"]),
    ],
)
def test_four_columns_and_three_rows(text: str, rows: list[str]) -> None:
    assert last_rows(text, columns=4, rows=3) == rows


@given(texts, st.integers(2, 30), st.integers(1, 10))
def test_it_fits_and_is_the_end(text: str, columns: int, rows: int) -> None:
    found = last_rows(text, columns, rows)
    assert 1 <= len(found) <= rows
    assert all(get_cwidth(row) <= columns for row in found)
    assert text.replace("\n", "").endswith("".join(found))
