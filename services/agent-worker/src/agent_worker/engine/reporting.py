"""Tells the outside what a run is doing: progress lines for people, events for programs.

Both are cosmetic: a hook that fails or hangs is logged and does not end the run.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import structlog

from agent_worker.engine.config import RunConfig
from posthouse import events
from posthouse.texts import text

log = structlog.get_logger(__name__)

HOOK_TIMEOUT_S = 5.0
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
        if self._events is not None:
            await _guarded(self._events(event_type, payload), event_type)

    async def thinking(self) -> None:
        """The model is asked again."""
        await self._show(text("thinking", self._language))

    async def answered(self, content: str) -> None:
        """The model answered with calls; its words beside them take the place of thinking."""
        placeholder = text("thinking", self._language)
        if self._lines and self._lines[-1] == placeholder:
            self._lines.pop()
        if content:
            await self._show(content)

    async def tool_started(self, label: str, payload: dict[str, Any]) -> int:
        """A call begins; returns its slot."""
        await self.event(events.TOOL_STARTED, payload)
        return await self._show(text("tool_started", self._language, label=label))

    async def tool_finished(
        self, slot: int, label: str, ok: bool, seconds: float, payload: dict[str, Any]
    ) -> None:
        """The call of that slot ended."""
        await self.event(events.TOOL_FINISHED, {**payload, "ok": ok, "seconds": round(seconds, 3)})
        name = "tool_finished" if ok else "tool_failed"
        await self._show(text(name, self._language, label=label, seconds=seconds), slot)

    async def _show(self, line: str, slot: int | None = None) -> int:
        if self._notifier is None:
            return -1
        if slot is None:
            slot = len(self._lines)
            self._lines.append(line)
        else:
            self._lines[slot] = line
        async with self._lock:
            await _guarded(self._notifier(list(self._lines)), events.PROGRESS_UPDATED)
        return slot


def label_of(name: str, arguments: dict[str, Any]) -> str:
    """A call in a few words: the tool, and its first text argument."""
    for value in arguments.values():
        if isinstance(value, str) and value.strip():
            words = " ".join(value.split())
            short = words if len(words) <= _LABEL_LENGTH else words[: _LABEL_LENGTH - 1] + "…"
            return f"{name}: {short}"
    return name


async def _guarded(hook: Awaitable[None], what: str) -> None:
    try:
        async with asyncio.timeout(HOOK_TIMEOUT_S):
            await hook
    except Exception as error:
        log.warning("engine.hook_failed", hook=what, kind=type(error).__name__)
