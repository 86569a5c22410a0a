"""Configuration: file below environment, and errors that say where to look."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from posthouse.errors import ConfigError
from posthouse.settings import BotSettings, Settings, load

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("POSTHOUSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes ``posthouse.yaml`` into the working directory."""

    def write_file(text: str) -> Path:
        file = tmp_path / "posthouse.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


def refusal(file: Path | None = None) -> str:
    """What loading says against it."""
    with pytest.raises(ConfigError) as caught:
        load(file)
    return caught.value.message


def test_without_a_file_a_keyless_model_answers() -> None:
    settings = load()
    assert settings.providers["offline"].kind == "offline"
    assert settings.tiers.standard == ("offline/rules-1",)
    assert (settings.workers, settings.slots) == (2, 16)
    assert (settings.budgets.deadline_s, settings.budgets.spawns, settings.budgets.depth) == (
        *(600.0, 32),
        3,
    )
    assert settings.budgets.tokens is None
    assert settings.scheduler.min_interval_s == 1


def test_the_file_of_the_working_directory_is_read(write: Write) -> None:
    write("slots: 3\nbudgets:\n  tokens: 7\n")
    assert (load().slots, load().budgets.tokens) == (3, 7)


def test_a_named_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.yaml").write_text("slots: 5")
    monkeypatch.setenv("POSTHOUSE_CONFIG", str(tmp_path / "other.yaml"))
    assert load().slots == 5
    monkeypatch.setenv("POSTHOUSE_CONFIG", str(tmp_path / "missing.yaml"))
    assert "missing.yaml: No such file" in refusal()


def test_the_environment_wins(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("nats_url: nats://file:1\nslots: 3\nbudgets: {tokens: 7, spawns: 1}\ntools_path: [a]\n")
    monkeypatch.setenv("POSTHOUSE_NATS_URL", "nats://environment:1")
    monkeypatch.setenv("POSTHOUSE_BUDGETS__SPAWNS", "2")
    monkeypatch.setenv("POSTHOUSE_TOOLS_PATH", '["b", "c"]')
    monkeypatch.setenv("POSTHOUSE_PROVIDERS__LOCAL__KIND", "openai")
    settings = load()
    assert settings.nats_url == "nats://environment:1"
    assert (settings.budgets.tokens, settings.budgets.spawns) == (7, 2)
    assert settings.tools_path == ("b", "c")
    assert settings.providers["local"].kind == "openai"
    assert settings.slots == 3


def test_an_empty_section_says_nothing(write: Write) -> None:
    assert load(write("budgets:\n#  tokens: 7\nslots: 3\n")).budgets.tokens is None
    assert load(write("# nothing at all\n")) == load()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        setattr(load(), "slots", 3)  # noqa: B010


MISTAKES = {
    "unknown": ("slots: 3\n\nslotz: 4\n", ":3: slotz: "),
    "empty unknown": ("slotz:\n", ":1: slotz: "),
    "nested": ("slots: 3\nbudgets:\n  tokens: 7\n  tokenz: 8\n", ":4: budgets.tokenz: "),
    "wrong type": ("budgets:\n  deadline_s: soon\n", ":2: budgets.deadline_s: "),
    "out of range": ("slots: 0\n", ":1: slots: "),
    "in a list": (
        "channels:\n  feishu:\n    - bot: a\n    - bot: b\n      queue_mode: fast\n",
        ":5: channels.feishu.1.queue_mode: ",
    ),
    "list entry": ("tools_path:\n  - a\n  - 3\n", ":3: tools_path.1: "),
    "missing": (
        "providers:\n  a: {kind: openai}\n  b:\n    base_url: x\n",
        ":3: providers.b.kind: ",
    ),
    "a value for a section": ("budgets: 3\n", ":1: budgets: "),
    "log level": ("log_level: loud\n", ":1: log_level: "),
    "two kinds of MCP server": ("mcp:\n  a:\n    url: http://x\n    command: [x]\n", ":2: mcp.a: "),
    "no kind of MCP server": ("mcp:\n  a:\n    timeout_s: 3\n", ":2: mcp.a: "),
    "variables for an address": ("mcp:\n  a: {url: 'http://x', env: {A: B}}\n", ":2: mcp.a: "),
    "headers for a program": (
        "mcp:\n  a: {command: [x], headers_env: {A: B}}\n",
        ":2: mcp.a: ",
    ),
    "name of an MCP server": ("mcp:\n  a__b: {command: [x]}\n", ":2: mcp.a__b"),
    "address of an MCP server": ("mcp:\n  a: {url: 'ftp://x'}\n", ":2: mcp.a.url: "),
    "open bracket": ("slots: 3\ntools_path: [a\n", ": not valid YAML: "),
    "tab": ("budgets:\n\ttokens: 3\n", ":2: not valid YAML: "),
    "a list": ("- slots\n", ": the file must hold keys and values"),
    "control character": ("slots: \x01\n", ": not valid YAML: "),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_line(mistake: str, write: Write) -> None:
    text, where = MISTAKES[mistake]
    file = write(text)
    message = refusal(file)
    assert message.startswith(str(file))
    assert where in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POSTHOUSE_SLOTS", "many"),
        ("POSTHOUSE_BUDGETS__DEADLINE_S", "-1"),
        ("POSTHOUSE_BUDGETS__TOKENZ", "1"),
        ("POSTHOUSE_MEMORY", '{"lease_ttl_s": 0}'),
        ("POSTHOUSE_LOG_LEVEL", "loud"),
    ],
)
def test_a_mistake_in_the_environment_is_named(
    name: str, value: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("slots: 3\nbudgets:\n  deadline_s: 5\nmemory: {}\nlog_level: INFO\n")
    monkeypatch.setenv(name, value)
    assert refusal().startswith(f"environment: {name}: ")


def test_a_list_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_TOOLS_PATH", "tools")
    message = refusal()
    assert "tools_path" in message
    assert "JSON" in message


def test_an_error_does_not_show_the_value(write: Write) -> None:
    assert "s3cret" not in refusal(write("admin_token: [s3cret]\n"))


@pytest.mark.parametrize("level", ["debug", "INFO", "Warning"])
def test_log_levels_in_any_case(level: str, write: Write) -> None:
    assert load(write(f"log_level: {level}\n")).log_level == level.upper()


BOTS = """
channels:
  feishu:
    - {queue_mode: queue}
    - {bot: bot2, app_id: x}
    - {bot: bot3, queue_mode: collect}
  web:
    - {queue_mode: collect}
"""


@pytest.mark.parametrize(
    ("domain", "mode"),
    [
        ("cli", "queue"),
        ("web", "collect"),
        ("feishu", "queue"),
        ("feishu+bot2", "collect"),
        ("feishu+bot3", "collect"),
        ("feishu+other", "collect"),
        ("slack", "collect"),
    ],
)
def test_the_queue_mode_of_a_bot(domain: str, mode: str, write: Write) -> None:
    assert load(write(BOTS)).queue_mode(domain) == mode


def test_people_at_a_screen_get_an_answer_each() -> None:
    assert [Settings().queue_mode(channel) for channel in ("cli", "web", "slack")] == [
        *("queue", "queue"),
        "collect",
    ]


def test_bots_have_domains_of_their_own(write: Write) -> None:
    feishu = load(write(BOTS)).channels["feishu"]
    assert [bot.domain("feishu") for bot in feishu] == ["feishu", "feishu+bot2", "feishu+bot3"]
    assert (feishu[1].model_extra or {})["app_id"] == "x"


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "posthouse.yaml"
    file.write_text("slots: 2\nworkers: 1\nslots: 3\n")
    with pytest.raises(ConfigError, match="'slots' stands twice"):
        load(file)


def test_the_web_and_every_configured_bot_deliver() -> None:
    assert Settings().domains() == ["web"]
    bots = {"feishu": (BotSettings(), BotSettings(bot="two")), "web": (BotSettings(),)}
    assert Settings(channels=bots).domains() == ["feishu", "feishu+two", "web"]
