"""Every NATS subject, spelled once (docs/protocol.md).

An address becomes subject tokens: ``[A-Za-z0-9_-]`` stay, every other UTF-8 byte is ``=HH``, an
empty token is ``=``. An escaped id over 120 characters is replaced by ``=h`` and 32 hex digits of
its SHA-256; such a token cannot be read back, so the body must name the conversation. An IM or
system id is one token, an agent path has one token per part.

The tokens of a conversation, joined by dots, are its **key** (``im.cli.local``): the same key
names the subjects, the rows in Postgres and the delivery entry of one conversation.
"""

import hashlib
import re

from posthouse.address import Address
from posthouse.errors import AddressError

INBOUND_PREFIX = "inbound"
COMMAND_PREFIX = "command"
OUTBOUND_PREFIX = "outbound"
EVENTS_PREFIX = "events"
AGENT_PREFIX = "agent"
DLQ_PREFIX = "dlq"

INBOUND_ALL = f"{INBOUND_PREFIX}.>"
COMMAND_ALL = f"{COMMAND_PREFIX}.>"
OUTBOUND_ALL = f"{OUTBOUND_PREFIX}.>"
EVENTS_ALL = f"{EVENTS_PREFIX}.>"
DLQ_ALL = f"{DLQ_PREFIX}.>"
CONTROL_ALL = "control.>"
CRON_ALL = "cron.>"
CRON_FIRES = "cron.fire.>"
AGENT_MAIN = f"{AGENT_PREFIX}.main"
AGENT_MAIN_ROLES = f"{AGENT_PREFIX}.main.>"

MAX_ID_CHARACTERS = 120
_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+|=")
_HASHED = re.compile(r"=h[0-9a-f]{32}")


def token(text: str) -> str:
    """Escape any text into one subject token; '' becomes '='."""
    if not text:
        return "="
    return "".join(chr(b) if b in _KEPT else f"={b:02X}" for b in text.encode())


def untoken(escaped: str) -> str:
    """Read a token back. Raises AddressError when it is hashed or was not made by ``token``."""
    if escaped == "=":
        return ""
    if is_hashed(escaped):
        raise AddressError("a hashed token cannot be read back; the body must name the address")
    if not _TOKEN.fullmatch(escaped):
        raise AddressError(f"{escaped[:80]!r} is not an address token")
    raw = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), escaped.encode())
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise AddressError(f"{escaped[:80]!r} does not hold UTF-8 text") from error
    if token(text) != escaped:
        raise AddressError(f"{escaped[:80]!r} is escaped in another way than ours")
    return text


def is_hashed(escaped: str) -> bool:
    """True for the token of an id that was too long to keep."""
    return _HASHED.fullmatch(escaped) is not None


def _id_token(text: str) -> str:
    escaped = token(text)
    if len(escaped) <= MAX_ID_CHARACTERS:
        return escaped
    return "=h" + hashlib.sha256(text.encode()).hexdigest()[:32]


def key(address: Address) -> str:
    """The tokens of an address, joined by dots, as ``im.feishu.oc_x`` or ``agent.main.x``."""
    if address.is_agent:
        parts = [address.domain, *address.id.split("/")] if address.id else [address.domain]
        return ".".join(("agent", *(_id_token(part) for part in parts)))
    return f"{address.scheme}.{_id_token(address.domain)}.{_id_token(address.id)}"


def address(key_: str) -> Address:
    """The address behind a key. Raises AddressError if a token is hashed or malformed."""
    scheme, *tokens = key_.split(".")
    parts = [untoken(part) for part in tokens]
    if scheme != "agent" and len(parts) != 2:
        raise AddressError(f"{key_[:80]!r} is no conversation; write scheme.domain.id")
    found = Address.agent(*parts) if scheme == "agent" else Address(scheme, *parts)
    if key(found) != key_:
        raise AddressError(f"{key_[:80]!r} is spelled in another way than ours")
    return found


def conversation_key(subject: str) -> str:
    """The key inside an ``inbound.…``, ``command.…`` or ``outbound.…`` subject."""
    return subject.partition(".")[2]


def inbound(conversation: Address) -> str:
    """Where inbound messages of a conversation are published."""
    return f"{INBOUND_PREFIX}.{key(conversation)}"


def command(conversation: Address) -> str:
    """Where the commands (/stop, /new, …) of a conversation are published (R3)."""
    return f"{COMMAND_PREFIX}.{key(conversation)}"


def outbound(conversation: Address) -> str:
    """Where outbound messages of a conversation are published."""
    return f"{OUTBOUND_PREFIX}.{key(conversation)}"


def outbound_domain(domain: str) -> str:
    """All outbound messages of one bot (``<channel>`` or ``<channel>+<bot>``)."""
    return f"{OUTBOUND_PREFIX}.im.{_id_token(domain)}.>"


def deliver_durable(domain: str) -> str:
    """Name of the durable consumer that delivers one bot's outbound messages."""
    return f"deliver-{_id_token(domain)}"


def events(conversation: Address, workflow_id: str) -> str:
    """The event stream of one workflow."""
    return f"{EVENTS_PREFIX}.{key(conversation)}.{_id_token(workflow_id)}"


def events_of(conversation: Address) -> str:
    """The event streams of every workflow of a conversation."""
    return f"{EVENTS_PREFIX}.{key(conversation)}.*"


def agent(agent_address: Address) -> str:
    """Where requests to an agent go: ``agent://main/x`` is ``agent.main.x``."""
    return key(agent_address)


def frames(call_id: str) -> str:
    """Heartbeats, progress and the result of one agent call."""
    return f"frames.{_id_token(call_id)}"


def control(conversation: Address) -> str:
    """Hint that a command waits for the holder of a conversation (R3)."""
    return f"control.{key(conversation)}"


def control_call(call_id: str) -> str:
    """Hint that an agent call was cancelled (R15)."""
    return f"control.call.{_id_token(call_id)}"


def dead_letter(subject: str) -> str:
    """Where a message that could not be handled on ``subject`` is kept."""
    return f"{DLQ_PREFIX}.{subject}"


def memory(area: str, verb: str) -> str:
    """RPC subject of the memory service, as ``memory.turn.open``."""
    return f"memory.{area}.{verb}"


def scheduler(verb: str) -> str:
    """RPC subject of the scheduler."""
    return f"scheduler.{verb}"
