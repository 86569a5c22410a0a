"""How a channel reads the configuration of its bots: names, keys of its own, secrets."""

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from posthouse import secrets
from posthouse.errors import ConfigError
from posthouse.settings import BotSettings, Section, Settings

# What needs no escape in a URL, a subject or an address.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Own = TypeVar("Own", bound=Section)


class Place(NamedTuple):
    """Where a bot is configured, for error messages."""

    channel: str
    bot: str

    def __str__(self) -> str:
        bot = f"bot {self.bot}" if self.bot else "default bot"
        return f"channels.{self.channel}, {bot}"

    def error(self, key: str, problem: str) -> ConfigError:
        """The error that names channel, bot and key."""
        return ConfigError(f"{self}: {key}: {problem}")


def configured(
    settings: Settings, channel: str, own: type[Own]
) -> Iterator[tuple[Place, BotSettings, Own]]:
    """The bots of a channel, with its own keys read as ``own``. Raises ConfigError."""
    seen: set[str] = set()
    for bot in settings.channels.get(channel, ()):
        place = Place(channel, bot.bot)
        if bot.bot and _NAME.fullmatch(bot.bot) is None:
            raise place.error("bot", "a name has 1 to 64 of the characters A-Z a-z 0-9 _ -")
        if bot.bot in seen:
            raise place.error("bot", "there are two of this name; each needs its own")
        seen.add(bot.bot)
        yield place, bot, _own(place, bot, own)


def read_secret(place: Place, key: str, *, env: str, file: str) -> str:
    """The secret in the environment variable ``env`` or in ``file``; '' when neither is named.

    ``key`` is what the settings ``<key>_env`` and ``<key>_file`` begin with. A secret that is
    named and not there, or empty, is an error. Raises ConfigError.
    """
    return secrets.read_secret(f"{place}: {key}", env=env, file=file)


def _own(place: Place, bot: BotSettings, own: type[Own]) -> Own:
    try:
        return own.model_validate(bot.model_extra or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        unknown = first["type"] == "extra_forbidden"
        known = ", ".join(own.model_fields)
        problem = f"there is no such key; there are {known}" if unknown else first["msg"]
        raise place.error(key, problem) from error
