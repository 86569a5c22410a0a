"""Roles: what an agent is told and what it may do, one Markdown file each.

A file is front matter in YAML between two lines ``---``, and the prompt behind it. Three roles
are shipped; files of ``agents_dir`` add to them, and one of the same name takes their place. They
are read again when they change: a new turn has what the files say then (R21).
"""

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import structlog
import yaml
from pydantic import Field, ValidationError, field_validator

from agent_worker.llm.client import Tier
from agent_worker.tool import Tool
from posthouse.errors import ConfigError
from posthouse.settings import Section

log = structlog.get_logger(__name__)

SHIPPED = "agents"
MAIN = "main"
FENCE = "---"
# One token of an address, and what a model can write down.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Role(Section):
    """One role. ``tools`` without entries allows all; ``model`` is ``provider/model``."""

    name: str
    description: str = ""
    prompt: str
    tools: tuple[str, ...] = ()
    memory: bool = False
    send_message: bool = False
    spawn_agent: bool = False
    max_iterations: int = Field(0, ge=0)
    model: str = ""
    tier: Tier = "standard"
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()
    tags: dict[str, str] = Field(default_factory=dict)

    @field_validator("tools", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """``Read, Grep`` is a list too."""
        if not isinstance(value, str):
            return value
        return [name for part in value.split(",") if (name := part.strip())]

    def allows(self, tool: Tool) -> bool:
        """Whether the role may use a tool."""
        return not self.tools or any(_names(entry, tool.name) for entry in self.tools)


def _names(entry: str, tool: str) -> bool:
    """Case and ``_`` do not matter, but in ``<MCP server>__<tool>`` they do.

    There they could make the tools of two servers one. ``<MCP server>__*`` is all of a server.
    """
    server, separator, _ = tool.partition("__")
    if separator:
        return entry in (tool, f"{server}__*")
    return _plain(entry) == _plain(tool)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


class _Source(Protocol):
    @property
    def name(self) -> str: ...
    def read_text(self, encoding: str) -> str: ...


def parse(text: str, file: str) -> Role:
    """Read a role file; its stem is the default name. Raises ConfigError naming file and line."""
    header, prompt = _split_front_matter(text, file)
    keys = _read_yaml(header, file)
    capabilities = keys.pop("capabilities", None) or {}
    if not isinstance(capabilities, dict):
        raise ConfigError(f"{_place(file, header, 'capabilities')}: it must hold keys and values")
    stem = file.rpartition("/")[2].removesuffix(".md")
    data = {"name": stem, **keys, **capabilities, "prompt": prompt.strip()}
    try:
        role = Role.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = str(first["loc"][0])
        unknown = first["type"] == "extra_forbidden"
        known = ", ".join(name for name in Role.model_fields if name != "prompt")
        problem = f"there is no such key; there are {known}" if unknown else first["msg"]
        raise ConfigError(f"{_place(file, header, key)}: {key}: {problem}") from error
    if not _NAME.fullmatch(role.name):
        problem = "use 1 to 64 of the characters A-Z a-z 0-9 _ -"
        raise ConfigError(f"{_place(file, header, 'name')}: name {role.name!r}: {problem}")
    if not role.prompt:
        raise ConfigError(f"{file}:{text.count(chr(10)) + 1}: the prompt behind {FENCE} is missing")
    return role


def _split_front_matter(text: str, file: str) -> tuple[str, str]:
    """Header and prompt; a file without front matter is all prompt."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].strip() != FENCE:
        return "", "\n".join(lines)
    for number, line in enumerate(lines[1:], 1):
        if line.strip() == FENCE:
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :])
    raise ConfigError(f"{file}:1: the front matter has no end; close it with a line {FENCE}")


def _read_yaml(header: str, file: str) -> dict[str, Any]:
    try:
        keys = yaml.safe_load(header) or {}
    except yaml.MarkedYAMLError as error:
        line = (error.problem_mark.line if error.problem_mark else 0) + 2
        raise ConfigError(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {error}") from error
    if not isinstance(keys, dict):
        raise ConfigError(f"{file}:2: the front matter must hold keys and values")
    return {str(key): value for key, value in keys.items()}


def _place(file: str, header: str, key: str) -> str:
    """``file:line`` of a key; line 1 for one that is not there."""
    for number, line in enumerate(header.split("\n"), 2):
        if line.lstrip().startswith(f"{key}:"):
            return f"{file}:{number}"
    return f"{file}:1"


Stamp = tuple[tuple[str, int, int], ...]


class Roles(NamedTuple):
    """All roles by name."""

    by_name: Mapping[str, Role]

    @property
    def main(self) -> Role:
        """The role of the agent that people talk to."""
        return self.by_name[MAIN]

    @property
    def names(self) -> str:
        """All of them, for texts."""
        return ", ".join(sorted(self.by_name))


class RoleBook:
    """The roles as their files say now. Raises ConfigError when one cannot be read at start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shipped = _read(_shipped(), "")
        self._stamp = self._look()
        self._roles = self._load()

    def current(self) -> Roles:
        """Read what changed. A file that cannot be read any more leaves all as they were."""
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._roles = self._load()
            except ConfigError as error:
                log.error("roles.not_read", reason=error.message)
        return self._roles

    def _load(self) -> Roles:
        own = _read(self._files(), f"{self._directory}/")
        return Roles({**self._shipped, **own})

    def _look(self) -> Stamp:
        found = []
        for file in self._files():
            try:
                stat = file.stat()
            except OSError:
                continue  # removed just now
            found.append((file.name, stat.st_mtime_ns, stat.st_size))
        return tuple(found)

    def _files(self) -> list[Path]:
        return sorted(f for f in self._directory.glob("*.md") if f.name != "README.md")


def _shipped() -> list[_Source]:
    folder = files("agent_worker").joinpath(SHIPPED)
    return [file for file in folder.iterdir() if file.name.endswith(".md")]


def _read(sources: Iterable[_Source], folder: str) -> dict[str, Role]:
    roles: dict[str, Role] = {}
    for source in sources:
        file = f"{folder}{source.name}"
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {error}") from error
        role = parse(text, file)
        if role.name in roles:
            raise ConfigError(f"{file}: there is another role {role.name!r} in this folder")
        roles[role.name] = role
    return roles
