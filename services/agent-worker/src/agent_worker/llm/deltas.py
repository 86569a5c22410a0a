"""Puts a streamed answer together: deltas in all their dialects become one response body.

Tool calls come in pieces, and what says which piece belongs where differs: ``index`` may be
missing, repeated for parallel calls, or begin at 1; ids may be absent, empty or change on the
way; names may come late or with every piece.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from agent_worker.llm.surrogates import Halves, joined

# More than can be stored, and a bound for a stream that never ends.
MAX_CHARACTERS = 1024 * 1024
CALL_CHARACTERS = 100


@dataclass(slots=True)
class _Call:
    """A tool call under way. Unknown fields are kept: some providers want them back."""

    index: Any
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {**self.more, "id": self.id, "function": function}


class StreamedAnswer:
    """One answer; ``add`` each data object, then ask for the ``payload``."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._usage: Any = None
        self._choice_seen = False
        self._halves = Halves()
        self._characters = 0
        self.finish_reason = ""

    @property
    def is_full(self) -> bool:
        """Whether it has more than ``MAX_CHARACTERS``: then the rest is not worth reading."""
        return self._characters > MAX_CHARACTERS

    def add(self, data: dict[str, Any]) -> str:
        """Take in an object of the stream; returns the text that it adds."""
        if isinstance(data.get("usage"), dict):
            self._usage = data["usage"]  # some send one with each piece: the last counts
        added = ""
        for choice in _first(data.get("choices")):
            self._choice_seen = True
            added += self._add_delta(choice.get("delta") or choice.get("message") or {})
            self.finish_reason = str(choice.get("finish_reason") or "") or self.finish_reason
        return added

    def payload(self) -> dict[str, Any]:
        """The answer as a server would have sent it in one piece."""
        if not self._choice_seen:
            return {"choices": [], "usage": self._usage}
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [call.to_wire() for call in self._calls]
        choice = {"index": 0, "message": joined(message), "finish_reason": self._outcome()}
        return {"choices": [choice], "usage": self._usage}

    def _outcome(self) -> str:
        """A call whose arguments are broken off was cut off, whatever the server calls it."""
        if self.is_full:
            return "length"
        whole = all(_is_whole(call) for call in self._calls if call.name)
        return self.finish_reason if whole else "length"

    def _add_delta(self, delta: Any) -> str:
        if not isinstance(delta, dict):
            return ""
        text = self._halves.add(_text(delta.get("content")))
        if text:
            self._text.append(text)
        if reasoning := _text(delta.get("reasoning_content") or delta.get("reasoning")):
            self._reasoning.append(reasoning)
        self._characters += len(text) + len(reasoning)
        pieces = delta.get("tool_calls")
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict):
                self._add_piece(piece)
        return text

    def _add_piece(self, piece: dict[str, Any]) -> None:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        id, name = str(piece.get("id") or ""), str(function.get("name") or "")
        call = self._call_of(piece.get("index"), id, function)
        # The first value wins: some repeat both in each piece, and some change the id midway.
        call.id, call.name = call.id or id, call.name or name
        arguments = function.get("arguments")
        if arguments is not None:
            text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            call.arguments.append(text)
            self._characters += len(text)
        known = ("index", "id", "type", "function")
        call.more |= {key: value for key, value in piece.items() if key not in known}

    def _call_of(self, index: Any, id: str, function: dict[str, Any]) -> _Call:
        here = [call for call in self._calls if call.index == index]
        named = [call for call in here if id and call.id == id]
        # Without an index only the last call may go on.
        candidates = named or here or ([] if index is not None else self._calls)
        if candidates and not _begins_another(candidates[-1], id, function):
            return candidates[-1]
        call = _Call(index)
        self._calls.append(call)
        self._characters += CALL_CHARACTERS
        return call


def _begins_another(call: _Call, id: str, function: dict[str, Any]) -> bool:
    """Whether a piece that could go on with ``call`` is a call of its own."""
    name, arguments = function.get("name"), function.get("arguments")
    if name and str(arguments or "").lstrip().startswith("{") and _is_object(call):
        return True  # two whole ones under one id
    differs = bool(id and call.id and id != call.id)
    if call.index is None:
        return differs or bool(name and call.name and id != call.id)
    # Another id at the same index: a new call if it is named, else the id changed on the way.
    return differs and bool(name)


def _is_object(call: _Call) -> bool:
    return "".join(call.arguments).rstrip().endswith("}") and _is_whole(call)


def _is_whole(call: _Call) -> bool:
    arguments = "".join(call.arguments).strip()
    try:
        orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return False
    return True


def _first(choices: Any) -> Iterator[dict[str, Any]]:
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        yield choices[0]


def _text(content: Any) -> str:
    """Text of a delta, which may be null, a string or a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
