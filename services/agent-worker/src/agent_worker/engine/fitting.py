"""Model responses that fit the journal, which takes 192 kB in one step, and so does an answer."""

from typing import Any

import orjson

from agent_worker.engine.thinking import strip_thinking
from agent_worker.llm.client import Message

# Leaves room for what is stored and sent with the message.
MAX_BYTES = 160 * 1024
MAX_CALLS = 100
MAX_NAME_CHARACTERS = 64
CUT = "\n\n[…]"


def fitted(message: Message) -> tuple[Message, bool]:
    """The message with what nobody reads left out, then cut; True if calls or text were cut."""
    if _size(message) <= MAX_BYTES:
        return message, False
    message = {key: value for key, value in message.items() if key != "reasoning_content"}
    message["content"] = strip_thinking(message["content"])
    if _size(message) <= MAX_BYTES:
        return message, False
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [_without_arguments(call) for call in calls[:MAX_CALLS]]
    room = MAX_BYTES - _size(message | {"content": ""})
    message["content"] = _cut(message["content"], room)
    return message, True


def _without_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """A call that is answered with an error; so its arguments need not be known."""
    name = call["function"]["name"][:MAX_NAME_CHARACTERS]
    return {"id": call["id"], "type": "function", "function": {"name": name, "arguments": "{}"}}


def _cut(text: str, limit: int) -> str:
    """As much of the text as has ``limit`` bytes in JSON."""
    if _size(text) <= limit:
        return text
    limit -= _size(CUT)
    while (size := _size(text)) > limit:
        text = text[: len(text) * limit // size]
    return text + CUT


def _size(value: Any) -> int:
    return len(orjson.dumps(value))
