"""The one message protocol: IM to agent, agent to agent, agent to IM (docs/protocol.md).

Models are frozen; unknown fields are ignored, so that services of two versions understand each
other; ``None`` means absent. Media travel as references, never inline.
"""

import codecs
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from posthouse import subjects
from posthouse.address import Address
from posthouse.errors import AddressError, BadMessage
from posthouse.legacy import upgrade

MAX_INBOUND_BYTES = 256 * 1024
MAX_ID_CHARACTERS = 512
MAX_ID_BYTES = 1024
# An escaped NUL: \\u0000 after an even number of backslashes. Raw ones are not JSON.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
MAIN_AGENT = Address.agent("main")
# Metadata by which agents pass on who started it all.
ORIGIN_KEYS = frozenset({"origin_address", "origin_channel", "origin_chat_id", "origin_sender"})

ChatType = Literal["p2p", "group", "agent"]
OutboundKind = Literal["final", "message", "notice"]


def utc_now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("in UTC this time is outside the calendar") from error


Time = Annotated[datetime, AfterValidator(_in_utc)]
"""A moment in UTC; read with any offset, without one as UTC."""


class Wire(BaseModel):
    """Base of everything that crosses the bus: frozen, tolerant, written by alias."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True
    )

    def to_wire(self) -> bytes:
        """JSON bytes; fields that are None are left out."""
        return self.model_dump_json(exclude_none=True).encode()


class Media(Wire):
    """A reference to a file: ``url`` or ``object`` (key in the object store), size in bytes."""

    url: str | None = None
    object: str | None = None
    mime: str | None = None
    name: str | None = None
    size: Annotated[int, Field(ge=0)] | None = None
    sha256: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.url is None) == (self.object is None):
            raise ValueError("media needs exactly one of url and object")
        return self


class Budget(Wire):
    """What a run and all its children may still use; None = no limit of its own."""

    tokens: int | None = None
    spawns: int | None = None


class UsageStats(Wire):
    """What a run used; latency in milliseconds."""

    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    latency_ms: int = 0

    def __add__(self, other: "UsageStats") -> "UsageStats":
        return UsageStats(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            tool_calls=self.tool_calls + other.tool_calls,
            latency_ms=self.latency_ms + other.latency_ms,
        )


class ErrorInfo(Wire):
    """An error as data: stable code, text for people, whether retrying can help."""

    code: str
    message: str
    retryable: bool = False
    details: dict[str, Any] = Field(default_factory=dict)


class InboundMessage(Wire):
    """A message to an agent, from a person, the system or another agent.

    In a group ``from`` is the person and ``conversation`` the chat. The fields from
    ``parent_agent_id`` on count between agents only.
    """

    id: str = ""
    from_: Address = Field(alias="from")
    to: Address = MAIN_AGENT
    conversation: Address
    chat_type: ChatType = "p2p"
    sender_name: str = ""
    content: str = ""
    media: tuple[Media, ...] = ()
    metadata: dict[str, str] = Field(default_factory=dict)
    time: Time = Field(default_factory=utc_now)
    request_id: str = ""
    reply_to: str | None = None
    is_cron: bool = False

    parent_agent_id: str = ""
    role_name: str = ""
    system_prompt: str = ""
    allowed_tools: tuple[str, ...] = ()
    call_chain: tuple[str, ...] = ()
    call_id: str = ""
    deadline_ms: int | None = None
    budget: Budget | None = None
    trace: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        fields = upgrade(data, frozenset(cls.model_fields) | {"from"})
        sender = fields.get("from", fields.get("from_"))
        if "conversation" not in fields and sender is not None:
            fields["conversation"] = sender
        elif sender is None and "conversation" in fields:
            fields["from"] = fields["conversation"]
        return fields

    @property
    def channel(self) -> str:
        """'agent' for a message of an agent, else the channel of the conversation."""
        return "agent" if self.is_from_agent else self.conversation.channel

    @property
    def sender_id(self) -> str:
        """Id of the sender within its channel; the path of an agent."""
        return _own_id(self.from_)

    @property
    def chat_id(self) -> str:
        """Id of the conversation within its channel."""
        return _own_id(self.conversation)

    @property
    def is_from_agent(self) -> bool:
        """True when an agent sent it."""
        return self.from_.is_agent

    @property
    def sender_address(self) -> Address:
        """Same as ``from``."""
        return self.from_

    @property
    def target_address(self) -> Address:
        """Same as ``to``."""
        return self.to

    @property
    def origin_channel(self) -> str:
        """Channel of the conversation that started it all."""
        return self.metadata.get("origin_channel") or self.channel

    @property
    def origin_chat_id(self) -> str:
        """Chat id of the conversation that started it all."""
        return self.metadata.get("origin_chat_id") or self.chat_id

    @property
    def origin_sender_id(self) -> str:
        """Id of the person who started it all."""
        return self.metadata.get("origin_sender") or self.sender_id

    @property
    def origin_im(self) -> Address | None:
        """The IM conversation that started it all, None when there is none."""
        try:
            found = Address.parse(self.metadata["origin_address"])
        except (KeyError, AddressError):
            found = self.conversation
        return found if found.is_im else None


class OutboundMessage(Wire):
    """A message from an agent. ``in_reply_to`` names every inbound id it answers."""

    id: str
    seq: int | None = None
    from_: Address = Field(alias="from")
    to: Address
    conversation: Address
    kind: OutboundKind = "final"
    content: str = ""
    media: tuple[Media, ...] = ()
    metadata: dict[str, str] = Field(default_factory=dict)
    tools_used: tuple[str, ...] = ()
    waiting_user: bool = False
    error: ErrorInfo | None = None
    usage: UsageStats | None = None
    in_reply_to: tuple[str, ...] = ()
    expires_at: Time | None = None

    @property
    def channel(self) -> str:
        """Channel of the conversation, '' outside IM."""
        return self.conversation.channel

    @property
    def chat_id(self) -> str:
        """Id of the conversation within its channel."""
        return _own_id(self.conversation)


def _own_id(address: Address) -> str:
    if address.is_im:
        return address.id
    return f"{address.domain}/{address.id}" if address.id else address.domain


def read_inbound(body: bytes, key: str, *, default_id: str, time: datetime) -> InboundMessage:
    """Read a body that came in for the conversation ``key`` (R5).

    Only ``content`` (or media) is required: the conversation comes from the key, the sender is
    the conversation, id and time are the given defaults. Raises BadMessage, with a ``reason``
    in its details, for anything that cannot be understood or stored.
    """
    if len(body) > MAX_INBOUND_BYTES:
        raise _bad("too_large", f"{len(body)} bytes; the limit is {MAX_INBOUND_BYTES}")
    try:
        # Some editors and shells on Windows put the mark there.
        data = orjson.loads(body.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise _bad("not_json", f"the body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise _bad("not_an_object", 'the body must be a JSON object like {"content": "hi"}')
    if _NUL.search(body):  # Postgres stores no NUL, in text or in jsonb
        raise _bad("nul", "the body contains a NUL character")
    message = _validated(_named(data, key), default_id, time)
    if subjects.key(message.conversation) != key:
        raise _bad("other_conversation", "the body names another conversation than its subject")
    if len(message.id) > MAX_ID_CHARACTERS or len(message.id.encode()) > MAX_ID_BYTES:
        limits = f"{MAX_ID_CHARACTERS} characters and {MAX_ID_BYTES} bytes of UTF-8"
        raise _bad("long_id", f"an id has at most {limits}")
    if not message.content.strip() and not message.media:
        raise _bad("empty", "a message needs content or media")
    return message


def _named(data: dict[str, Any], key: str) -> dict[str, Any]:
    try:
        fields = upgrade(data, frozenset(InboundMessage.model_fields) | {"from"})
    except AddressError as error:
        raise _bad("address", error.message) from error
    if "conversation" not in fields and "from" in fields:
        # Without a conversation of its own the message belongs to the one it came in for,
        # unless that key is hashed: then the sender is the only name there is.
        if not _is_hashed(key):
            fields["conversation"] = _address_of(key)
    elif "conversation" not in fields:
        fields["conversation"] = _address_of(key)
    return fields


def _is_hashed(key: str) -> bool:
    return any(subjects.is_hashed(part) for part in key.split("."))


def _address_of(key: str) -> Address:
    try:
        return subjects.address(key)
    except AddressError as error:
        raise _bad("address", error.message) from error


def _validated(fields: dict[str, Any], default_id: str, time: datetime) -> InboundMessage:
    fields.setdefault("time", time)
    if not fields.get("id"):
        fields["id"] = default_id
    try:
        return InboundMessage.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise _bad("wrong_type", f"{place}: {first['msg']}") from error


def _bad(reason: str, message: str) -> BadMessage:
    return BadMessage(message, reason=reason)
