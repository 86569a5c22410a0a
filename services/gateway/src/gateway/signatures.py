"""Signatures of webhooks: Standard Webhooks, and the ``X-Hub-Signature-256`` of GitHub.

Standard Webhooks signs ``id.timestamp.body``; the other scheme signs the body alone, so that only
an id in the body tells a repeat.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.receiving import BadSignature, WebhookRequest

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"
HUB_SIGNATURE = "x-hub-signature-256"
HUB_DELIVERY = "x-github-delivery"

ENCODED = "whsec_"
VERSION = "v1,"
HUB_VERSION = "sha256="
# Enough until the year 33658; more digits are no time.
_SECONDS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Secret:
    """A shared secret: its text, and the key of Standard Webhooks that it stands for."""

    text: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "Secret":
        """Read ``whsec_<base64>``, or any other text, which is the key itself.

        Raises ValueError when nothing is left, or when it is not base64 after ``whsec_``.
        """
        if not text.startswith(ENCODED):
            key = text.encode()
        else:
            try:
                key = base64.b64decode(text.removeprefix(ENCODED), validate=True)
            except (binascii.Error, ValueError) as error:
                raise ValueError(f"after {ENCODED} it must be base64: {error}") from error
        if not key:
            raise ValueError("it is empty")
        return cls(text.encode(), key)


def sign(secret: Secret, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks for a body."""
    moment = str(timestamp)
    signature = VERSION + _standard(secret, id, moment, body)
    return {ID: id, TIMESTAMP: moment, SIGNATURE: signature}


def verify_standard(
    request: WebhookRequest, secrets: Sequence[Secret], now_s: float, window_s: float
) -> str:
    """Check a request signed by Standard Webhooks; the id of the delivery.

    One matching ``v1`` entry is enough, of any secret; other versions are ignored. Raises
    BadSignature.
    """
    id, moment = _header(request.headers, ID), _header(request.headers, TIMESTAMP)
    given = _header(request.headers, SIGNATURE).split(" ")
    if _SECONDS.fullmatch(moment) is None:
        raise BadSignature(f"the header {TIMESTAMP} must be Unix seconds")
    entries = [entry.removeprefix(VERSION) for entry in given if entry.startswith(VERSION)]
    if not _any_equal(entries, [_standard(secret, id, moment, request.body) for secret in secrets]):
        raise BadSignature(f"no {VERSION} entry of the header {SIGNATURE} fits the request")
    if abs(now_s - int(moment)) > window_s:
        raise BadSignature(f"the header {TIMESTAMP} is over {window_s:g} s away from now")
    return id


def verify_github(request: WebhookRequest, secrets: Sequence[Secret]) -> str:
    """Check a request signed as GitHub does; the id of the delivery, which nobody signed, or ''.

    Raises BadSignature.
    """
    given = _header(request.headers, HUB_SIGNATURE)
    expected = [hmac.digest(secret.text, request.body, hashlib.sha256).hex() for secret in secrets]
    if not given.startswith(HUB_VERSION):
        raise BadSignature(f"the header {HUB_SIGNATURE} must begin with {HUB_VERSION}")
    if not _any_equal([given.removeprefix(HUB_VERSION)], expected):
        raise BadSignature(f"the header {HUB_SIGNATURE} does not fit the request")
    return request.headers.get(HUB_DELIVERY, "")


def _standard(secret: Secret, id: str, moment: str, body: bytes) -> str:
    signed = b".".join((id.encode(), moment.encode(), body))
    return base64.b64encode(hmac.digest(secret.key, signed, hashlib.sha256)).decode()


def _any_equal(given: Sequence[str], expected: Sequence[str]) -> bool:
    """Compared as bytes, in a time that does not depend on where they differ."""
    pairs = [(mine.encode(), theirs.encode()) for theirs in given for mine in expected]
    return any([hmac.compare_digest(mine, theirs) for mine, theirs in pairs])


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise BadSignature(f"the header {name} is missing")
    if not value.isascii() or not value.isprintable():
        raise BadSignature(f"the header {name} must be printable ASCII")
    return value
