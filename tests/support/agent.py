"""An agent played by a test: hears what was said, and answers on the outbound subject."""

from posthouse import streams, subjects
from posthouse.address import Address
from posthouse.messages import MAIN_AGENT, InboundMessage, OutboundKind, OutboundMessage
from tests.support.servers import Nats

LOCAL = Address.im("cli", "local")
HEAR_S = 30.0


class PlayedAgent:
    """Plays the agent of any conversation; ``env`` is how commands find its bus."""

    def __init__(self, bus: Nats) -> None:
        self._bus = bus
        self._answers = 0
        self.env = {"POSTHOUSE_NATS_URL": bus.url}

    async def hear(self, conversation: Address = LOCAL, after: int = 0) -> InboundMessage:
        """The message of a conversation behind the first ``after``."""
        js = await self._bus.jetstream()
        waiting = await js.subscribe(subjects.inbound(conversation), stream=streams.INBOUND)
        for _ in range(after + 1):
            raw = await waiting.next_msg(timeout=HEAR_S)
        await waiting.unsubscribe()
        return InboundMessage.model_validate_json(raw.data)

    async def say(
        self, content: str, *in_reply_to: str, kind: OutboundKind = "final", to: Address = LOCAL
    ) -> None:
        """Publish an outbound message."""
        self._answers += 1
        answer = OutboundMessage(
            id=f"answer-{self._answers}",
            from_=MAIN_AGENT,
            to=to,
            conversation=to,
            kind=kind,
            content=content,
            in_reply_to=in_reply_to,
        )
        js = await self._bus.jetstream()
        await js.publish(subjects.outbound(to), answer.to_wire(), timeout=5)
