"""Runs the tool calls of one response.

Reads run concurrently, at most eight; then the writes, one by one in the model's order. Results
stand in the order of the calls. A failure becomes a result that says what to fix, and cancels
no sibling. What an earlier attempt finished is reused; a call it started but did not finish runs
again only if that is harmless.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from agent_worker.engine import arguments
from agent_worker.engine.batch import Batch, Outcome
from agent_worker.engine.cancellation import cancelled_from_outside
from agent_worker.engine.config import RunConfig, build_tool_context
from agent_worker.engine.journal import TOOL_RESULT, TOOL_STARTED, Journal
from agent_worker.engine.pairs import result
from agent_worker.engine.reporting import Reporter, label_of
from agent_worker.engine.results import cap, clean
from agent_worker.tool import Tool, ToolContext, ToolError, ToolResult, runs_again
from posthouse.texts import text

log = structlog.get_logger(__name__)

MAX_CONCURRENT_READS = 8
ERROR_PREFIX = "Error: "
NO_OUTPUT = "(no output)"
CUT_OFF = "your answer was cut off, so this call was not run. Send it again, shorter."


@dataclass(slots=True)
class _Call:
    """A call ready to run, or the reason why it cannot."""

    index: int
    id: str
    name: str
    tool: Tool | None = None
    input: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def changes_something(self) -> bool:
        return self.tool is not None and self.tool.access == "write"


class Executor:
    """Runs the calls of one run. ``border`` is called before anything new is started."""

    def __init__(
        self,
        config: RunConfig,
        journal: Journal,
        reporter: Reporter,
        border: Callable[[], None],
    ) -> None:
        self._config = config
        self._journal = journal
        self._reporter = reporter
        self._border = border

    async def run(self, batch: Batch) -> None:
        """Fill in every outcome. Raises only what border and journal raise."""
        calls = [
            self._prepare(batch, index)
            for index in range(len(batch.calls))
            if not self._reuse(batch, index)
        ]
        await self._perform_together(batch, [c for c in calls if not c.changes_something])
        for call in calls:
            if call.changes_something:
                await self._perform(batch, call)

    def _reuse(self, batch: Batch, index: int) -> bool:
        recorded = self._journal.recorded(TOOL_RESULT, batch.iteration, index)
        if recorded is None:
            return False
        body = recorded.body
        if body.get("started", True):
            batch.started.add(index)
        batch.outcomes[index] = Outcome(
            message=body["message"],
            ok=body["ok"],
            seconds=body["seconds"],
            waiting_user=body.get("waiting_user", False),
            step=recorded.n,
        )
        return True

    def _prepare(self, batch: Batch, index: int) -> _Call:
        wire = batch.calls[index]
        call = _Call(index, wire["id"], wire["function"]["name"])
        if batch.cut_off:
            call.problem = CUT_OFF
            return call
        registry, agent = self._config.tools, self._config.agent_id
        tool = registry.get(call.name)
        if tool is None or not registry.may_use(agent, tool):
            names = ", ".join(offered.name for offered in registry.list_for(agent)) or "none"
            call.problem = f"there is no tool {call.name}. Available: {names}."
            return call
        try:
            call.input = arguments.parse(wire["function"]["arguments"])
        except ToolError as error:
            call.problem = error.message
            return call
        if problems := registry.problems(tool, call.input):
            call.problem = f"the arguments do not fit {call.name}: {'; '.join(problems)}."
            return call
        call.tool = tool
        return call

    async def _perform_together(self, batch: Batch, calls: list[_Call]) -> None:
        """At most eight at a time. An error of border or journal ends the others."""
        if len(calls) <= 1:
            for call in calls:
                await self._perform(batch, call)
            return
        room = asyncio.Semaphore(MAX_CONCURRENT_READS)

        async def bounded(call: _Call) -> None:
            async with room:
                await self._perform(batch, call)

        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(bounded(call))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def _perform(self, batch: Batch, call: _Call) -> None:
        self._border()
        label = label_of(call.name, call.input)
        event = {
            "tool": call.name,
            "label": label,
            "iteration": batch.iteration,
            "index": call.index,
        }
        slot = await self._reporter.tool_started(label, event)
        started = time.monotonic()
        given = await self._result(batch, call)
        seconds = time.monotonic() - started
        outcome = Outcome(
            message=result(call.id, self._presentable(given)),
            ok=given.ok,
            seconds=seconds,
            waiting_user=given.waiting_user,
        )
        batch.outcomes[call.index] = outcome
        body = outcome.to_body() | {"started": call.index in batch.started}
        outcome.step = await self._journal.record(TOOL_RESULT, batch.iteration, body, call.index)
        await self._reporter.tool_finished(slot, label, given.ok, seconds, event)

    async def _result(self, batch: Batch, call: _Call) -> ToolResult:
        if call.tool is None:
            return ToolResult(call.problem, ok=False)
        iteration, index = batch.iteration, call.index
        if not runs_again(call.tool):
            if self._journal.recorded(TOOL_STARTED, iteration, index):
                batch.started.add(index)
                unknown = text("tool_outcome_unknown", self._config.spoken_language())
                return ToolResult(unknown, ok=False)
            await self._journal.record(TOOL_STARTED, iteration, {"tool": call.name}, index)
        batch.started.add(index)
        key = f"{self._config.run_id}:{iteration}:{index}"
        return await _execute(call.tool, build_tool_context(self._config, key), call.input)

    def _presentable(self, given: ToolResult) -> str:
        # Some providers refuse a result without words.
        content = cap(clean(given.content), self._config.result_limit) or NO_OUTPUT
        if given.ok or content.startswith(ERROR_PREFIX):
            return content
        return ERROR_PREFIX + content


async def _execute(tool: Tool, ctx: ToolContext, input: dict[str, Any]) -> ToolResult:
    """Run a tool to a result, whatever it does."""
    try:
        async with asyncio.timeout(tool.timeout_s) as limit:
            given = await tool.execute(ctx, input)
    except asyncio.CancelledError:
        if cancelled_from_outside():
            raise
        return ToolResult(f"{tool.name} was interrupted from within.", ok=False)
    except ToolError as error:
        return ToolResult(error.message, ok=False)
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            late = f"{tool.name} did not finish within {tool.timeout_s:g} s. Ask for less at once."
            return ToolResult(late, ok=False)
        log.warning("tool.failed", tool=tool.name, kind=type(error).__name__)
        return ToolResult(f"{tool.name} failed: {type(error).__name__}: {error}", ok=False)
    return given if isinstance(given, ToolResult) else ToolResult(str(given))
