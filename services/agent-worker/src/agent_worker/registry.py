"""The tools a worker has, and which of them an agent may use."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agent_worker import tools as shipped
from agent_worker.schemas import ArgumentsCheck
from agent_worker.tool import Tool
from posthouse import discovery
from posthouse.errors import ConfigError
from posthouse.settings import Settings

ENTRY_POINTS = "posthouse.tools"
# What every provider accepts as a function name.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Entry(NamedTuple):
    tool: Tool
    schema: dict[str, Any]
    problems: Callable[[dict[str, Any]], list[str]]


class ToolRegistry:
    """Tools by name, in order of registration.

    Without ``checks_arguments`` calls are not compared with the schemas: those of strangers can
    refer to addresses and hold patterns that take hours, and whoever has such a tool checks.
    """

    def __init__(self, tools: Iterable[Tool] = (), *, checks_arguments: bool = True) -> None:
        self._checks_arguments = checks_arguments
        self._entries: dict[str, _Entry] = {}
        self._sources: list[Callable[[], ToolRegistry]] = []
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> None:
        """Add a tool. Raises ConfigError for a bad or taken name and for a bad schema."""
        if not _NAME.fullmatch(tool.name):
            raise ConfigError(f"tool name {tool.name!r}: use 1-64 of A-Z a-z 0-9 _ -")
        if tool.name in self._entries:
            raise ConfigError(f"two tools are named {tool.name!r}")
        try:
            check = ArgumentsCheck(tool.input_schema)
        except ValueError as error:
            raise ConfigError(f"tool {tool.name}: bad input_schema: {error}") from error
        problems = check.problems if self._checks_arguments else _unchecked
        self._entries[tool.name] = _Entry(tool, _function_schema(tool), problems)

    def add_source(self, source: "Callable[[], ToolRegistry]") -> None:
        """Add tools that come and go: ``narrowed`` asks which of them there are then."""
        self._sources.append(source)

    def narrowed(self, allows: Callable[[Tool], bool]) -> "ToolRegistry":
        """A registry with those of these tools that are allowed, in the same order.

        It stays as it is when the sources change. Of two tools of one name the first counts.
        """
        entries = dict(self._entries)
        for source in self._sources:
            added = source()._entries
            entries |= {name: entry for name, entry in added.items() if name not in entries}
        narrowed = ToolRegistry()
        narrowed._entries = {n: e for n, e in entries.items() if allows(e.tool)}
        return narrowed

    def get(self, name: str) -> Tool | None:
        """The tool of that name, None if there is none."""
        entry = self._entries.get(name)
        return entry.tool if entry else None

    def list_for(self, agent_name: str) -> list[Tool]:
        """The tools that an agent may use: an authorisation, checked again at execution."""
        return [entry.tool for entry in self._entries.values()]

    def may_use(self, agent_name: str, tool: Tool) -> bool:
        """True if ``list_for(agent_name)`` has the tool."""
        return self.get(tool.name) is tool

    def schemas_for(self, agent_name: str) -> list[dict[str, Any]]:
        """OpenAI function schemas of ``list_for(agent_name)``; not to be changed."""
        return [self._entries[tool.name].schema for tool in self.list_for(agent_name)]

    def problems(self, tool: Tool, input: dict[str, Any]) -> list[str]:
        """What is wrong with the arguments of a call; empty if they fit the schema."""
        return self._entries[tool.name].problems(input)


def load_tools(settings: Settings) -> ToolRegistry:
    """Every shipped, installed and configured tool.

    Raises ConfigError for two tools of one name and for a file that cannot be loaded.
    """
    registry = ToolRegistry()
    sources = (
        discovery.in_package(shipped, "tools"),
        discovery.in_entry_points(ENTRY_POINTS),
        discovery.in_paths(list(settings.tools_path), "tools"),
    )
    for source in sources:
        for _, tools in source:
            for tool in _made(tools, settings):
                registry.register(tool)
    return registry


def _made(tools: Callable[..., list[Tool]], settings: Settings) -> list[Tool]:
    """Call ``tools()``, or ``tools(settings)`` where it takes them."""
    return tools(settings) if inspect.signature(tools).parameters else tools()


def _unchecked(input: dict[str, Any]) -> list[str]:
    return []


def _function_schema(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
        },
    }
