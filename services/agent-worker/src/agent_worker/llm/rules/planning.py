"""One message to a plan: groups of actions, one group after the other, calls of one at once.

"A then B" and lists are groups in sequence, "A and B" is one group. ``!tool NAME {json}`` calls
a tool as it says.
"""

import json
import re
from collections.abc import Iterator

from agent_worker.llm.rules.actions import Action, Call, Say, missing
from agent_worker.llm.rules.commands import Situation, act

Group = tuple[Action, ...]

# No plain command is longer, and the patterns cost the square of what they search: one pasted
# table froze a worker for minutes (seen).
MAX_CHARACTERS = 2000

_DIRECTIVE = re.compile(r"[!/]tool\s+(?P<name>[A-Za-z0-9_-]+)[ \t]*")
_THEN = re.compile(
    r"\s*[,，;；。]?\s*(?:\b(?:and )?then\b|然后再?|接着)[,，]?\s*|\s*[;；]\s*|\s*\n+\s*",
    re.IGNORECASE,
)
_AND = re.compile(r"\s+and\s+|\s*(?:和|并且|以及|、)\s*", re.IGNORECASE)
_LIST_MARK = re.compile(r"^\s*(?:\d+[.)、]|[-*])\s+")
_BAD_JSON = {
    "en": "What follows !tool {tool} is not a JSON object.",
    "zh": "!tool {tool} 后面不是 JSON 对象。",
}


def plan(text: str, situation: Situation) -> list[Group] | None:
    """What to do for a message; None if no rule knows any part of it."""
    if _DIRECTIVE.match(text):
        return list(_directives(text, situation))
    if len(text) > MAX_CHARACTERS:
        return None
    pieces = [_LIST_MARK.sub("", piece) for piece in _THEN.split(text) if piece.strip()]
    groups = [_group(piece, situation) for piece in pieces]
    if any(group is None for group in groups):
        # The word was perhaps part of a sentence.
        whole = act(text, situation)
        if whole is not None:
            return [(whole,)]
    known = [group for group in groups if group is not None]
    return known or None


def _group(piece: str, situation: Situation) -> Group | None:
    parts = [act(part, situation) for part in _AND.split(piece) if part.strip()]
    calls = tuple(part for part in parts if isinstance(part, Call))
    if len(parts) > 1 and len(calls) == len(parts):
        return calls
    whole = act(piece, situation)
    return None if whole is None else (whole,)


def _directives(text: str, situation: Situation) -> Iterator[Group]:
    while text:
        found = _DIRECTIVE.match(text)
        if found is None:
            yield from plan(text, situation) or []
            return
        action, text = _directive(found["name"], text[found.end() :], situation)
        yield (action,)
        text = text.lstrip()
        separator = _THEN.match(text)
        text = text[separator.end() if separator else 0 :].strip()


def _directive(name: str, rest: str, situation: Situation) -> tuple[Action, str]:
    tool = situation.offer.find(name)
    arguments: object = {}
    if rest.startswith("{"):
        try:
            arguments, end = json.JSONDecoder().raw_decode(rest)
        except json.JSONDecodeError:
            return Say(_BAD_JSON[situation.language].format(tool=name)), ""
        rest = rest[end:]
    if tool is None or not isinstance(arguments, dict):
        return missing(name, situation.language), rest
    return Call(tool, arguments), rest
