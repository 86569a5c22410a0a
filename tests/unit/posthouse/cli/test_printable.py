"""No text of others commands the terminal."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.cli.printable import printable, printable_json

texts = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x1b\x07\r\n\t\u202e\x9b"))
BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("17*23+4 等于多少\n\t395 👍", "17*23+4 等于多少\n\t395 👍"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x9b31m", "\ufffd31m"),
        ("a\x7f\x08b", "a␡␈b"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("user\u202eexe.txt", "user\ufffdexe.txt"),
        ("\ud800", "\ufffd"),
        ("שלום \u200fعالم", "שלום \u200fعالم"),
    ],
)
def test_what_becomes_of_it(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(texts)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = printable(text)
    shown.encode()
    for character in shown:
        assert character in "\n\t" or unicodedata.category(character) != "Cc"
        assert unicodedata.bidirectional(character) not in BIDI
    assert printable(shown) == shown


@given(texts)
def test_json_keeps_its_value(text: str) -> None:
    line = printable_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(line) == {"text": text}
    assert printable(line) == line
