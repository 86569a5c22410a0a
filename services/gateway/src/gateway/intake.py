"""From an HTTP request to an inbound message on its subject."""

import asyncio
import codecs
from collections.abc import AsyncIterator
from typing import TypeVar
from uuid import uuid4

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from starlette.requests import ClientDisconnect, Request

from gateway.channels import web
from gateway.problems import TooLarge, TooSlow
from gateway.settings import (
    BODY_TIMEOUT_S,
    MAX_CONVERSATION_ID_CHARACTERS,
    MAX_IDEMPOTENCY_KEY_CHARACTERS,
)
from posthouse import commands, subjects
from posthouse.errors import BadMessage, BadRequest
from posthouse.messages import (
    MAX_INBOUND_BYTES,
    InboundMessage,
    Media,
    Wire,
    read_inbound,
    utc_now,
)

Model = TypeVar("Model", bound=BaseModel)

ID_FORM = f"1 to {MAX_IDEMPOTENCY_KEY_CHARACTERS} characters of printable ASCII without spaces"


NOT_EMPTY: list[JsonValue] = [
    {"required": ["content"], "properties": {"content": {"pattern": r"\S"}}},
    {"required": ["media"], "properties": {"media": {"minItems": 1}}},
]
"""What OpenAPI says of it; in the end ``refuse_what_agents_would`` decides."""


class NewMessage(Wire):
    """Body of ``POST /api/conversations/{id}/messages``."""

    model_config = ConfigDict(json_schema_extra={"anyOf": NOT_EMPTY})

    content: str = ""
    sender: str = ""
    sender_name: str = ""
    media: tuple[Media, ...] = ()
    metadata: dict[str, str] = Field(default_factory=dict)


async def read_body(request: Request) -> bytes:
    """The whole body. Raises TooLarge, TooSlow, and BadRequest when it ends early."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await read_limited(request.stream())
    except TimeoutError as error:
        raise TooSlow() from error
    except ClientDisconnect as error:
        raise BadRequest("the request ended before its body did") from error


async def read_limited(chunks: AsyncIterator[bytes]) -> bytes:
    """The whole body. Raises TooLarge as soon as it is more than a message may be."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_INBOUND_BYTES:
            raise TooLarge(f"the body is over {MAX_INBOUND_BYTES} bytes")
    return bytes(body)


def read_json(body: bytes, model: type[Model]) -> Model:
    """Understand a body. Raises BadMessage."""
    try:
        return model.model_validate(orjson.loads(body.removeprefix(codecs.BOM_UTF8)))
    except orjson.JSONDecodeError as error:
        raise BadMessage(f"the body is not JSON: {error}", reason="not_json") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise BadMessage(f"{place}: {first['msg']}", reason="wrong_type") from error


def inbound(conversation_id: str, new: NewMessage, idempotency_key: str | None) -> InboundMessage:
    """The message for the agents, in the shape they will accept.

    Raises AddressError, BadRequest, BadMessage and TooLarge.
    """
    if len(conversation_id) > MAX_CONVERSATION_ID_CHARACTERS:
        limit = MAX_CONVERSATION_ID_CHARACTERS
        raise BadRequest(f"a conversation id has at most {limit} characters")
    conversation = web.address(conversation_id)
    message = InboundMessage(
        id=f"{web.NAME}::{_checked(idempotency_key) or uuid4().hex}",
        from_=web.address(new.sender or conversation_id),
        conversation=conversation,
        sender_name=new.sender_name,
        content=new.content,
        media=new.media,
        metadata=new.metadata,
    )
    refuse_what_agents_would(message)
    return message


def is_id(text: str) -> bool:
    """True for an id that a message may have at its source; it travels in headers of the bus."""
    printable = text.isascii() and text.isprintable() and " " not in text
    return printable and 0 < len(text) <= MAX_IDEMPOTENCY_KEY_CHARACTERS


def subject_of(message: InboundMessage) -> str:
    """Commands go where nothing waits (R3)."""
    if commands.parse(message.content) is not None:
        return subjects.command(message.conversation)
    return subjects.inbound(message.conversation)


def refuse_what_agents_would(message: InboundMessage) -> None:
    """A message that would end as a dead letter is better refused. Raises BadMessage, TooLarge."""
    key = subjects.key(message.conversation)
    try:
        read_inbound(message.to_wire(), key, default_id=message.id, time=utc_now())
    except BadMessage as error:
        if error.details.get("reason") == "too_large":
            raise TooLarge(error.message) from error
        raise


def _checked(idempotency_key: str | None) -> str | None:
    if idempotency_key is None:
        return None
    if not is_id(idempotency_key):
        raise BadRequest(f"the Idempotency-Key has {ID_FORM}")
    return idempotency_key
