"""The journal: what a run did, recorded before it is acted on, so that a resume repeats nothing.

Kinds and bodies (JSON):

- ``response``: ``{"message", "usage": {"input_tokens", "output_tokens"}, "finish_reason",
  "model"}``, the message being the assistant's in OpenAI chat format
- ``tool_started``: ``{"tool"}``; only for tools that must not simply run again
- ``tool_result``: ``{"message", "ok", "seconds", "started", "waiting_user"?}``, the message
  being the tool's; ``started`` is False if the tool was not even run

Iterations count from 1; ``index`` is the place of a call within its response.
"""

from typing import Any, NamedTuple, Protocol

import orjson

RESPONSE = "response"
TOOL_STARTED = "tool_started"
TOOL_RESULT = "tool_result"


class Recorded(NamedTuple):
    """A step that an earlier attempt recorded: its number within the run, and its body."""

    n: int
    body: dict[str, Any]


class Journal(Protocol):
    """The record of one run. Whatever ``record`` raises ends the run, unanswered."""

    def recorded(self, kind: str, iteration: int, index: int = 0) -> Recorded | None:
        """What an earlier attempt recorded, None if nothing."""
        ...

    async def record(
        self, kind: str, iteration: int, body: dict[str, Any], index: int = 0
    ) -> int | None:
        """Store a step for good; returns its number, None when nothing is kept."""
        ...


class InMemoryJournal:
    """A journal that lives as long as the process; a second run over it is a resume."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, int, int], Recorded] = {}

    def recorded(self, kind: str, iteration: int, index: int = 0) -> Recorded | None:
        """See Journal."""
        return self.steps.get((kind, iteration, index))

    async def record(
        self, kind: str, iteration: int, body: dict[str, Any], index: int = 0
    ) -> int | None:
        """See Journal; the body makes the way through JSON, as it does in a real one."""
        step = Recorded(len(self.steps) + 1, orjson.loads(orjson.dumps(body)))
        return self.steps.setdefault((kind, iteration, index), step).n


class NoJournal:
    """Keeps nothing: the run starts anew whenever it starts."""

    def recorded(self, kind: str, iteration: int, index: int = 0) -> Recorded | None:
        """See Journal."""
        return None

    async def record(
        self, kind: str, iteration: int, body: dict[str, Any], index: int = 0
    ) -> int | None:
        """See Journal."""
        return None
