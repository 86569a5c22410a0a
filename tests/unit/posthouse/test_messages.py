"""The message protocol: defaults, properties, and the form on the wire."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from posthouse.address import Address
from posthouse.messages import ErrorInfo, InboundMessage, Media, OutboundMessage, UsageStats

CLI = Address.im("cli", "local")
MAIN = Address.agent("main")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_message_reads_back_from_its_wire_form() -> None:
    message = InboundMessage(
        id="feishu::1",
        from_=Address.im("feishu", "ou_y"),
        conversation=Address.im("feishu", "oc_x"),
        chat_type="group",
        sender_name="小王",
        media=(Media(object="k", mime="image/png", size=3),),
        metadata={"a": "b"},
        time=NOON,
        reply_to="feishu::0",
    )
    wire = orjson.loads(message.to_wire())
    assert (wire["from"], wire["conversation"]) == ("im://feishu/ou_y", "im://feishu/oc_x")
    assert wire["time"] == "2026-03-01T12:00:00Z"
    assert "from_" not in wire
    assert "budget" not in wire
    assert InboundMessage.model_validate_json(message.to_wire()) == message


def test_unknown_fields_are_ignored() -> None:
    raw = {"id": "1", "from": "agent://main", "to": "im://a/b", "conversation": "im://a/b"}
    raw["time"] = "2026-03-01T12:00:00Z"
    for model in (InboundMessage, OutboundMessage):
        assert model.model_validate({**raw, "tomorrow": [1]}) == model.model_validate(raw)


def test_messages_do_not_change() -> None:
    inbound = InboundMessage(from_=CLI, conversation=CLI, content="hi")
    outbound = OutboundMessage(id="1", from_=MAIN, to=CLI, conversation=CLI)
    for message in (inbound, outbound):
        with pytest.raises(ValidationError):
            message.content = "other"  # type: ignore[misc]


def test_sender_and_conversation_stand_in_for_each_other() -> None:
    chat, person = Address.im("feishu", "oc_x"), Address.im("feishu", "ou_y")
    assert InboundMessage.model_validate({"from": person}).conversation == person
    assert InboundMessage.model_validate({"conversation": chat}).from_ == chat
    both = InboundMessage(from_=person, conversation=chat)
    assert (both.from_, both.conversation) == (person, chat)
    with pytest.raises(ValidationError):
        InboundMessage.model_validate({"content": "from nobody"})


def test_times_of_answers_are_utc() -> None:
    beijing = NOON.astimezone(timezone(timedelta(hours=8)))
    answer = OutboundMessage(id="1", from_=MAIN, to=CLI, conversation=CLI, expires_at=beijing)
    assert orjson.loads(answer.to_wire())["expires_at"] == "2026-03-01T12:00:00Z"


PROPERTIES = (
    "channel",
    "sender_id",
    "chat_id",
    "is_from_agent",
    "sender_address",
    "target_address",
)
ORIGINS = ("origin_channel", "origin_chat_id", "origin_sender_id", "origin_im")


def test_properties_of_a_message_of_a_person() -> None:
    message = InboundMessage(
        from_=Address.im("feishu", "ou_y"), conversation=Address.im("feishu", "oc/x")
    )
    assert [getattr(message, name) for name in PROPERTIES] == [
        *("feishu", "ou_y", "oc/x", False),
        *(Address.im("feishu", "ou_y"), MAIN),
    ]
    assert [getattr(message, name) for name in ORIGINS] == [
        *("feishu", "oc/x", "ou_y"),
        Address.im("feishu", "oc/x"),
    ]


def test_properties_of_a_message_of_an_agent() -> None:
    parent, child = Address.agent("main"), Address.agent("main", "poet")
    message = InboundMessage(from_=parent, to=child, conversation=parent)
    assert [getattr(message, name) for name in PROPERTIES] == [
        *("agent", "main", "main", True),
        *(parent, child),
    ]
    assert [getattr(message, name) for name in ORIGINS] == ["agent", "main", "main", None]


def _from(sender: Address, metadata: dict[str, str]) -> InboundMessage:
    return InboundMessage(from_=sender, conversation=sender, metadata=metadata)


def test_a_sub_agent_knows_who_started_it_all() -> None:
    origin = {
        "origin_address": "im://feishu/oc_x",
        "origin_channel": "feishu",
        "origin_chat_id": "oc_x",
        "origin_sender": "ou_y",
    }
    message = _from(Address.agent("main", "poet"), origin)
    assert [getattr(message, name) for name in ORIGINS] == [
        *("feishu", "oc_x", "ou_y"),
        Address.im("feishu", "oc_x"),
    ]


@pytest.mark.parametrize("address", ["", "nowhere", "agent://main", "im://"])
def test_an_origin_that_is_no_chat_is_none(address: str) -> None:
    message = _from(MAIN, {"origin_address": address})
    assert message.origin_im is None


def test_an_empty_origin_falls_back() -> None:
    message = _from(CLI, {"origin_channel": "", "origin_chat_id": "", "origin_sender": ""})
    assert [getattr(message, name) for name in ORIGINS] == ["cli", "local", "local", CLI]


def test_properties_of_an_answer() -> None:
    chat = Address.im("feishu", "oc/x")
    answer = OutboundMessage(id="1", from_=MAIN, to=chat, conversation=chat)
    assert (answer.channel, answer.chat_id) == ("feishu", "oc/x")
    to_agent = OutboundMessage(id="1", from_=MAIN, to=MAIN, conversation=Address.agent("a", "b"))
    assert (to_agent.channel, to_agent.chat_id) == ("", "a/b")


def test_defaults_of_an_answer() -> None:
    answer = OutboundMessage(id="1", from_=MAIN, to=CLI, conversation=CLI)
    assert orjson.loads(answer.to_wire()) == {
        "id": "1",
        "from": "agent://main",
        "to": "im://cli/local",
        "conversation": "im://cli/local",
        "kind": "final",
        "content": "",
        "media": [],
        "metadata": {},
        "tools_used": [],
        "waiting_user": False,
        "in_reply_to": [],
    }


def test_null_inside_open_data_is_kept() -> None:
    error = ErrorInfo(code="x", message="y", details={"a": None, "b": {"c": None}})
    assert orjson.loads(error.to_wire())["details"] == {"a": None, "b": {"c": None}}


def test_usage_adds_up() -> None:
    one = UsageStats(input_tokens=1, output_tokens=2, tool_calls=3, latency_ms=4)
    assert one + one == UsageStats(input_tokens=2, output_tokens=4, tool_calls=6, latency_ms=8)


@pytest.mark.parametrize("media", [{}, {"url": "u", "object": "o"}, {"url": "u", "size": -1}])
def test_media_name_one_source(media: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Media.model_validate(media)
