"""The DLQ stream as the place of messages that cannot be delivered."""

from nats.js import JetStreamContext

from gateway.adapters.nats_errors import unavailable
from posthouse import dlq


class NatsDeadLetters:
    """Keeps dead letters with their reason."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js

    async def keep(
        self, *, subject: str, body: bytes, reason: str, msg_id: str, stream_seq: int, attempts: int
    ) -> None:
        """Keep a message; ``msg_id`` makes repeats harmless. Raises Unavailable."""
        with unavailable("the stream DLQ"):
            await dlq.publish(
                self._js,
                subject=subject,
                body=body,
                reason=reason,
                msg_id=msg_id,
                stream_seq=stream_seq,
                attempts=attempts,
            )
