"""Signatures: published and generated vectors, rotation, and headers of any kind."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.receiving import BadSignature, WebhookRequest
from gateway.signatures import (
    ID,
    SIGNATURE,
    TIMESTAMP,
    Secret,
    sign,
    verify_github,
    verify_standard,
)
from tests.support.webhook_sender import NOW, OTHER, WHSEC, github, standard

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "generic.json").read_text())
BODY = '{"content": "你好"}'.encode()
WINDOW_S = 300.0


def check(headers: dict[str, str], *secrets: str, body: bytes = BODY, now: float = NOW) -> str:
    """The id of a delivery by Standard Webhooks."""
    parsed = [Secret.parse(secret) for secret in secrets or (WHSEC,)]
    return verify_standard(WebhookRequest(headers, body), parsed, now, WINDOW_S)


def check_github(headers: dict[str, str], *secrets: str, body: bytes = BODY) -> str:
    """The id of a delivery signed as GitHub does."""
    parsed = [Secret.parse(secret) for secret in secrets or (WHSEC,)]
    return verify_github(WebhookRequest(headers, body), parsed)


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["id"])
def test_vectors(vector: dict[str, Any]) -> None:
    headers = {name.lower(): value for name, value in vector["headers"].items()}
    body = vector["raw_body"].encode()
    try:
        if vector["kind"] == "standard_webhooks":
            check(headers, vector["secret"], body=body, now=vector["now"])
        else:
            check_github(headers, vector["secret"], body=body)
        accepted = True
    except BadSignature:
        accepted = False
    assert accepted == vector["expect"]["accepted"]


def test_what_we_sign_is_what_others_sign() -> None:
    assert sign(Secret.parse(WHSEC), "msg_1", NOW, BODY) == standard(BODY)


def test_the_id_of_the_delivery_is_returned() -> None:
    assert check(standard(BODY, id="evt.7")) == "evt.7"
    assert check_github({**github(BODY), "x-github-delivery": "d-1"}) == "d-1"
    assert check_github(github(BODY)) == ""


@pytest.mark.parametrize("secret", [WHSEC, OTHER])
def test_both_secrets_hold_while_they_are_exchanged(secret: str) -> None:
    assert check(standard(BODY, secret), WHSEC, OTHER) == "msg_1"
    check_github(github(BODY, secret), WHSEC, OTHER)


def test_a_secret_without_prefix_is_the_key_itself() -> None:
    assert check(standard(BODY, "just text"), "just text") == "msg_1"
    check_github(github(BODY, "just text"), "just text")


def test_one_entry_of_several_is_enough_and_other_versions_do_not_count() -> None:
    headers = standard(BODY)
    right = headers[SIGNATURE]
    assert check({**headers, SIGNATURE: f"v1a,AAAA v1,AAAA {right} v2,x"}) == "msg_1"
    for other in (right.replace("v1,", "v1a,"), right.replace("v1,", "v2,"), right[3:], "v1,"):
        with pytest.raises(BadSignature):
            check({**headers, SIGNATURE: other})


@pytest.mark.parametrize("away", [-301, 301, 10**9])
def test_old_and_future_requests_are_refused(away: int) -> None:
    with pytest.raises(BadSignature, match="away from now"):
        check(standard(BODY, timestamp=NOW + away))


@pytest.mark.parametrize("away", [-300, 300])
def test_the_window_includes_its_edges(away: int) -> None:
    assert check(standard(BODY, timestamp=NOW + away)) == "msg_1"


@pytest.mark.parametrize(
    "moment", ["1e9", "-1", "+1700000000", "1700000000.0", " 1700000000", "1_700", "９", "9" * 5000]
)
def test_a_time_is_plain_seconds(moment: str) -> None:
    with pytest.raises(BadSignature, match=TIMESTAMP):
        check(standard(BODY, timestamp=moment))


@pytest.mark.parametrize("change", ["body", "id", "time", "secret"])
def test_everything_that_is_signed_counts(change: str) -> None:
    headers, body = standard(BODY), BODY
    if change == "body":
        body += b" "
    elif change == "secret":
        headers = standard(BODY, OTHER)
    else:
        name = ID if change == "id" else TIMESTAMP
        headers[name] = headers[name][:-1] + "9"
    with pytest.raises(BadSignature):
        check(headers, body=body)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64", "whsec_A", "whsec_你好"])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="it"):
        Secret.parse(secret)


def test_a_secret_is_not_shown() -> None:
    assert "MfKQ" not in repr(Secret.parse(WHSEC))


# A server hands header values over as Latin-1; nothing else can be in them.
VALUES = st.text(st.characters(max_codepoint=255), max_size=80)


@given(st.dictionaries(st.sampled_from([ID, TIMESTAMP, SIGNATURE]), VALUES), st.binary(max_size=50))
def test_any_garbage_is_a_bad_signature(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(BadSignature):
        check(headers, body=body)


@given(st.sampled_from([ID, TIMESTAMP, SIGNATURE]), VALUES)
def test_one_garbled_header_spoils_a_right_request(name: str, value: str) -> None:
    right = standard(BODY)
    headers = {**right, name: value}
    if right[SIGNATURE] in value.split(" ") or headers == right:
        return
    with pytest.raises(BadSignature):
        check(headers)


@given(VALUES.map(lambda value: f"sha256={value}") | VALUES)
def test_any_garbage_is_a_bad_signature_of_github(value: str) -> None:
    with pytest.raises(BadSignature):
        check_github({"x-hub-signature-256": value})


@given(st.binary(min_size=1), st.binary(), st.text("abc.-_019", min_size=1, max_size=20))
def test_whatever_is_signed_is_accepted(key: bytes, body: bytes, id: str) -> None:
    secret = Secret.parse("whsec_" + base64.b64encode(key).decode())
    request = WebhookRequest(sign(secret, id, NOW, body), body)
    assert verify_standard(request, [secret], NOW, WINDOW_S) == id
