"""Events on the bus in the shape in which the workers write them."""

from typing import Any

from nats.js import JetStreamContext

from posthouse import subjects
from posthouse.address import Address
from posthouse.events import StreamEvent


class EventPublisher:
    """Writes the events of one workflow, ``seq`` from 1."""

    def __init__(self, js: JetStreamContext, conversation: Address, workflow: str) -> None:
        self._js = js
        self._subject = subjects.events(conversation, workflow)
        self._workflow = workflow
        self.seq = 0

    async def publish(self, event_type: str, final: bool = False, **payload: Any) -> int:
        """Store one event; its sequence in the stream."""
        self.seq += 1
        event = StreamEvent(
            event_id=f"{self._workflow}:{self.seq}",
            workflow_id=self._workflow,
            seq=self.seq,
            event_type=event_type,
            payload=payload,
            final=final,
        )
        return (await self._js.publish(self._subject, event.to_wire())).seq

    async def delta(self, text: str) -> int:
        """Store a piece of text."""
        return await self.publish("text.delta", text=text, iteration=1)
