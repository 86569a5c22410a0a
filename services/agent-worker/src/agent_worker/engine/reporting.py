"""Tells the outside what a run is doing: progress lines for people, events for programs.

Both are cosmetic: a hook that fails is logged and does not end the run.
"""

import asyncio
from typing import Any

import structlog

from agent_worker.engine.config import RunConfig
from posthouse import events
from posthouse.texts import text

log = structlog.get_logger(__name__)

# The notifier reaches out to a chat; the event hook only hands over.
NOTIFIER_TIMEOUT_S = 5.0
_LABEL_LENGTH = 40


class Reporter:
    """One run's progress, one slot per call; the notifier always gets all lines."""

    def __init__(self, config: RunConfig) -> None:
        self._notifier = config.progress_notifier
        self._events = config.events
        self._language = config.spoken_language()
        self._lines: list[str] = []
        # Calls run concurrently; their snapshots must arrive in the order they were taken.
        self._lock = asyncio.Lock()

    async def event(self, event_type: str, payload: dict[str, Any]) -> None:
        """Something happened."""
        if self._events is None:
            return
        try:
            await self._events(event_type, payload)
        except Exception as error:
            log.warning("engine.event_failed", event_type=event_type, kind=type(error).__name__)

    async def thinking(self) -> None:
        """The model is asked again."""
        if self._notifier is not None:
            self._lines.append(text("thinking", self._language))
            await self._notify()

    async def answered(self, content: str) -> None:
        """The model answered with calls; its words beside them take the place of thinking."""
        if self._notifier is None:
            return
        if self._lines and self._lines[-1] == text("thinking", self._language):
            self._lines.pop()
        if content:
            self._lines.append(content)
            await self._notify()

    async def compressed(self, before: int, after: int) -> None:
        """The prompt was made smaller; in tokens."""
        if self._notifier is not None:
            self._lines.append(text("compressed", self._language, before=before, after=after))
            await self._notify()

    async def tool_started(self, label: str, payload: dict[str, Any]) -> int:
        """A call begins; returns its slot."""
        await self.event(events.TOOL_STARTED, payload)
        slot = len(self._lines)
        if self._notifier is not None:
            self._lines.append(text("tool_started", self._language, label=label))
            await self._notify()
        return slot

    async def tool_finished(
        self, slot: int, label: str, ok: bool, seconds: float, payload: dict[str, Any]
    ) -> None:
        """The call of that slot ended."""
        await self.event(events.TOOL_FINISHED, {**payload, "ok": ok, "seconds": round(seconds, 3)})
        if self._notifier is not None:
            name = "tool_finished" if ok else "tool_failed"
            self._lines[slot] = text(name, self._language, label=label, seconds=seconds)
            await self._notify()

    async def _notify(self) -> None:
        if self._notifier is None:
            return
        async with self._lock:
            try:
                async with asyncio.timeout(NOTIFIER_TIMEOUT_S):
                    await self._notifier(list(self._lines))
            except Exception as error:
                log.warning("engine.notifier_failed", kind=type(error).__name__)


def label_of(name: str, arguments: dict[str, Any]) -> str:
    """A call in a few words: the tool, and its first text argument."""
    for value in arguments.values():
        if isinstance(value, str) and value.strip():
            words = " ".join(value.split())
            short = words if len(words) <= _LABEL_LENGTH else words[: _LABEL_LENGTH - 1] + "…"
            return f"{name}: {short}"
    return name
