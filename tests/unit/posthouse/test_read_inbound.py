"""What becomes of bodies from outside: read, with defaults, or refused with a reason (R5)."""

import contextlib
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posthouse.address import Address
from posthouse.errors import BadMessage
from posthouse.messages import InboundMessage, Media, read_inbound
from tests.unit.posthouse.strategies import as_json, json_values, texts

KEY = "im.cli.local"
CLI = Address.im("cli", "local")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIELDS = sorted({"from", *InboundMessage.model_fields, "channel", "chat_id", "sender_id", "ChatID"})


def read(body: bytes, key: str = KEY) -> InboundMessage:
    """Read a body as the worker does."""
    return read_inbound(body, key, default_id="INBOUND:1:7", time=NOON)


def read_fields(key: str = KEY, **fields: Any) -> InboundMessage:
    """Read a body of these fields."""
    return read(orjson.dumps({"content": "hi", **fields}), key)


def test_content_is_enough() -> None:
    message = read(b'{"content": "hi"}')
    assert message == InboundMessage(
        id="INBOUND:1:7",
        from_=CLI,
        to=Address.agent("main"),
        conversation=CLI,
        chat_type="p2p",
        content="hi",
        time=NOON,
    )
    assert message.request_id == message.sender_name == message.role_name == ""
    assert (message.media, message.allowed_tools, message.call_chain) == ((), (), ())
    assert (message.reply_to, message.budget, message.deadline_ms) == (None, None, None)
    assert not message.is_cron


@pytest.mark.parametrize("key", ["im.feishu.oc_x", "im.feishu=2Bbot2.oc_x"])
def test_the_subject_names_the_conversation_in_a_group(key: str) -> None:
    message = read_fields(key, **{"from": "im://feishu/ou_y", "chat_type": "group"})
    assert message.from_ == Address.im("feishu", "ou_y")
    assert message.conversation.id == "oc_x"


def test_a_hashed_subject_takes_the_name_from_the_body() -> None:
    name = "im://cli/" + "x" * 121
    key = "im.cli.=h79072a47bfaa54e6057a9ee21e0dea64"
    assert str(read_fields(key, conversation=name).conversation) == name
    assert str(read_fields(key, **{"from": name}).conversation) == name
    with pytest.raises(BadMessage):
        read_fields(key)


@pytest.mark.parametrize(
    "time",
    [
        "2026-03-01T12:00:00Z",
        "2026-03-01T20:00:00+08:00",
        "2026-03-01T12:00:00",
        1772366400,
        1772366400000,
    ],
)
def test_times_are_utc(time: object) -> None:
    message = read_fields(time=time)
    assert message.time == NOON
    assert orjson.loads(message.to_wire())["time"] == "2026-03-01T12:00:00Z"


def test_media_alone_are_a_message() -> None:
    assert read(b'{"media": [{"url": "http://a/b.png"}]}').media == (Media(url="http://a/b.png"),)


BAD_BODIES = {
    "no body": (b"", "not_json"),
    "text": (b"hello", "not_json"),
    "not utf-8": (b'{"content": "\xff"}', "not_json"),
    "lone surrogate": (b'{"content": "\\ud800"}', "not_json"),
    "raw nul": (b'{"content": "a\x00"}', "not_json"),
    "NaN": (b'{"content": "a", "deadline_ms": NaN}', "not_json"),
    "too deep": (b"[" * 5000, "not_json"),
    "list": (b'["content"]', "not_an_object"),
    "string": (b'"content"', "not_an_object"),
    "nul": (b'{"content": "a\\u0000b"}', "nul"),
    "nul in a key": (b'{"content": "a", "x\\u0000": 1}', "nul"),
    "nul behind a backslash": (b'{"content": "\\\\\\u0000"}', "nul"),
    "content is a number": (b'{"content": 7}', "wrong_type"),
    "time is no time": (b'{"content": "a", "time": "noon"}', "wrong_type"),
    "no time in UTC": (b'{"content": "a", "time": "0001-01-01T00:00:00+08:00"}', "wrong_type"),
    "unknown scheme": (b'{"content": "a", "from": "mail://a/b"}', "wrong_type"),
    "unknown chat type": (b'{"content": "a", "chat_type": "crowd"}', "wrong_type"),
    "legacy channel": (b'{"content": "a", "channel": "a/b", "chat_id": "x"}', "address"),
    "elsewhere": (b'{"content": "a", "conversation": "im://cli/x"}', "other_conversation"),
    "long id": (b'{"content": "a", "id": "%s"}' % (b"i" * 513), "long_id"),
    "long id in bytes": (b'{"content": "a", "id": "%s"}' % ("驿".encode() * 342), "long_id"),
    "nothing": (b"{}", "empty"),
    "blank": (b'{"content": " \\n\\t\xe3\x80\x80"}', "empty"),
    "too large": (b'{"content": "%s"}' % (b"x" * 256 * 1024), "too_large"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_bodies(name: str) -> None:
    body, reason = BAD_BODIES[name]
    with pytest.raises(BadMessage) as caught:
        read(body)
    assert caught.value.details["reason"] == reason
    assert caught.value.message


@pytest.mark.parametrize("key", ["", "im.cli", "mail.a.b", "im.cli.=00", "im.cli.=61", "agent.="])
def test_bad_subjects(key: str) -> None:
    with pytest.raises(BadMessage) as caught:
        read(b'{"content": "hi"}', key)
    assert caught.value.details["reason"] == "address"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (rb"\\u0000", r"\u0000"),
        (rb"\\\\u0000", r"\\u0000"),
        (rb"\u0001", "\x01"),
        (rb"u0000", "u0000"),
    ],
)
def test_what_only_looks_like_nul_is_kept(text: bytes, content: str) -> None:
    assert read(b'{"content": "%s"}' % text).content == content


@given(st.text(st.sampled_from('\\u0\x00"a')))
@example("\\\x00")
@example("\\\\u0000")
def test_nul_is_found_wherever_it_is(content: str) -> None:
    """Postgres stores no NUL, but whatever else a person types goes through."""
    body = orjson.dumps({"content": f"x{content}"})
    if "\x00" in content:
        with pytest.raises(BadMessage):
            read(body)
    else:
        assert read(body).content == f"x{content}"


@given(json_values | st.dictionaries(st.sampled_from(FIELDS), json_values | texts, max_size=5))
@example({"content": "hi", "parent_agent_id": "/", "channel": "agent"})
@example({"content": "hi", "id": [], "media": ["", None]})
def test_any_json_is_read_or_refused(value: object) -> None:
    with contextlib.suppress(BadMessage):
        message = read(as_json(value))
        assert message.conversation == CLI
        assert read_inbound(message.to_wire(), KEY, default_id="", time=NOON) == message


@given(texts.filter(str.strip))
def test_any_text_comes_through(content: str) -> None:
    assert read_fields(content=content).content == content
