"""``posthouse doctor``: looks at everything Posthouse needs, and changes nothing.

An examiner is a coroutine function that takes a Target and returns Findings. Services bring their
own as entry points of the group ``posthouse.doctor``.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from posthouse.settings import CONFIG_VARIABLE, Settings

ENTRY_POINTS = "posthouse.doctor"
NATS_URL = "POSTHOUSE_NATS_URL"
POSTGRES_DSN = "POSTHOUSE_POSTGRES_DSN"

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """What one check found; ``remedy`` is the command or the change that mends it."""

    name: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Target:
    """What is examined.

    ``settings`` hold the addresses of the servers. Without ``servers`` none run and none are
    configured, so that looking for them makes no sense. ``environment``: the variables with which
    a command means the same servers. ``logs``: the folder of a running stack's logs.
    """

    settings: Settings
    servers: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    logs: Path | None = None

    def command(self, command: str, address: str) -> str:
        """A command for a remedy, with the variable ``address`` and the file if it needs them."""
        given = [
            f"{name}={shlex.quote(self.environment[name])}"
            for name in (address, CONFIG_VARIABLE)
            if name in self.environment
        ]
        return f"`{' '.join([*given, command])}`"

    def unreachable(self, server: str, program: str, key: str) -> str:
        """The remedy for a server that does not answer; ``key`` of the settings is its address."""
        if self.logs is not None:
            log = self.logs / f"{server}.log"
            return f"see {log}; if nothing changes, stop `posthouse up` and start it again"
        return f"start {program} there, or {correct(key)}"


Examiner = Callable[[Target], Awaitable[list[Finding]]]


def correct(key: str) -> str:
    """The remedy for a wrong value in the configuration."""
    return f"correct {key} in posthouse.yaml (POSTHOUSE_{key.upper()})"


def ok(name: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(name, "ok", text)


def warning(name: str, text: str, remedy: str) -> Finding:
    """It works, but not as well as it should."""
    return Finding(name, "warning", text, remedy)


def failed(name: str, text: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(name, "failed", text, remedy)
