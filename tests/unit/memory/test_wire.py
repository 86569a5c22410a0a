"""Models as JSON for Postgres: nothing of theirs is lost, absent fields are left out."""

import json

from memory.wire import as_json, as_json_list
from posthouse.turns import HistoryEntry, Position, Step


def test_absent_fields_are_left_out() -> None:
    assert as_json(HistoryEntry(step=3)) == '{"step":3}'


def test_nothing_stays_nothing() -> None:
    assert as_json(None) is None


def test_null_inside_a_body_is_kept() -> None:
    body = {"answer": None, "list": [None, {"deep": None}]}
    written = as_json(Step(n=1, kind="tool", body=body))
    assert json.loads(written or "")["body"] == body


def test_lists_are_arrays() -> None:
    assert as_json_list([]) == "[]"
    two = [Position(generation=1, seq=2), Position(generation=1, seq=3)]
    assert json.loads(as_json_list(two)) == [p.model_dump() for p in two]
