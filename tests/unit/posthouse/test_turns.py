"""Positions: the order of the stream over its generations."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.turns import CommitRequest, Position, Waiting

numbers = st.integers(0, 3)
positions = st.builds(Position, generation=numbers, seq=numbers)


def at(generation: int, seq: int) -> Position:
    """A position, in short."""
    return Position(generation=generation, seq=seq)


def test_a_newer_stream_comes_after_all_of_the_older() -> None:
    in_order = [at(1, 1), at(1, 2), at(1, 10), at(2, 1), at(10, 0)]
    for earlier, later in itertools.combinations(in_order, 2):
        assert earlier < later
        assert later > earlier
        assert not later <= earlier
    assert sorted(reversed(in_order)) == in_order
    assert max(in_order) == at(10, 0)


@given(positions, positions)
def test_exactly_one_of_before_same_after(one: Position, other: Position) -> None:
    assert [one < other, one == other, other < one].count(True) == 1
    assert (one <= other) is (one < other or one == other)
    assert (one >= other) is (other <= one)


def test_a_waiting_message_stands_at_its_position() -> None:
    waiting = Waiting(generation=1, seq=2, source_id="m1")
    assert waiting.position == at(1, 2)
    assert at(1, 1) < waiting <= at(1, 2)


def test_a_request_names_the_place_of_a_message_only() -> None:
    waiting = Waiting(generation=1, seq=2, source_id="m1")
    request = CommitRequest(
        key="im.cli.local", epoch=1, turn=waiting, positions=[waiting], checked=at(1, 2)
    )
    assert b"m1" not in request.to_wire()


@pytest.mark.parametrize("body", ["{}", '{"generation": 1}', '{"generation": "x", "seq": 1}'])
def test_a_position_is_whole(body: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Position.model_validate_json(body)
