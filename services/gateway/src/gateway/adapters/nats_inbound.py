"""The INBOUND stream as the place where inbound messages are stored."""

from nats.aio.client import Client
from nats.js.errors import APIError

from gateway.adapters.nats_errors import FOREIGN
from gateway.ports import TooManyMessages
from gateway.settings import PUBLISH_TIMEOUT_S
from posthouse.bus import MSG_ID, headers_from_context
from posthouse.errors import Unavailable
from posthouse.messages import InboundMessage

STORE_FAILED = 10077
PER_SUBJECT = "per subject"
"""JetStream's error code of a full stream; only the text tells whether it is the subject that is
full ("maximum messages per subject exceeded") or all of it ("maximum bytes exceeded", seen)."""


class NatsInbound:
    """Publishes to JetStream and waits for the PubAck."""

    def __init__(self, connection: Client) -> None:
        self._connection = connection
        self._js = connection.jetstream(timeout=PUBLISH_TIMEOUT_S)

    async def publish(self, subject: str, message: InboundMessage) -> None:
        """Return once it is stored; a message with the same id on the subject is stored once.

        Raises Unavailable, after which it may be stored all the same, and TooManyMessages.
        """
        # While it reconnects nats-py would keep the message and send it later, long after the
        # caller was told to repeat it.
        if not self._connection.is_connected:
            raise Unavailable("NATS is not connected")
        headers = {MSG_ID: f"{subject}:{message.id}", **headers_from_context()}
        try:
            await self._js.publish(subject, message.to_wire(), headers=headers)
        except APIError as error:
            if error.err_code == STORE_FAILED and PER_SUBJECT in (error.description or ""):
                raise TooManyMessages("too many messages in this conversation") from error
            raise Unavailable(f"the stream does not take messages: {error.description}") from error
        except FOREIGN as error:
            raise Unavailable(f"NATS does not answer: {type(error).__name__}") from error
