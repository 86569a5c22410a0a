"""The calls of one response and what became of them."""

from dataclasses import dataclass, field
from typing import Any

from agent_worker.llm.client import Message


@dataclass(slots=True)
class Outcome:
    """How a call ended, and the step that records it."""

    message: Message
    ok: bool
    seconds: float = 0.0
    waiting_user: bool = False
    step: int | None = None

    @property
    def content(self) -> str:
        """The text of the result."""
        return str(self.message["content"])

    def to_body(self) -> dict[str, Any]:
        """As the journal holds it."""
        body = {"message": self.message, "ok": self.ok, "seconds": round(self.seconds, 3)}
        return body | {"waiting_user": True} if self.waiting_user else body


@dataclass(slots=True)
class Batch:
    """The calls of one response, and what became of each so far.

    ``cut_off``: none may run. ``started`` tells which tools were run, in any attempt.
    """

    iteration: int
    calls: list[dict[str, Any]]
    cut_off: bool = False
    started: set[int] = field(default_factory=set)
    outcomes: list[Outcome | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outcomes = [None] * len(self.calls)
