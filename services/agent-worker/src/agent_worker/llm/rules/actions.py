"""What a command can lead to, and the tools that are there for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from posthouse.texts import Language

_MISSING = {
    "en": "That needs a tool named {tool}, and there is none here.",
    "zh": "这需要名为 {tool} 的工具，当前没有提供。",
}
_UNCLEAR = {
    "en": 'I cannot fill in the arguments of {tool}. Write them out: !tool {tool} {{"…": …}}',
    "zh": '我无法填写 {tool} 的参数，请直接写出：!tool {tool} {{"…": …}}',
}


@dataclass(frozen=True, slots=True)
class Call:
    """Call a tool."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with a text. ``tentative``: a later rule that leads to a call is better."""

    text: str
    tentative: bool = False


Action = Call | Say


class Offer:
    """The offered tools, given as OpenAI function schemas."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        functions = [tool["function"] for tool in tools]
        self._schemas = {f["name"]: f.get("parameters") or {} for f in functions}
        self._by_lower = {name.lower(): name for name in self._schemas}

    @property
    def names(self) -> list[str]:
        """All names, as offered."""
        return list(self._schemas)

    def find(self, *names: str) -> str | None:
        """The first of these that is offered, whatever its case."""
        return next((self._by_lower[n.lower()] for n in names if n.lower() in self._by_lower), None)

    def properties(self, tool: str) -> dict[str, Any]:
        """The arguments that a tool takes."""
        return dict(self._schemas[tool].get("properties") or {})

    def required(self, tool: str) -> list[str]:
        """The arguments that a tool must get."""
        return list(self._schemas[tool].get("required") or [])

    def text_argument(self, tool: str) -> str | None:
        """The single required argument, if it is a string."""
        required = self.required(tool)
        if len(required) != 1:
            return None
        kind = self.properties(tool).get(required[0], {}).get("type")
        return required[0] if kind == "string" else None


def use(offer: Offer, names: Sequence[str], argument: str, language: Language) -> Action:
    """Call the first offered of ``names`` with one text, or say why not."""
    tool = offer.find(*names)
    if tool is None:
        return missing(names[0], language)
    parameter = offer.text_argument(tool)
    if parameter is None:
        return Say(_UNCLEAR[language].format(tool=tool), tentative=True)
    return Call(tool, {parameter: argument})


def missing(tool: str, language: Language) -> Say:
    """Say that there is no such tool."""
    return Say(_MISSING[language].format(tool=tool), tentative=True)
