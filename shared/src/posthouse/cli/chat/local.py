"""What a person types for this program and not for the agent."""

from dataclasses import dataclass

HISTORY_MAX = 200
HISTORY_DEFAULT = 20
# Chinese keyboards type the full-width one as well.
_SLASHES = ("/", "／")


@dataclass(frozen=True, slots=True)
class Leave:
    """``/exit`` or ``/quit``."""


@dataclass(frozen=True, slots=True)
class ShowHistory:
    """``/history [n]``; None for a count that is none."""

    count: int | None


def read_local(line: str) -> Leave | ShowHistory | None:
    """Read such a line, or None for all that goes to the agent."""
    word, *rest = line.split(maxsplit=1) or [""]
    if not word.startswith(_SLASHES):
        return None
    match word[1:].lower():
        case "exit" | "quit":
            return Leave()
        case "history":
            return ShowHistory(_count(rest[0]) if rest else HISTORY_DEFAULT)
        case _:
            return None


def _count(text: str) -> int | None:
    digits = text.strip()
    if not (digits.isdecimal() and len(digits) <= len(str(HISTORY_MAX))):
        return None
    return int(digits) if 1 <= int(digits) <= HISTORY_MAX else None
