"""Payloads of older senders mean the same as today's."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from posthouse.address import Address
from posthouse.messages import InboundMessage, Media, read_inbound

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CHAT = Address.im("feishu", "oc_x")
PERSON = Address.im("feishu", "ou_y")
TODAY = InboundMessage(
    id="INBOUND:1:7",
    from_=PERSON,
    conversation=CHAT,
    chat_type="group",
    sender_name="小王",
    content="hi",
    media=(Media(url="http://a/b.png"),),
    metadata={"k": "v"},
    time=NOON,
    request_id="r1",
    is_cron=True,
    parent_agent_id="main",
    system_prompt="be kind",
    allowed_tools=("Read",),
    role_name="poet",
)
FLAT: dict[str, Any] = {
    "channel": "feishu",
    "sender_id": "ou_y",
    "sender_name": "小王",
    "chat_id": "oc_x",
    "chat_type": "group",
    "content": "hi",
    "media": ["http://a/b.png"],
    "metadata": {"k": "v"},
    "time": "2026-03-01T12:00:00Z",
    "request_id": "r1",
    "is_cron": True,
    "parent_agent_id": "main",
    "system_prompt": "be kind",
    "allowed_tools": ["Read"],
    "role_name": "poet",
}


def read(key: str = "im.feishu.oc_x", **fields: Any) -> InboundMessage:
    """Read a body of these fields."""
    return read_inbound(orjson.dumps(fields), key, default_id="INBOUND:1:7", time=NOON)


def camel_case(name: str) -> str:
    """As JavaScript writes it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def go_case(name: str) -> str:
    """As Go's encoder writes an untagged field."""
    return "".join("ID" if part == "id" else part.capitalize() for part in name.split("_"))


@pytest.mark.parametrize("spell", [str, camel_case, go_case])
def test_every_flat_key_is_read(spell: Callable[[str], str]) -> None:
    assert read(**{spell(name): value for name, value in FLAT.items()}) == TODAY


@pytest.mark.parametrize("name", FLAT)
def test_null_means_absent(name: str) -> None:
    """Go writes nil slices and maps as null."""
    fields: dict[str, Any] = {
        "channel": "feishu",
        "chat_id": "oc_x",
        "content": "hi",
        "media": ["u"],
    }
    without = {key: value for key, value in fields.items() if key != name}
    assert read(**{**fields, name: None}) == read(**without)


def test_a_null_does_not_hide_another_spelling() -> None:
    assert read(content=None, Content="hi").content == "hi"
    assert read(content="today", Content="older").content == "today"


def test_what_go_never_set_is_absent() -> None:
    message = read(content="hi", chat_type="", time="0001-01-01T00:00:00Z")
    assert (message.chat_type, message.time) == ("p2p", NOON)


def test_one_id_is_enough() -> None:
    assert read(channel="feishu", chat_id="oc_x", content="hi").from_ == CHAT
    alone = InboundMessage.model_validate({"channel": "feishu", "sender_id": "ou_y"})
    assert (alone.from_, alone.conversation) == (PERSON, PERSON)
    # Its subject says where it belongs.
    assert read(channel="feishu", sender_id="ou_y", content="hi").conversation == CHAT


def test_ids_that_are_no_text_leave_it_to_the_subject() -> None:
    message = read("im.telegram.42", channel="telegram", chat_id=42, sender_id=7, content="hi")
    assert message.from_ == message.conversation == Address.im("telegram", "42")


def test_todays_keys_win() -> None:
    other: dict[str, Any] = {"from": "im://feishu/ou_z", "conversation": str(CHAT)}
    message = read(**FLAT | {"chat_id": "elsewhere"} | other)
    assert (message.from_, message.conversation) == (Address.im("feishu", "ou_z"), CHAT)


@pytest.mark.parametrize("parent", ["main", "main/poet"])
def test_channel_agent_names_the_parent(parent: str) -> None:
    message = read("agent.main", channel="agent", parent_agent_id=parent, content="hi")
    assert message.from_ == Address.parse(f"agent://{parent}")
    assert (message.channel, message.chat_type) == ("agent", "agent")
    assert message.conversation == Address.agent("main")


@pytest.mark.parametrize("kind", ["private", "direct", "single"])
def test_older_words_for_two_people(kind: str) -> None:
    assert read(content="hi", chat_type=kind).chat_type == "p2p"
