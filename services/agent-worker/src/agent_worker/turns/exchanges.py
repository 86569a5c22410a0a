"""History as exchanges: what a person said, and all that followed until they spoke again."""

from agent_worker.llm.client import Message
from posthouse.messages import InboundMessage


def user_message(message: InboundMessage) -> Message:
    """An inbound message as the model sees it; in a group it says who speaks."""
    speaker = message.sender_name if message.chat_type == "group" else ""
    content = f"{speaker}: {message.content}" if speaker else message.content
    for media in message.media:
        content += f"\n[{media.name or media.mime or 'file'}: {media.url or media.object}]"
    return {"role": "user", "content": content.strip()}


def whole_exchanges(history: list[Message]) -> list[Message]:
    """History from its first user message on: a cut never leaves half an exchange (G7)."""
    for index, message in enumerate(history):
        if message.get("role") == "user":
            return history[index:]
    return []
