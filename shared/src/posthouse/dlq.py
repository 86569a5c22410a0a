"""Dead letters: what could not be handled is kept with its reason (docs/protocol.md)."""

from nats.js import JetStreamContext

from posthouse import subjects
from posthouse.bus import MSG_ID

REASON = "Posthouse-Reason"
SUBJECT = "Posthouse-Subject"
STREAM_SEQ = "Posthouse-Stream-Seq"
ATTEMPTS = "Posthouse-Attempts"
MAX_REASON_CHARACTERS = 300


async def publish(
    js: JetStreamContext,
    *,
    subject: str,
    body: bytes,
    reason: str,
    msg_id: str,
    stream_seq: int = 0,
    attempts: int = 0,
    timeout_s: float = 3.0,
) -> None:
    """Keep a message under ``dlq.<subject>``, body unchanged; ``msg_id`` makes repeats harmless.

    Raises the errors of nats-py when the PubAck does not come.
    """
    printable = "".join(c if " " <= c <= "~" else "?" for c in reason)[:MAX_REASON_CHARACTERS]
    headers = {
        MSG_ID: msg_id,
        REASON: printable,
        SUBJECT: subject,
        STREAM_SEQ: str(stream_seq),
        ATTEMPTS: str(attempts),
    }
    await js.publish(subjects.dead_letter(subject), body, headers=headers, timeout=timeout_s)
