"""The HTTP routes: each takes, calls once, answers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from gateway import intake, openapi
from gateway.channels import web
from gateway.ports import History, Inbound
from gateway.streaming import EventStreamResponse, EventStreams
from posthouse import subjects
from posthouse.address import Address
from posthouse.bus import message_scope
from posthouse.errors import Unavailable
from posthouse.feed import BEGINNING, Place
from posthouse.messages import Wire
from posthouse.turns import RecallRequest, RecallResult

MAX_NUMBER = 2**63 - 1
"""The largest number of a message that Postgres knows."""

ERRORS = (400, 401, 403, 404, 422, 502, 503)
"""What every route below may answer."""

CONVERSATION = "/api/conversations/{conversation_id:conversation}"


@dataclass(frozen=True, slots=True)
class Backend:
    """What the routes work on, once the bus is there."""

    inbound: Inbound
    history: History
    events: EventStreams


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
    before: Annotated[int | None, Query(ge=0, le=MAX_NUMBER)] = None,
) -> RecallResult:
    """The newest messages of a conversation in time order; ``before`` pages back."""
    key = subjects.key(web.address(conversation_id))
    return await backend.history.recall(RecallRequest(key=key, limit=limit, before=before))


async def opened(
    conversation_id: str,
    backend: BackendDep,
    from_: Annotated[
        Literal["start"] | None,
        Query(alias="from", description="`start`: everything that is kept, not only what is new"),
    ] = None,
    resumed: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="go on behind this event; wins over the query"),
    ] = None,
    last_event_id: Annotated[
        str | None, Query(description="the same for clients that cannot set the header")
    ] = None,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """An open stream. Raises AddressError, BadRequest, Unavailable and Busy."""
    conversation = web.address(conversation_id)
    last = resumed or last_event_id
    # An id that is none is the client's fault, and a 400 shows it: EventSource does not ask again
    # after one, and a stream that began elsewhere would hide what was missed.
    after = Place.parse(last) if last else BEGINNING if from_ else None
    async with backend.events.open(conversation, after) as stream:
        yield stream


async def get_events(
    stream: Annotated[AsyncIterator[bytes], Depends(opened)],
) -> EventStreamResponse:
    """What happens while agents work in a conversation: `id`, `event` (its type) and `data`.

    The stream is open when the headers come: nothing that is published later is missed.
    """
    return EventStreamResponse(stream)


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
    router.add_api_route(
        messages,
        post_message,
        methods=["POST"],
        status_code=202,
        responses=openapi.errors(*ERRORS, 408, 413, 429),
        openapi_extra=openapi.json_body(openapi.reference(intake.NewMessage)),
    )
    router.add_api_route(
        messages,
        get_messages,
        methods=["GET"],
        responses=openapi.errors(*ERRORS),
        response_model_exclude_none=True,
    )
    router.add_api_route(
        f"{CONVERSATION}/events",
        get_events,
        methods=["GET"],
        status_code=200,
        response_class=EventStreamResponse,
        responses=openapi.errors(*ERRORS),
    )
    return router
