"""Requests, replies and errors between services, as bytes."""

import orjson
import pytest

from posthouse.errors import (
    BadMessage,
    BadRequest,
    Busy,
    ConfigError,
    Fenced,
    PosthouseError,
    TransientError,
    Unavailable,
)
from posthouse.messages import Wire
from posthouse.rpc import (
    Raw,
    RemotePermanentError,
    RemoteTransientError,
    RpcServer,
    decode_reply,
    encode_error,
    encode_result,
)


class Question(Wire):
    text: str


class Answer(Wire):
    text: str = ""
    number: int | None = None


def test_result_of_a_model_raw_json_or_nothing() -> None:
    assert encode_result(Answer(text="你")) == '{"ok":true,"result":{"text":"你"}}'.encode()
    assert encode_result(Raw('{"a":[1]}')) == b'{"ok":true,"result":{"a":[1]}}'
    assert encode_result(None) == b'{"ok":true,"result":{}}'


@pytest.mark.parametrize("result", [Answer(text="x", number=3), Raw('{"text":"x","number":3}')])
def test_result_comes_back(result: Answer | Raw) -> None:
    assert decode_reply(encode_result(result), Answer) == Answer(text="x", number=3)


def test_error_on_the_wire() -> None:
    wire = orjson.loads(encode_error(Busy("full", waiting=3, of={1})))
    assert wire == {
        "ok": False,
        "error": {
            "code": "busy",
            "message": "full",
            "retryable": True,
            "details": {"waiting": 3, "of": "{1}"},
        },
    }


@pytest.mark.parametrize("kind", [Busy, Fenced, BadRequest, BadMessage, Unavailable])
def test_known_errors_come_back_as_themselves(kind: type[PosthouseError]) -> None:
    with pytest.raises(kind, match="why") as caught:
        decode_reply(encode_error(kind("why", field="x")), Answer)
    assert caught.value.details == {"field": "x"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TransientError("later"), RemoteTransientError),
        (ConfigError("never"), RemotePermanentError),
        (PosthouseError("what"), RemotePermanentError),
    ],
)
def test_other_errors_keep_their_code(error: PosthouseError, kind: type[PosthouseError]) -> None:
    with pytest.raises(kind) as caught:
        decode_reply(encode_error(error), Answer)
    assert caught.value.details["code"] == error.code
    assert caught.value.retryable == error.retryable


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"ok":true}',
        b'{"ok":true,"result":[]}',
        b'{"ok":true,"result":{"number":"x"}}',
        b'{"ok":false}',
        b'{"ok":false,"error":{}}',
        b'{"ok":false,"error":"x"}',
    ],
)
def test_replies_that_are_none(reply: bytes) -> None:
    with pytest.raises(RemotePermanentError):
        decode_reply(reply, Answer)


def test_an_error_without_details_is_read() -> None:
    reply = b'{"ok":false,"error":{"code":"busy","message":"m","details":null}}'
    with pytest.raises(Busy, match="m"):
        decode_reply(reply, Answer)


def test_methods_know_their_request() -> None:
    server = RpcServer("q")

    @server.method("a.b")
    async def ask(question: Question) -> Answer:
        return Answer(text=question.text)

    class Handlers:
        async def ask(self, question: "Question") -> None:
            return None

    handlers = Handlers()
    server.add("a.c", handlers.ask)
    assert server.methods == {"a.b": (Question, ask), "a.c": (Question, handlers.ask)}
