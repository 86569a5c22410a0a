"""History as exchanges: what a person said, and all that followed until they spoke again."""

from agent_worker.engine.results import cap
from agent_worker.llm.client import Message
from posthouse.messages import InboundMessage

# A history entry has at most 192 kB of JSON, and a character up to 6 bytes there.
MAX_REMEMBERED_CHARACTERS = 30_000


def user_message(message: InboundMessage) -> Message:
    """An inbound message as the model sees it; in a group it says who speaks."""
    speaker = message.sender_name if message.chat_type == "group" else ""
    content = f"{speaker}: {message.content}" if speaker else message.content
    for media in message.media:
        content += f"\n[{media.name or media.mime or 'file'}: {media.url or media.object}]"
    return {"role": "user", "content": content.strip()}


def remembered(message: InboundMessage) -> Message:
    """The same for the history, where it must fit: a long one keeps its head and its tail."""
    said = user_message(message)
    return said | {"content": cap(said["content"], MAX_REMEMBERED_CHARACTERS)}


def whole_exchanges(history: list[Message]) -> list[Message]:
    """History from its first user message on: a cut never leaves half an exchange (G7)."""
    for index, message in enumerate(history):
        if message.get("role") == "user":
            return history[index:]
    return []
