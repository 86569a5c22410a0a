"""Requests to agents on the bus (docs/protocol.md)."""

from collections.abc import Awaitable, Callable

from faststream.nats import NatsBroker
from faststream.nats.annotations import NatsMessage

from agent_worker import settings
from agent_worker.requests import AgentRequests
from posthouse import subjects
from posthouse.bus import message_scope
from posthouse.rpc import respond

QUEUE = "agents"


def attach(broker: NatsBroker, requests: AgentRequests) -> None:
    """Serve ``agent.main`` and everything below it in queue group ``agents``."""
    for subject in (subjects.AGENT_MAIN, subjects.AGENT_MAIN_ROLES):
        # FastStream would send an empty reply of its own behind ours.
        subscriber = broker.subscriber(
            subject, queue=QUEUE, max_workers=settings.AGENT_REQUESTS, no_reply=True
        )
        subscriber(_endpoint(requests))


def _endpoint(requests: AgentRequests) -> Callable[[NatsMessage], Awaitable[None]]:
    async def endpoint(message: NatsMessage) -> None:
        with message_scope(message.headers):
            subject = message.raw_message.subject
            reply = await requests.answer(subject, message.raw_message.data)
        await respond(message, reply.to_wire())

    return endpoint
