"""Requests to agents on the bus (PROTOCOL section 4)."""

from collections.abc import Awaitable, Callable

from faststream.nats import NatsBroker
from faststream.nats.annotations import NatsMessage

from agent_worker import settings
from agent_worker.requests import AgentRequests
from posthouse import subjects
from posthouse.bus import message_scope

QUEUE = "agents"


def attach(broker: NatsBroker, requests: AgentRequests) -> None:
    """Serve ``agent.main`` and everything below it in queue group ``agents``."""
    for subject in (subjects.AGENT_MAIN, subjects.AGENT_MAIN_ROLES):
        subscriber = broker.subscriber(subject, queue=QUEUE, max_workers=settings.AGENT_REQUESTS)
        subscriber(_endpoint(broker, requests))


def _endpoint(
    broker: NatsBroker, requests: AgentRequests
) -> Callable[[NatsMessage], Awaitable[None]]:
    async def endpoint(message: NatsMessage) -> None:
        raw = message.raw_message
        with message_scope(message.headers):
            reply = await requests.answer(raw.subject, bytes(message.body))
        if raw.reply:
            await broker.publish(reply.to_wire(), raw.reply)

    return endpoint
