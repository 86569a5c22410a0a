"""Commands that people type: ``/stop``, ``/new``, … (R3). They never wait behind a turn."""

from dataclasses import dataclass
from typing import Literal, get_args

Op = Literal["stop", "new", "status", "help", "approve", "deny"]

OPS: tuple[Op, ...] = get_args(Op)
_BY_NAME: dict[str, Op] = {op: op for op in OPS}
# Chinese keyboards type the full-width one as well.
_SLASHES = ("/", "／")


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the text behind it, as the ticket in ``/approve 7f3a``."""

    op: Op
    argument: str = ""


def parse(content: str) -> Command | None:
    """Read a command, or None for any other text (``/stopwatch``, ``please /stop``).

    Case and the space around do not matter; ``/stop@bot``, as Telegram groups send it, counts.
    """
    word, *rest = content.split(maxsplit=1) or [""]
    if not word.startswith(_SLASHES):
        return None
    op = _BY_NAME.get(word[1:].partition("@")[0].lower())
    return None if op is None else Command(op, rest[0].strip() if rest else "")
