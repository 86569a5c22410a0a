"""The configuration of bots: every mistake names the bot and the key."""

from pathlib import Path
from typing import Any

import pytest

from gateway.bots import Place, configured, read_secret
from posthouse.errors import ConfigError
from posthouse.settings import Section, Settings

PLACE = Place("chat", "shop")


class Own(Section):
    token_env: str = ""
    limit: int = 1


def read(*bots: dict[str, Any]) -> list[tuple[str, Own]]:
    settings = Settings(channels={"chat": bots, "other": [{"bot": "!"}]})
    return [(bot.domain("chat"), own) for _, bot, own in configured(settings, "chat", Own)]


def test_own_keys_are_read_beside_those_of_every_bot() -> None:
    bots = read({"token_env": "T", "organisation": "acme"}, {"bot": "a-b_C9", "limit": 3})
    assert bots == [("chat", Own(token_env="T")), ("chat+a-b_C9", Own(limit=3))]


def test_a_channel_without_bots() -> None:
    assert read() == []


@pytest.mark.parametrize(
    ("bot", "text"),
    [
        ({"bot": "shop", "tokn_env": "T"}, "channels.chat, bot shop: tokn_env: .* token_env"),
        ({"limit": "many"}, "channels.chat, default bot: limit: .* integer"),
        ({"bot": "a b"}, "bot a b: bot: "),
        ({"bot": "店"}, "bot 店: bot: "),
        ({"bot": "a/b"}, "bot a/b: bot: "),
        ({"bot": "a+b"}, "bot: "),
        ({"bot": "a.b"}, "bot: "),
        ({"bot": "a" * 65}, "bot: "),
        ({"bot": "a\n"}, "bot: "),
    ],
)
def test_mistakes_name_the_bot_and_the_key(bot: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read(bot)


def test_two_bots_of_one_name() -> None:
    with pytest.raises(ConfigError, match="bot shop: bot: there are two"):
        read({"bot": "shop"}, {"bot": "shop"})


def test_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("THE_SECRET", " from the environment\n")
    file = tmp_path / "secret"
    file.write_text("from a file\n")
    assert read_secret(PLACE, "secret", env="THE_SECRET", file="") == "from the environment"
    assert read_secret(PLACE, "secret", env="", file=str(file)) == "from a file"
    assert read_secret(PLACE, "secret", env="", file="") == ""


def test_secrets_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMPTY", "  ")
    monkeypatch.delenv("MISSING", raising=False)
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for env in ("EMPTY", "MISSING"):
        with pytest.raises(ConfigError, match=f"channels.chat, bot shop: secret_env: .*{env}"):
            read_secret(PLACE, "secret", env=env, file="")
    for name in ("empty", "binary", "missing"):
        with pytest.raises(ConfigError, match=f"bot shop: secret_file: .*{name}"):
            read_secret(PLACE, "secret", env="", file=str(tmp_path / name))
    with pytest.raises(ConfigError, match="secret_env: leave out"):
        read_secret(PLACE, "secret", env="A", file="b")
