"""Errors: codes, what may be retried, and how they cross the bus."""

import inspect

import orjson
import pytest

from posthouse import errors, rpc
from posthouse.errors import PermanentError, PosthouseError, TransientError
from posthouse.turns import Ack, ReadResult

CLASSES = [
    cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, PosthouseError)
]


def test_codes_are_unique() -> None:
    assert len({cls.code for cls in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_says_what_to_do(cls: type[PosthouseError]) -> None:
    assert cls.retryable is issubclass(cls, TransientError)
    assert cls is PosthouseError or issubclass(cls, TransientError | PermanentError)
    assert str(cls()) == cls().message != ""
    error = cls("why", key="im.cli.local", error=1, message="field")
    assert (str(error), error.message) == ("why", "why")
    assert error.details == {"key": "im.cli.local", "error": 1, "message": "field"}


@pytest.mark.parametrize(
    "cls", [errors.Busy, errors.Unavailable, errors.Fenced, errors.BadRequest, errors.BadMessage]
)
def test_known_errors_arrive_as_they_were(cls: type[PosthouseError]) -> None:
    with pytest.raises(cls) as caught:
        rpc.decode_reply(rpc.encode_error(cls("why", reason="x", n=1)), Ack)
    assert caught.value.message == "why"
    assert caught.value.details == {"reason": "x", "n": 1}


@pytest.mark.parametrize(
    ("sent", "family"),
    [
        (TransientError("why"), TransientError),
        (errors.Drift("why"), PermanentError),
        (PosthouseError("why"), PermanentError),
    ],
)
def test_other_errors_keep_their_code_and_family(
    sent: PosthouseError, family: type[PosthouseError]
) -> None:
    with pytest.raises(family) as caught:
        rpc.decode_reply(rpc.encode_error(sent), Ack)
    assert caught.value.details["code"] == sent.code
    assert caught.value.retryable is sent.retryable


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b"null",
        b'{"ok": true}',
        b'{"ok": true, "result": 5}',
        b'{"ok": true, "result": {"steps": 1}}',
        b'{"ok": false}',
        b'{"ok": false, "error": "broken"}',
        b'{"ok": false, "error": {"code": "busy"}}',
    ],
)
def test_a_reply_that_is_none_of_ours_is_an_error_of_ours(reply: bytes) -> None:
    with pytest.raises(PermanentError, match="not one of ours"):
        rpc.decode_reply(reply, ReadResult)


def test_details_that_are_no_json_do_not_hide_the_error() -> None:
    reply = orjson.loads(rpc.encode_error(errors.BadRequest("why", at=errors)))
    assert reply["error"]["message"] == "why"
