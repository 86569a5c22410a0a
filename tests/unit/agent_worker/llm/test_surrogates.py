"""Characters in two halves."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.llm.surrogates import Halves, joined, loads

UNITS = st.text(st.sampled_from("a好🙂\ud83d\ude42"), max_size=8)


@given(st.text(), st.data())
def test_any_cut_between_halves_gives_the_text(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le")
    cut = 2 * data.draw(st.integers(0, len(units) // 2))
    pieces = [part.decode("utf-16-le", "surrogatepass") for part in (units[:cut], units[cut:])]
    halves = Halves()
    assert "".join(halves.add(piece) for piece in pieces) == text


@given(st.lists(UNITS))
def test_nothing_comes_out_that_utf_8_cannot_hold(pieces: list[str]) -> None:
    halves = Halves()
    "".join(halves.add(piece) for piece in pieces).encode()
    joined("".join(pieces)).encode()


def test_a_whole_value_is_put_together() -> None:
    odd = {"a\ud83d": ["\ud83d\ude42", {"b": "\ude42x"}], "n": 1, "t": None}
    assert joined(odd) == {"a\ufffd": ["🙂", {"b": "\ufffdx"}], "n": 1, "t": None}


@given(st.text(st.sampled_from("a好🙂\ud83d\ude42")))
def test_json_with_halves_can_be_read(text: str) -> None:
    assert loads(json.dumps({"text": text})) == json.loads(json.dumps({"text": text}))


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": "\\ud83d"', '["\\ud83d", ' + "[" * 100_000, "NaN", b"\xff"]
)
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(text)
