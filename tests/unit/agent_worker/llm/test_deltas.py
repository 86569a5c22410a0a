"""Streamed answers as servers really send them; one case for each dialect that was seen."""

import itertools
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.llm import completions
from agent_worker.llm.client import ChatRequest, ChatResponse
from agent_worker.llm.deltas import StreamedAnswer

REQUEST = ChatRequest(messages=[{"role": "user", "content": "hi"}], model="m")
Named = tuple[str, str]
# JSON parsers give no larger ones.
INTEGERS = st.integers(-(2**63), 2**63 - 1)


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def piece(
    arguments: Any = None, name: Any = None, id: Any = None, index: Any = None, **more: Any
) -> dict[str, Any]:
    """A piece of a tool call; what is None is absent."""
    function = {"name": name, "arguments": arguments}
    whole = {"index": index, "id": id, **more}
    return {k: v for k, v in whole.items() if v is not None} | {
        "function": {k: v for k, v in function.items() if v is not None}
    }


def answer(*chunks: dict[str, Any]) -> ChatResponse:
    streamed = StreamedAnswer()
    for one in chunks:
        streamed.add(one)
    return completions.read(streamed.payload(), REQUEST, "p/m")


def calls(*pieces: dict[str, Any]) -> list[Named]:
    response = answer(*(chunk({"tool_calls": [one]}) for one in pieces), chunk(finish="stop"))
    found = response.message.get("tool_calls", [])
    return [(call["function"]["name"], call["function"]["arguments"]) for call in found]


A, B = '{"a":1}', '{"b":2}'

DIALECTS: dict[str, tuple[list[dict[str, Any]], list[Named]]] = {
    "as documented": (
        [
            piece("", "f", "1", 0),
            piece('{"a"', index=0),
            piece(":1}", index=0),
            piece(B, "g", "2", 1),
        ],
        [("f", A), ("g", B)],
    ),
    "no index: a new id or name opens a call, none goes on": (
        [piece('{"a"', "f", "1"), piece(":1}"), piece(B, "g", "2")],
        [("f", A), ("g", B)],
    ),
    "no index and no id: a name opens a call": (
        [piece(A, "f"), piece('{"b"', "g"), piece(":2}")],
        [("f", A), ("g", B)],
    ),
    "all parallel calls numbered 0": (
        [piece(A, "f", "1", 0), piece(B, "g", "2", 0)],
        [("f", A), ("g", B)],
    ),
    "all numbered 0, whole, and with one id": (
        [piece(A, "f", "1", 0), piece(B, "f", "1", 0)],
        [("f", A), ("f", B)],
    ),
    "the first index is 1": ([piece(A, "f", "1", 1)], [("f", A)]),
    "the id changes on the way": (
        [piece('{"a"', "f", "1", 0), piece(":1}", None, "2", 0)],
        [("f", A)],
    ),
    "empty ids and names never overwrite": (
        [piece('{"a"', "f", "1", 0), piece(":1}", "", "", 0)],
        [("f", A)],
    ),
    "name and id in each piece": (
        [piece('{"a"', "f", "1", 0), piece(":1", "f", "1", 0), piece("}", "f", "1", 0)],
        [("f", A)],
    ),
    "the same without an index": (
        [piece('{"a"', "f", "1"), piece(":1", "f", "1"), piece("}", "f", "1")],
        [("f", A)],
    ),
    "arguments before the name": ([piece(A, index=0), piece(name="f", index=0)], [("f", A)]),
    "never named": ([piece(A, index=0)], []),
    "arguments as an object": ([piece({"a": 1}, "f", "1", 0)], [("f", A)]),
    "no arguments": ([piece(None, "f", "1", 0)], [("f", "{}")]),
    "blank arguments": ([piece("  ", "f", "1", 0)], [("f", "{}")]),
    "pieces of two calls in turn": (
        [
            piece('{"a"', "f", "1", 0),
            piece('{"b"', "g", "2", 1),
            piece(":1}", index=0),
            piece(":2}", index=1),
        ],
        [("f", A), ("g", B)],
    ),
    "pieces of two calls in turn, by id at one index": (
        [
            piece('{"a"', "f", "1", 0),
            piece('{"b"', "g", "2", 0),
            piece(":1}", None, "1", 0),
            piece(":2}", None, "2", 0),
        ],
        [("f", A), ("g", B)],
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tool_calls(dialect: str) -> None:
    pieces, expected = DIALECTS[dialect]

    assert calls(*pieces) == expected


def test_unknown_fields_of_a_call_are_kept() -> None:
    signed = piece(A, "f", "1", 0, extra_content={"thought_signature": "s"})

    (call,) = answer(chunk({"tool_calls": [signed]})).message["tool_calls"]

    assert call["extra_content"] == {"thought_signature": "s"}


@pytest.mark.parametrize("finish", ["stop", "", None, "tool_calls"])
def test_calls_run_whatever_the_finish_reason_says(finish: str | None) -> None:
    response = answer(chunk({"tool_calls": [piece(A, "f", "1", 0)]}), chunk(finish=finish))

    assert response.finish_reason == "tool_calls"


def test_a_broken_off_call_counts_as_cut_off() -> None:
    response = answer(
        chunk({"tool_calls": [piece('{"a', "f", "1", 0)]}), chunk(finish="tool_calls")
    )

    assert response.finish_reason == "length"


def test_text_reasoning_and_usage() -> None:
    response = answer(
        chunk({"role": "assistant", "content": None}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "你"}),
        chunk({"content": [{"type": "text", "text": "好"}]}),
        chunk({"reasoning": "!"}, finish="stop"),
        chunk({}, finish=None, usage={"prompt_tokens": 1, "completion_tokens": 1}),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
    )

    assert response.message == {
        "role": "assistant",
        "content": "你好",
        "reasoning_content": "hm!",
    }
    assert (response.usage, response.finish_reason) == ((7, 2), "stop")


def test_a_whole_message_in_a_data_line() -> None:
    message = {"role": "assistant", "content": "hello"}

    response = answer({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    assert response.message["content"] == "hello"


@given(st.recursive(st.none() | st.booleans() | INTEGERS | st.text(), st.lists, max_leaves=5))
def test_rubbish_is_no_crash(rubbish: Any) -> None:
    streamed = StreamedAnswer()
    for place in (
        {"choices": rubbish},
        {"choices": [rubbish]},
        chunk(rubbish),
        chunk({"content": rubbish, "tool_calls": rubbish}),
        chunk({"tool_calls": [rubbish]}),
        chunk({"tool_calls": [{"function": rubbish, "index": rubbish, "id": rubbish}]}),
        chunk({"tool_calls": [piece(rubbish, rubbish, "1", 0)]}),
        {"usage": rubbish},
    ):
        streamed.add(place)
    orjson.dumps(streamed.payload())


@given(st.data())
def test_any_cut_of_the_arguments_gives_the_same_call(data: st.DataObject) -> None:
    arguments = data.draw(
        st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3).map(
            lambda d: orjson.dumps(d).decode()
        )
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
    borders = [0, *cuts, len(arguments)]
    parts = [arguments[a:b] for a, b in itertools.pairwise(borders)]
    repeats = data.draw(st.booleans())

    first, *rest = parts
    pieces = [piece(first, "f", "1", 0)]
    pieces += [piece(p, index=0, id="1" if repeats else None) for p in rest]

    assert calls(*pieces) == [("f", arguments)]
