"""Dead letters: the body as it came, the reason in a header that NATS can carry."""

from typing import Any, cast

import pytest
from nats.js import JetStreamContext

from posthouse import dlq


class Stream:
    """Takes what is published."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, dict[str, str]]] = []

    async def publish(self, subject: str, body: bytes, headers: dict[str, str], **_: Any) -> None:
        """See JetStreamContext."""
        self.published.append((subject, body, headers))


async def dead_letter(reason: str) -> tuple[str, bytes, dict[str, str]]:
    """What is kept of a message that failed for this reason."""
    stream = Stream()
    await dlq.publish(
        cast(JetStreamContext, stream),
        subject="inbound.im.cli.local",
        body=b"\x00 not json",
        reason=reason,
        msg_id="INBOUND:1:7",
        stream_seq=7,
        attempts=2,
    )
    ((subject, body, headers),) = stream.published
    return subject, body, headers


async def test_a_message_is_kept_as_it_came() -> None:
    subject, body, headers = await dead_letter("nul: the body contains a NUL character")
    assert (subject, body) == ("dlq.inbound.im.cli.local", b"\x00 not json")
    assert headers == {
        "Nats-Msg-Id": "INBOUND:1:7",
        "Posthouse-Reason": "nul: the body contains a NUL character",
        "Posthouse-Subject": "inbound.im.cli.local",
        "Posthouse-Stream-Seq": "7",
        "Posthouse-Attempts": "2",
    }


@pytest.mark.parametrize(
    "reason", ["坏消息", "a\r\nNats-Msg-Id: forged", "x" * 5000, "\x00", "\ud800"]
)
async def test_any_reason_fits_into_a_header(reason: str) -> None:
    _, _, headers = await dead_letter(reason)
    kept = headers["Posthouse-Reason"]
    assert 0 < len(kept) <= 300
    assert kept.isascii()
    assert kept.isprintable()
