"""From a stream message to what is stored: a body that may be trusted, or a reason (R5, R19)."""

from agent_worker.ports import StreamMessage
from posthouse import commands, streams, subjects
from posthouse.address import Address
from posthouse.errors import BadMessage, PosthouseError
from posthouse.messages import ORIGIN_KEYS, InboundMessage, read_inbound
from posthouse.turns import Letter, Position

CLI_SENDER = Address.system("cli")
# What only agents may say to agents; on inbound subjects it is ignored.
AGENT_FIELDS = {
    name: InboundMessage.model_fields[name].get_default(call_default_factory=True)
    for name in (
        *("to", "parent_agent_id", "role_name", "system_prompt", "allowed_tools"),
        *("call_chain", "call_id", "deadline_ms", "budget", "trace"),
    )
}


def source_id(position: Position) -> str:
    """The id of a message that brings none (R4)."""
    return f"{streams.INBOUND}:{position.generation}:{position.seq}"


def read(message: StreamMessage, embedded: bool) -> Letter:
    """Read an inbound message; what cannot be used becomes a tombstone with its reason."""
    own_id = source_id(message.position)
    key = subjects.conversation_key(message.subject)
    try:
        body = read_inbound(message.body, key, default_id=own_id, time=message.time)
        _check_sender(body, embedded)
    except PosthouseError as error:
        return tombstone(message, reason_of(error))
    return Letter(
        position=message.position,
        source_id=body.id,
        address=str(body.conversation),
        body=_without_agent_fields(body),
    )


def tombstone(message: StreamMessage, reason: str) -> Letter:
    """A letter without a body: it counts as read, and is failed from the start."""
    return Letter(position=message.position, source_id=source_id(message.position), reason=reason)


def reason_of(error: PosthouseError) -> str:
    """``<reason>: <text>``, as it goes into the dead letter's header."""
    reason = error.details.get("reason", error.code)
    return f"{reason}: {error.message}"


def command_of(letter: Letter) -> commands.Command | None:
    """The command in a message that came as an ordinary one (R3)."""
    return None if letter.body is None else commands.parse(letter.body.content)


def _without_agent_fields(body: InboundMessage) -> InboundMessage:
    metadata = {name: value for name, value in body.metadata.items() if name not in ORIGIN_KEYS}
    return body.model_copy(update=AGENT_FIELDS | {"metadata": metadata})


def _check_sender(body: InboundMessage, embedded: bool) -> None:
    sender, conversation = body.from_, body.conversation
    if conversation.is_agent:
        raise BadMessage("agents are asked on agent.<path>", reason="agent_subject")
    if sender == CLI_SENDER and embedded:
        return
    if sender.is_system:
        raise BadMessage(f"{sender} does not send here", reason="sender")
    if (sender.scheme, sender.domain) != (conversation.scheme, conversation.domain):
        raise BadMessage("the sender is of another channel than the subject", reason="sender")
