"""The keys of a bot that only the channel ``webhook`` knows."""

from typing import Literal

from pydantic import Field

from gateway.bots import Place, read_secret
from gateway.egress import Refused, Target
from gateway.settings import CALLBACK_TIMEOUT_S
from gateway.signatures import Secret
from posthouse.settings import Section

Scheme = Literal["standard", "github"]


class WebhookBot(Section):
    """How a bot's requests are signed, and where its answers go; times in seconds."""

    secret_env: str = ""
    secret_file: str = ""
    previous_secret_env: str = ""
    previous_secret_file: str = ""
    schemes: tuple[Scheme, ...] = Field(("standard", "github"), min_length=1)
    window_s: float = Field(300.0, gt=0)
    callback_url: str = ""
    callback_timeout_s: float = Field(CALLBACK_TIMEOUT_S, gt=0, le=CALLBACK_TIMEOUT_S)
    allow_private_callback: bool = False

    def secrets(self, place: Place) -> list[Secret]:
        """The secret, and the previous one while both are in use. Raises ConfigError."""
        current = _secret(place, "secret", self.secret_env, self.secret_file)
        if current is None:
            raise place.error("secret_env", "name the environment variable that holds the secret")
        before = _secret(
            place, "previous_secret", self.previous_secret_env, self.previous_secret_file
        )
        return [current] if before is None else [current, before]

    def target(self, place: Place) -> Target | None:
        """Where answers are posted, None for nowhere. Raises ConfigError."""
        if not self.callback_url:
            return None
        try:
            return Target.parse(
                self.callback_url,
                allow_private=self.allow_private_callback,
                timeout_s=self.callback_timeout_s,
            )
        except Refused as error:
            private = "private" in error.details
            hint = "; allow_private_callback: true permits it" if private else ""
            raise place.error("callback_url", error.message + hint) from error


def _secret(place: Place, key: str, env: str, file: str) -> Secret | None:
    text = read_secret(place, key, env=env, file=file)
    try:
        return Secret.parse(text) if text else None
    except ValueError as error:
        raise place.error(f"{key}_env" if env else f"{key}_file", str(error)) from error
