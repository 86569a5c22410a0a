"""History as the model gets it: whole exchanges, and who said what."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.llm.client import Message
from agent_worker.turns.exchanges import user_message, whole_exchanges
from posthouse.address import Address
from posthouse.messages import InboundMessage, Media


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """A person says something; the agent calls tools a few times, and mostly answers."""
    out: list[Message] = [{"role": "user", "content": "hi"}] * draw(st.integers(1, 2))
    for _ in range(draw(st.integers(0, 3))):
        ids = [f"c{draw(st.integers(0, 99))}" for _ in range(draw(st.integers(1, 3)))]
        out.append({"role": "assistant", "content": "", "tool_calls": [{"id": i} for i in ids]})
        out += [{"role": "tool", "tool_call_id": i, "content": "done"} for i in ids]
    if draw(st.booleans()):
        out.append({"role": "assistant", "content": "bye"})
    return out


histories = st.lists(exchanges(), max_size=4).map(lambda parts: [m for part in parts for m in part])


@given(histories, st.integers(0, 40))
def test_a_cut_never_parts_a_result_from_its_call(history: list[Message], cut: int) -> None:
    kept = whole_exchanges(history[cut:])
    open_calls: list[str] = []
    for message in kept:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
            open_calls = [call["id"] for call in message.get("tool_calls", ())]


@given(histories, st.integers(0, 40))
def test_nothing_but_the_broken_beginning_is_dropped(history: list[Message], cut: int) -> None:
    rest = history[cut:]
    kept = whole_exchanges(rest)
    assert not kept or kept[0]["role"] == "user"
    assert kept == rest[len(rest) - len(kept) :]
    assert all(message["role"] != "user" for message in rest[: len(rest) - len(kept)])


def said(**fields: Any) -> str:
    """What the model reads of a message."""
    chat = Address.im("feishu", "oc_x")
    message = user_message(InboundMessage(from_=chat, conversation=chat, **fields))
    assert message["role"] == "user"
    return str(message["content"])


def test_words_of_a_person() -> None:
    assert said(content=" 你好\n ", sender_name="小王") == "你好"


def test_in_a_group_it_says_who_speaks() -> None:
    assert said(content="你好", sender_name="小王", chat_type="group") == "小王: 你好"
    assert said(content="你好", chat_type="group") == "你好"


@pytest.mark.parametrize(
    ("media", "line"),
    [
        (Media(url="http://a/b.png", name="b.png", mime="image/png"), "[b.png: http://a/b.png]"),
        (Media(object="key/1", mime="image/png"), "[image/png: key/1]"),
        (Media(url="http://a/b"), "[file: http://a/b]"),
    ],
)
def test_files_are_named(media: Media, line: str) -> None:
    assert said(media=(media,)) == line
    assert said(content="look", media=(media, media)) == f"look\n{line}\n{line}"
