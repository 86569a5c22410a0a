"""``posthouse doctor``: looks at everything Posthouse needs, and changes nothing.

An examiner is a coroutine function that takes a Target and returns Findings. Services bring their
own as entry points of the group ``posthouse.doctor``.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from posthouse.settings import Settings

ENTRY_POINTS = "posthouse.doctor"

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
    a command means the same servers.
    """

    settings: Settings
    servers: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, command: str, *variables: str) -> str:
        """A command for a remedy, with those of these variables that it has to be given."""
        given = [
            f"{name}={shlex.quote(self.environment[name])}"
            for name in variables
            if name in self.environment
        ]
        return f"`{' '.join([*given, command])}`"


Examiner = Callable[[Target], Awaitable[list[Finding]]]


def ok(name: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(name, "ok", text)


def warning(name: str, text: str, remedy: str) -> Finding:
    """It works, but not as well as it should."""
    return Finding(name, "warning", text, remedy)


def failed(name: str, text: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(name, "failed", text, remedy)
