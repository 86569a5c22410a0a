"""From a conversation to the next message: the plan of the newest request, one step further."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_worker.llm.client import Message
from agent_worker.llm.rules.actions import Call, Offer, Say
from agent_worker.llm.rules.commands import Situation
from agent_worker.llm.rules.planning import Group, plan
from posthouse.texts import Language, language_of

Fallback = Callable[[Language, list[str]], str]

MAX_STEPS = 6
_QUOTED_LINES = 3
_ERROR = "Error:"
_FAILED = {"en": "{tool} failed: {result}", "zh": "{tool} 出错：{result}"}
_ENOUGH = {
    "en": f"I stop after {MAX_STEPS} steps; send the rest as a new message.",
    "zh": f"最多执行 {MAX_STEPS} 步，其余请另发一条消息。",
}
_EXAMPLES = {
    "calculator": {"en": "17*23+4", "zh": "17*23+4 等于多少"},
    "current_time": {"en": "what time is it?", "zh": "现在几点"},
    "ask_user": {"en": "ask_user What is your name?", "zh": "ask_user 你叫什么名字？"},
}
_RECALL_EXAMPLE = {"en": "what did I say last?", "zh": "我上一条消息是什么"}
_SHOWN_EXAMPLES = 4


@dataclass(frozen=True, slots=True)
class _Request:
    """The newest user messages, what stands before them and what was done since."""

    before: Sequence[Message]
    texts: list[str]
    since: Sequence[Message]


def answer(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]], fallback: Fallback
) -> Message:
    """The next assistant message.

    ``fallback(language, examples)`` is the text for what no rule knows.
    """
    request = _newest(messages)
    offer = Offer(tools)
    language = language_of(" ".join(request.texts))
    groups = _plan(request, offer, language, fallback)
    done = [message for message in request.since if message.get("tool_calls")]
    results = {
        message["tool_call_id"]: str(message.get("content") or "")
        for message in request.since
        if message["role"] == "tool"
    }
    turn = sum(message["role"] == "user" for message in messages)
    return _next(groups, done, results, language, turn)


def _newest(messages: Sequence[Message]) -> _Request:
    end = len(messages)
    while end and messages[end - 1]["role"] != "user":
        end -= 1
    start = end
    while start and messages[start - 1]["role"] == "user":
        start -= 1
    texts = [_text(message) for message in messages[start:end]]
    return _Request(messages[:start], texts, messages[end:])


def _plan(request: _Request, offer: Offer, language: Language, fallback: Fallback) -> list[Group]:
    earlier = next((_text(m) for m in reversed(request.before) if m["role"] == "user"), None)
    answering = bool(request.before) and request.before[-1]["role"] == "tool"
    groups: list[Group] = []
    for text in request.texts:
        found = plan(text.strip(), Situation(offer, earlier, language, answering))
        groups += found or [(Say(fallback(language, _examples(offer, language))),)]
        earlier, answering = text, False
    if len(groups) > MAX_STEPS:
        groups[MAX_STEPS:] = [(Say(_ENOUGH[language]),)]
    return list(dict.fromkeys(groups)) if all(map(_is_text, groups)) else groups


def _next(
    groups: list[Group],
    done: list[Message],
    results: dict[str, str],
    language: Language,
    turn: int,
) -> Message:
    """The calls of the first group that has not run, or the answer once all have."""
    lines: list[str] = []
    position = number = 0
    for group in groups:
        calls = [action for action in group if isinstance(action, Call)]
        lines += [action.text for action in group if isinstance(action, Say)]
        if not calls:
            continue
        if position == len(done):
            return _calling(calls, turn, number)
        made = done[position]["tool_calls"]
        position += 1
        number += len(calls)
        outcomes = [(call["function"]["name"], results.get(call["id"], "")) for call in made]
        lines += [_quoted(tool, result, language) for tool, result in outcomes]
        if any(result.startswith(_ERROR) for _, result in outcomes):
            break
    return {"role": "assistant", "content": "\n".join(lines)}


def _calling(calls: list[Call], turn: int, number: int) -> Message:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"off_{turn}_{number + place}",
                "type": "function",
                "function": {
                    "name": call.tool,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for place, call in enumerate(calls, 1)
        ],
    }


def _quoted(tool: str, result: str, language: Language) -> str:
    lines = result.strip().splitlines() or [""]
    short = "\n".join(lines[:_QUOTED_LINES]) + (" …" if len(lines) > _QUOTED_LINES else "")
    if short.startswith(_ERROR):
        return _FAILED[language].format(tool=tool, result=short.removeprefix(_ERROR).strip())
    return f"{tool} → {short}"


def _examples(offer: Offer, language: Language) -> list[str]:
    known = [example[language] for name, example in _EXAMPLES.items() if offer.find(name)]
    others = [f"{n} …" for n in offer.names if n not in _EXAMPLES and offer.text_argument(n)]
    return [*[*known, *others][: _SHOWN_EXAMPLES - 1], _RECALL_EXAMPLE[language]]


def _is_text(group: Group) -> bool:
    return all(isinstance(action, Say) for action in group)


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return str(content or "")
