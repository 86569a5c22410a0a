"""The HTTP routes: each takes, calls once, answers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from gateway import intake
from gateway.channels import web
from gateway.ports import History, Inbound
from posthouse import subjects
from posthouse.address import Address
from posthouse.bus import message_scope
from posthouse.errors import Unavailable
from posthouse.messages import Wire
from posthouse.turns import RecallRequest, RecallResult

CONVERSATION = "/api/conversations/{conversation_id:conversation}"


@dataclass(frozen=True, slots=True)
class Backend:
    """What the routes work on, once the bus is there."""

    inbound: Inbound
    history: History


class Accepted(Wire):
    """A stored message."""

    message_id: str
    conversation: Address


async def backend(request: Request) -> Backend:
    """Raises Unavailable while the process still waits for NATS."""
    ready: Backend | None = request.app.state.backend
    if ready is None:
        raise Unavailable("the gateway is not connected to NATS yet")
    return ready


async def correlated(request: Request) -> AsyncIterator[None]:
    """Logs and messages of a request carry its ids."""
    with message_scope(request.headers):
        yield


async def new_message(request: Request) -> intake.NewMessage:
    """The body of a request. Raises TooLarge, TooSlow, BadMessage and BadRequest."""
    return intake.read_json(await intake.read_body(request), intake.NewMessage)


BackendDep = Annotated[Backend, Depends(backend)]
NewMessageDep = Annotated[intake.NewMessage, Depends(new_message)]


async def post_message(
    conversation_id: str,
    new: NewMessageDep,
    backend: BackendDep,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Accepted:
    """Store a message for the agents; 202 means that it is stored and will be answered."""
    message = intake.inbound(conversation_id, new, idempotency_key)
    await backend.inbound.publish(intake.subject_of(message), message)
    return Accepted(message_id=message.id, conversation=message.conversation)


async def get_messages(
    conversation_id: str,
    backend: BackendDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[int | None, Query(ge=0)] = None,
) -> RecallResult:
    """The newest messages of a conversation in time order; ``before`` pages back."""
    key = subjects.key(web.address(conversation_id))
    return await backend.history.recall(RecallRequest(key=key, limit=limit, before=before))


class _ConversationId(Convertor[str]):
    # Ids may contain slashes; and "." would not match a line break, answering 404 in place of 400.
    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def build_router() -> APIRouter:
    """The routes under ``/api``."""
    register_url_convertor("conversation", _ConversationId())
    router = APIRouter(dependencies=[Depends(correlated)])
    messages = f"{CONVERSATION}/messages"
    router.add_api_route(messages, post_message, methods=["POST"], status_code=202)
    router.add_api_route(messages, get_messages, methods=["GET"], response_model_exclude_none=True)
    return router
