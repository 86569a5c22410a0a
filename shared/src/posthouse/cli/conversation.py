"""One conversation as commands see it: what is said goes in, what the agent says comes out."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from posthouse.errors import AddressError, BadRequest, Unavailable

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext

    from posthouse.address import Address
    from posthouse.messages import InboundMessage, OutboundMessage
    from posthouse.turns import RecallResult

DEFAULT_ADDRESS = "im://cli/local"
PUBLISH_TIMEOUT_S = 3.0
PUBLISH_ATTEMPTS = 3
HEARTBEAT_S = 1.0


def chat_address(text: str) -> "Address":
    """Read the address of a chat. Raises AddressError."""
    from posthouse.address import Address

    address = Address.parse(text)
    if not address.is_im:
        raise AddressError(f"{text} is no chat; write im://channel/id, as in {DEFAULT_ADDRESS}")
    return address


def is_utf8(text: str) -> bool:
    """False for text with lone surrogates, as Python reads other bytes from a terminal."""
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in text)


class Conversation:
    """A chat with the agent, whose sender is the chat itself."""

    def __init__(self, client: "Client", address: "Address") -> None:
        from posthouse import streams, subjects

        js = client.jetstream()
        self.address = address
        self._client = client
        self._js = js
        self._outbound = _Follower(js, streams.OUTBOUND, subjects.outbound(address))
        self._inbound = _Follower(js, streams.INBOUND, subjects.inbound(address))
        self._key = subjects.key(address)

    def message(self, text: str) -> "InboundMessage":
        """What to send for this text. Raises BadRequest for one that nobody could take."""
        from posthouse.messages import MAX_INBOUND_BYTES, InboundMessage

        if not is_utf8(text):
            raise BadRequest("the text is not UTF-8")
        message = InboundMessage(
            id=f"cli::{uuid4().hex}", from_=self.address, conversation=self.address, content=text
        )
        size = len(message.to_wire())
        if size > MAX_INBOUND_BYTES:
            raise BadRequest(f"the message has {size} bytes; the limit is {MAX_INBOUND_BYTES}")
        return message

    async def send(self, message: "InboundMessage") -> None:
        """Store the message; a repeat is known by its id. Raises BadRequest, Unavailable."""
        from posthouse import commands, subjects

        subject_of = subjects.command if commands.parse(message.content) else subjects.inbound
        subject = subject_of(self.address)
        headers = {"Nats-Msg-Id": f"{subject}:{message.id}"}
        body = message.to_wire()
        with _clear_errors():
            for attempt in range(1, PUBLISH_ATTEMPTS + 1):
                try:
                    await self._js.publish(
                        subject, body, timeout=PUBLISH_TIMEOUT_S, headers=headers
                    )
                    return
                except TimeoutError:
                    # The message may be stored and only the answer lost.
                    if attempt == PUBLISH_ATTEMPTS:
                        raise

    async def listen(self) -> None:
        """From here on no answer is missed. Raises BadRequest, Unavailable."""
        await self._outbound.start()

    async def listen_in(self) -> None:
        """From here on nothing is missed that others say. Raises BadRequest, Unavailable."""
        await self._inbound.start()

    async def answers(self) -> AsyncIterator["OutboundMessage"]:
        """All that the agent says since ``listen``, each once. Raises Unavailable when closed."""
        from posthouse.messages import OutboundMessage

        seen: set[str] = set()
        async for body in self._outbound:
            try:
                answer = OutboundMessage.model_validate_json(body)
            except ValueError:
                continue  # not one of ours: anybody may publish on a bus without accounts
            if answer.id not in seen:
                seen.add(answer.id)
                yield answer

    async def answers_to(self, message_id: str) -> AsyncIterator["OutboundMessage"]:
        """What answers a message, up to its final answer or a notice."""
        async for answer in self.answers():
            if message_id in answer.in_reply_to:
                yield answer
                if answer.kind != "message":
                    return

    async def overheard(self) -> AsyncIterator["InboundMessage"]:
        """All that anybody says since ``listen_in``, this program included."""
        from posthouse.errors import BadMessage
        from posthouse.messages import read_inbound, utc_now

        async for body in self._inbound:
            try:
                yield read_inbound(body, self._key, default_id="", time=utc_now())
            except BadMessage:
                continue  # the worker answers for it

    async def history(self, limit: int, timeout_s: float) -> "RecallResult":
        """The last messages, tool calls and results among them. Raises PosthouseError."""
        from posthouse import subjects
        from posthouse.rpc import RpcClient
        from posthouse.turns import RecallRequest, RecallResult

        request = RecallRequest(key=self._key, limit=limit)
        recall = subjects.memory("history", "recall")
        return await RpcClient(self._client).call(recall, request, RecallResult, timeout_s)


class _Follower:
    """The bodies on a subject of a stream, in order and each once, over outages too."""

    def __init__(self, js: "JetStreamContext", stream: str, subject: str) -> None:
        self._js = js
        self._stream = stream
        self._subject = subject
        self._last = 0
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Begin with what comes from now on. Raises BadRequest, Unavailable."""
        from nats.js.api import ConsumerConfig, DeliverPolicy

        with _clear_errors():
            self._last = (await self._js.stream_info(self._stream)).state.last_seq
            self._subscription = await self._js.subscribe(
                self._subject,
                stream=self._stream,
                ordered_consumer=True,
                idle_heartbeat=HEARTBEAT_S,
                config=ConsumerConfig(
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=self._last + 1
                ),
            )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """For ever. Raises Unavailable when the connection was closed."""
        assert self._subscription is not None
        async for raw in self._subscription.messages:
            seq = raw.metadata.sequence.stream
            # After a reconnect nats-py starts again from the beginning of the stream.
            if seq > self._last:
                self._last = seq
                yield raw.data
        raise Unavailable("the connection to the bus was closed")


@contextmanager
def _clear_errors() -> Iterator[None]:
    import nats.errors
    from nats.js import errors as js_errors

    try:
        yield
    except (js_errors.NotFoundError, js_errors.NoStreamResponseError) as error:
        raise BadRequest("this bus has no Posthouse streams; run `posthouse bootstrap`") from error
    except js_errors.ServiceUnavailableError as error:
        raise Unavailable("the bus is not ready") from error
    except js_errors.APIError as error:
        raise BadRequest(f"the bus refused the message: {error.description}") from error
    except (nats.errors.Error, TimeoutError) as error:
        raise Unavailable(f"the bus did not take the message: {error or 'timeout'}") from error
