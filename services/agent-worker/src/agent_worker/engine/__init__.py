"""The engine: ``run(config)`` executes main agents and sub-agents alike."""

from agent_worker.engine.cancellation import Cancellation
from agent_worker.engine.config import RunConfig, TranscriptEntry, build_tool_context
from agent_worker.engine.journal import InMemoryJournal, Journal, Recorded
from agent_worker.engine.loop import run
from agent_worker.tool import ToolContext, ToolContextExtras

__all__ = (
    "Cancellation",
    "InMemoryJournal",
    "Journal",
    "Recorded",
    "RunConfig",
    "ToolContext",
    "ToolContextExtras",
    "TranscriptEntry",
    "build_tool_context",
    "run",
)
