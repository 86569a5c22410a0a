"""The EVENTS stream as the way to those who read a conversation over HTTP."""

from nats.js import JetStreamContext
from nats.js.errors import NoStreamResponseError

from gateway.adapters.nats_errors import unavailable
from posthouse import bootstrap, events, subjects
from posthouse.events import StreamEvent
from posthouse.messages import OutboundMessage


class NatsReaders:
    """Each message is an event of its own, and its id is that of the workflow it belongs to."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js

    async def show(self, message: OutboundMessage) -> None:
        """Publish it where feeds read. Raises Unavailable, after which it may be there."""
        event = StreamEvent(
            event_id=message.id,
            workflow_id=message.id,
            seq=1,
            event_type=events.MESSAGE_SENT,
            payload=message.model_dump(mode="json", exclude_none=True),
        )
        subject = subjects.events(message.conversation, message.id)
        with unavailable("the stream EVENTS"):
            try:
                await self._js.publish(subject, event.to_wire())
            except NoStreamResponseError:
                await bootstrap.create_events(self._js)
                await self._js.publish(subject, event.to_wire())
