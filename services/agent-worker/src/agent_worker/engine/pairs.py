"""Keeps calls and results together: a prompt in which one lacks the other is refused (G7)."""

from collections.abc import Sequence

from agent_worker.llm.client import Message

LOST = "Error: the result of this call was lost."


def paired(messages: Sequence[Message]) -> list[Message]:
    """The messages, each call followed at once by exactly one result, in the order of the calls.

    A result without its call is dropped, a call without its result gets one that says so, and
    an assistant message that says nothing is left out.
    """
    out: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message["role"] == "tool" or _says_nothing(message):
            continue
        out.append(message)
        if calls := message.get("tool_calls"):
            results: dict[str, Message] = {}
            while position < len(messages) and messages[position]["role"] == "tool":
                results.setdefault(messages[position]["tool_call_id"], messages[position])
                position += 1
            out.extend(results.get(call["id"]) or result(call["id"], LOST) for call in calls)
    return out


def _says_nothing(message: Message) -> bool:
    return message["role"] == "assistant" and not (
        message.get("content") or message.get("tool_calls")
    )


def result(call_id: str, content: str) -> Message:
    """The message that answers a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}
