"""Small parts of the engine: result cap, pairs, arguments, labels."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.engine.arguments import parse
from agent_worker.engine.pairs import paired
from agent_worker.engine.reporting import label_of
from agent_worker.engine.results import cap, clean
from agent_worker.tool import ToolError


@given(st.text(max_size=300), st.integers(0, 400))
def test_a_capped_text_never_exceeds_the_limit(text: str, limit: int) -> None:
    capped = cap(text, limit)

    assert len(capped) <= limit or capped == text
    assert (capped == text) == (len(text) <= limit)


def test_a_capped_text_keeps_seven_tenths_head_and_three_tenths_tail() -> None:
    text = "".join(chr(0x4E00 + i % 5000) for i in range(10_000))

    head, _, tail = cap(text, 1100).split("\n\n")

    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) / (len(head) + len(tail)) == pytest.approx(0.7, abs=0.002)


@given(st.text(st.characters(categories=None)))
def test_a_clean_text_can_be_stored(text: str) -> None:
    assert "\0" not in clean(text).encode().decode()


def call(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": i} for i in ids]}


def tool(id: str, content: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("given_", "roles"),
    [
        ([USER], ["user"]),
        ([tool("a"), USER], ["user"]),
        ([USER, call("a"), tool("a")], ["user", "assistant", "a"]),
        ([USER, call("a", "b"), tool("b"), tool("a")], ["user", "assistant", "a", "b"]),
        ([USER, call("a", "b"), tool("a"), USER], ["user", "assistant", "a", "b", "user"]),
        ([USER, call("a"), tool("a"), tool("a"), tool("z")], ["user", "assistant", "a"]),
        ([USER, call("a"), USER, tool("a")], ["user", "assistant", "a", "user"]),
        ([USER, {"role": "assistant", "content": ""}, USER], ["user", "user"]),
    ],
)
def test_pairs(given_: list[dict[str, Any]], roles: list[str]) -> None:
    assert [m.get("tool_call_id", m["role"]) for m in paired(given_)] == roles


message = st.one_of(
    st.just(USER),
    st.just({"role": "assistant", "content": "text"}),
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True).map(
        lambda ids: call(*ids)
    ),
    st.sampled_from("abcdef").map(tool),
)


@given(st.lists(message, max_size=30), st.integers(0, 30))
def test_any_cut_keeps_pairs(messages: list[dict[str, Any]], cut: int) -> None:
    found = paired(messages[cut:])

    position = 0
    while position < len(found):
        assert found[position]["role"] != "tool"
        ids = [c["id"] for c in found[position].get("tool_calls", ())]
        answers = found[position + 1 : position + 1 + len(ids)]
        assert [m.get("tool_call_id") for m in answers] == ids
        position += 1 + len(ids)
    assert paired(found) == found


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  ", {}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": [1, 2,], }', {"a": [1, 2]}),
        ('{"a": true, }', {"a": True}),
        ("{'a': True, 'b': None}", {"a": True, "b": None}),
        ('{"a": ",}"}', {"a": ",}"}),
        ('{"城": "北京"}', {"城": "北京"}),
    ],
)
def test_arguments_that_are_certain_to_be_meant(raw: str, value: dict[str, Any]) -> None:
    assert parse(raw) == value


@pytest.mark.parametrize("raw", ['{"a": "open', '{"a": [1', "{", "a: 1", "{'a': {1, 2}}", "f()"])
def test_arguments_that_are_not(raw: str) -> None:
    with pytest.raises(ToolError, match="not valid JSON"):
        parse(raw)


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ({}, "look"),
        ({"n": 3}, "look"),
        ({"n": 3, "at": "the  big\nsky"}, "look: the big sky"),
        ({"at": "x" * 100}, "look: " + "x" * 39 + "…"),
    ],
)
def test_labels(arguments: dict[str, Any], label: str) -> None:
    assert label_of("look", arguments) == label
