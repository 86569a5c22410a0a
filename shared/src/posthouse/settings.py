"""Configuration: ``posthouse.yaml``, overridden by the environment.

A variable is ``POSTHOUSE_`` + the path in capitals, joined by ``__``: ``POSTHOUSE_NATS_URL``,
``POSTHOUSE_BUDGETS__DEADLINE_S``. The file is ``$POSTHOUSE_CONFIG``, else ``posthouse.yaml`` in
the working directory if it is there. ``defaults.yaml`` beside this module lies below both.
Unknown keys are errors that name the line.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from posthouse.errors import ConfigError

PREFIX = "POSTHOUSE_"
NESTED = "__"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
CONFIG_FILE = "posthouse.yaml"
DEFAULTS_FILE = Path(__file__).with_name("defaults.yaml")

QueueMode = Literal["queue", "collect"]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
    BeforeValidator(lambda level: level.upper() if isinstance(level, str) else level),
]
# Channels whose users wait for each answer get a turn a message; chats get merged ones.
ONE_BY_ONE = frozenset({"cli", "web"})
WEB = "web"


class Section(BaseModel):
    """A part of the configuration: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ProviderSettings(Section):
    """A model provider; ``kind`` names the adapter file that speaks to it."""

    kind: str
    base_url: str = ""
    api_key_env: str = ""
    api_key_file: str = ""
    models: tuple[str, ...] = ()
    tool_mode: Literal["native", "json_schema"] = "native"
    stream: bool = True
    context_tokens: int = Field(32_000, ge=1000, description="tokens of its models' windows")
    embedding_model: str = ""
    prices: dict[str, dict[str, float]] = Field(default_factory=dict)


class TierSettings(Section):
    """Models by tier as ``provider/model``, tried in order."""

    economy: tuple[str, ...] = ()
    standard: tuple[str, ...] = ()
    premium: tuple[str, ...] = ()


class BotSettings(BaseModel):
    """One bot of a channel; the channel reads its own further keys."""

    model_config = ConfigDict(frozen=True, extra="allow")

    bot: str = ""
    organisation: str = "default"
    queue_mode: QueueMode | None = None
    allow: tuple[str, ...] = ()

    def domain(self, channel: str) -> str:
        """Domain of its addresses: the channel, or ``<channel>+<bot>`` (R18)."""
        return f"{channel}+{self.bot}" if self.bot else channel


class BudgetSettings(Section):
    """Limits of one turn and all its children; deadline in seconds."""

    deadline_s: float = Field(600.0, gt=0)
    tokens: int | None = None
    spawns: int = Field(32, ge=0)
    depth: int = Field(3, ge=1)


class MemorySettings(Section):
    """The memory service: lease in seconds, waiting limit in messages."""

    lease_ttl_s: float = Field(6.0, gt=0)
    waiting_limit: int = Field(50, ge=1)
    relay_after_s: float = Field(4.0, gt=0)
    pool_size: int = Field(0, ge=0, description="connections; 0 = by the machine (R25)")


class SchedulerSettings(Section):
    """The scheduler service."""

    min_interval_s: float = Field(1.0, ge=1)


class FetchSettings(Section):
    """The tool ``fetch``. A host that begins with a dot stands for all names below it."""

    allow_private: tuple[str, ...] = ()


class WebSearchSettings(Section):
    """The tool ``web_search``; without a provider it says that it is not configured."""

    provider: Literal["", "searxng", "brave", "tavily"] = ""
    base_url: str = ""
    api_key_env: str = ""
    api_key_file: str = ""


class McpServerSettings(Section):
    """An MCP server whose tools agents may use: a program to start, or an address to call.

    ``env`` and ``headers_env`` name the variables of our environment that hold the values.
    ``allow`` without entries offers all tools of the server. A call ends after ``timeout_s``.
    """

    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    url: str = Field("", pattern="^(https?://.+)?$")
    headers_env: dict[str, str] = Field(default_factory=dict)
    timeout_s: float = Field(60.0, gt=0)
    allow: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either command or url")
        if self.env and self.url:
            raise ValueError("env is for command; a url takes headers_env")
        if self.headers_env and self.command:
            raise ValueError("headers_env is for url; a command takes env")
        return self


# Without "__", which stands between a server and its tool: a name has one meaning.
McpServerName = Annotated[str, Field(max_length=24, pattern="^[A-Za-z0-9]+([_-][A-Za-z0-9]+)*$")]


class Settings(BaseSettings):
    """All of ``posthouse.yaml``; every service reads the same file and takes its part."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=NESTED, frozen=True, extra="forbid"
    )

    nats_url: str = "nats://127.0.0.1:4222"
    postgres_dsn: str = "postgresql://postgres@127.0.0.1:5432/posthouse"
    embedded: bool = False
    http_host: str = "127.0.0.1"
    http_port: int = Field(8080, ge=0, le=65535)
    health_port: int = Field(0, ge=0, le=65535)
    admin_token: str = ""
    log_level: LogLevel = "INFO"
    agents_dir: str = "agents"
    tools_path: tuple[str, ...] = ()
    workspace_dir: str = ""
    workspace_limit_mb: int = Field(1024, ge=1, description="of one conversation's files, MiB")
    shell: bool = False
    workers: int = Field(2, ge=0)
    slots: int = Field(16, ge=1)
    fetch: FetchSettings = FetchSettings()
    web_search: WebSearchSettings = WebSearchSettings()
    mcp: dict[McpServerName, McpServerSettings] = Field(default_factory=dict)
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)
    tiers: TierSettings = TierSettings()
    routes: tuple[dict[str, Any], ...] = ()
    channels: dict[str, tuple[BotSettings, ...]] = Field(default_factory=dict)
    budgets: BudgetSettings = BudgetSettings()
    memory: MemorySettings = MemorySettings()
    scheduler: SchedulerSettings = SchedulerSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment first; what ``load`` read from the file lies below it."""
        return env_settings, init_settings

    def domains(self) -> list[str]:
        """The bots that deliver outbound messages: the web, and those of all channels."""
        configured = (bot.domain(kind) for kind, bots in self.channels.items() for bot in bots)
        return sorted({WEB, *configured})

    def queue_mode(self, domain: str) -> QueueMode:
        """The queue mode of a bot's conversations, by the domain of their addresses."""
        channel, _, bot = domain.partition("+")
        for candidate in self.channels.get(channel, ()):
            if candidate.bot == bot and candidate.queue_mode:
                return candidate.queue_mode
        return "queue" if channel in ONE_BY_ONE else "collect"


def load(file: Path | None = None) -> Settings:
    """Read the configuration. Raises ConfigError that names the file, line and key."""
    file = file or _file_from_environment()
    data = _read(DEFAULTS_FILE)
    if file is not None:
        data |= _read(file)
    try:
        return Settings(**data)
    except SettingsError as error:
        raise ConfigError(
            f"environment: {error}; lists and sections are written as JSON"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = [str(part) for part in first["loc"]]
        unknown = first["type"] == "extra_forbidden"
        reason = "there is no such key" if unknown else first["msg"]
        raise ConfigError(f"{_source(file, path)}: {'.'.join(path)}: {reason}") from error


def _file_from_environment() -> Path | None:
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    default = Path(CONFIG_FILE)
    return default if default.exists() else None


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, where YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(file: Path) -> dict[str, Any]:
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not valid YAML: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: the file must hold keys and values")
    # A section whose lines are all commented out reads as null: nothing said.
    empty = {key for key, value in data.items() if value is None and key in Settings.model_fields}
    return {str(key): value for key, value in data.items() if key not in empty}


def _source(file: Path | None, path: list[str]) -> str:
    """Where the value of a key path came from: the variable that wins, else ``file:line``."""
    variables = [PREFIX + NESTED.join(path[:end]).upper() for end in range(len(path), 0, -1)]
    set_ = {name.upper() for name in os.environ}
    variable = next((name for name in variables if name in set_), None)
    place = None if variable or file is None else _place(file, path)
    return place or f"environment: {variable or variables[0]}"


def _place(file: Path, path: list[str]) -> str | None:
    """``file:line`` of a key path, or of its deepest part that the file has."""
    node, line = yaml.compose(file.read_text(encoding="utf-8")), None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if k.value == part]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit():
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        else:
            break
    return None if line is None else f"{file}:{line}"
