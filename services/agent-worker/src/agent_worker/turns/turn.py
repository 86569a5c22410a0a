"""One turn: begin or resume, run the agent, commit."""

import asyncio
import time
from collections.abc import Callable
from uuid import uuid4

import structlog
from structlog.contextvars import bound_contextvars

from agent_worker import settings
from agent_worker.engine import Cancellation, run
from agent_worker.events import EventWriter
from agent_worker.turns import briefing
from agent_worker.turns.briefing import TurnTools
from agent_worker.turns.exchanges import remembered
from agent_worker.turns.feeds import WORKFLOW_ID, final_event
from posthouse import turns
from posthouse.errors import BadRequest
from posthouse.messages import OutboundMessage
from posthouse.turns import (
    BeginResult,
    CommitResult,
    Controls,
    HistoryEntry,
    Lease,
    Manifest,
    Position,
    Step,
)

log = structlog.get_logger(__name__)

Outcome = tuple[OutboundMessage, list[HistoryEntry]]


class Gone(Exception):
    """The messages of this turn do not wait any more."""


class Turn:
    """A turn under way. ``obey`` may be called from outside while ``play`` runs.

    ``feed`` ends when the turn's last event is out; it is there once ``play`` has returned.
    """

    def __init__(self, tools: TurnTools, lease: Lease, stopping: asyncio.Event) -> None:
        self._tools = tools
        self._lease = lease
        self._stopping = stopping
        self._cancellation = Cancellation()
        self._position: Position | None = None
        self._began = time.monotonic()
        self.feed: asyncio.Task[None] | None = None

    def obey(self, controls: Controls) -> None:
        """End the run if a /stop covers this turn."""
        if self._position and controls.stop_upto and self._position <= controls.stop_upto:
            self._cancellation.stop("user")

    async def play(
        self,
        positions: list[Position],
        checked: Position,
        committing: Callable[[], None],
        give_up: bool = False,
    ) -> CommitResult:
        """Run the turn of these waiting messages and commit it; ``give_up`` fails it unrun.

        ``committing`` is called before the commit: from then on a lost lease must not cancel us.
        Raises what TurnApi raises, Gone, HandOver and CancelledError.
        """
        begun, resumed = await self._begin(positions)
        self._position = positions[0]
        with bound_contextvars(conversation=self._lease.key, run_id=begun.manifest.run_id):
            writer = briefing.event_writer(self._tools, self._lease, begun, resumed)
            try:
                give_up = give_up or _is_poison(begun)
                ended = await (self._give_up(begun) if give_up else self._run(begun, writer))
                committing()
                result = await self._commit(begun, ended, checked, writer)
                self._report(begun, ended[0], writer)
            finally:
                self.feed = self._tools.feeds.close(writer)
        return result

    async def _begin(self, positions: list[Position]) -> tuple[BeginResult, bool]:
        """The turn, and whether another attempt began it before."""
        agent = self._tools.agent
        manifest = Manifest(
            run_id=uuid4().hex,
            positions=positions,
            deadline_ms=int((time.time() + agent.deadline_s) * 1000),
            budget={"tokens": agent.token_budget},
        )
        request = turns.BeginRequest(
            key=self._lease.key,
            epoch=self._lease.epoch,
            worker=self._tools.worker,
            manifest=manifest,
            history_limit=settings.HISTORY_LIMIT,
        )
        try:
            begun = await self._tools.api.begin(request)
        except BadRequest as error:
            raise Gone from error
        steps = begun.steps + (await self._more_steps(begun) if begun.more else [])
        return begun.model_copy(update={"steps": steps}), begun.manifest.run_id != manifest.run_id

    async def _more_steps(self, begun: BeginResult) -> list[Step]:
        steps: list[Step] = []
        more = True
        while more:
            last = (steps or begun.steps)[-1].n
            turn = begun.messages[0].position
            page = await self._tools.api.read(
                turns.ReadRequest(key=self._lease.key, turn=turn, after=last)
            )
            steps, more = [*steps, *page.steps], page.more
        return steps

    async def _run(self, begun: BeginResult, writer: EventWriter) -> Outcome:
        record = briefing.journal(
            self._tools, self._lease, begun, self._stopping, lambda: writer.seq, self.obey
        )
        config = briefing.run_config(
            self._tools.agent, self._lease, begun, self._cancellation, record, writer
        )
        self.obey(begun.controls)
        answer = await run(config)
        done = [
            HistoryEntry(message=entry.message)
            if entry.step is None
            else HistoryEntry(step=entry.step)
            for entry in config.transcript
        ]
        return answer, _said(begun) + done

    async def _give_up(self, begun: BeginResult) -> Outcome:
        """Dead letters first: a commit that follows later finds them kept (G5)."""
        for message in begun.messages:
            await self._tools.notices.bury(self._lease.key, message, begun.attempts)
        answer = briefing.apology(begun)
        note = HistoryEntry(message={"role": "assistant", "content": answer.content})
        return answer, [*_said(begun), note]

    async def _commit(
        self, begun: BeginResult, ended: Outcome, checked: Position, writer: EventWriter
    ) -> CommitResult:
        answer, history = ended
        named = {**answer.metadata, WORKFLOW_ID: begun.manifest.run_id}
        code = answer.error.code if answer.error else None
        return await self._tools.api.commit(
            turns.CommitRequest(
                key=self._lease.key,
                epoch=self._lease.epoch,
                turn=begun.messages[0].position,
                positions=[message.position for message in begun.messages],
                state="failed" if code == briefing.GIVEN_UP else "done",
                reason=code,
                outbound=[answer.model_copy(update={"metadata": named})],
                history=history,
                checked=checked,
                event_seq=writer.seq,
            )
        )

    def _report(self, begun: BeginResult, answer: OutboundMessage, writer: EventWriter) -> None:
        code = answer.error.code if answer.error else None
        writer.emit(*final_event(answer))
        log.info(
            "turn.finished",
            messages=len(begun.messages),
            attempts=begun.attempts,
            tools=len(answer.tools_used),
            error=code,
            seconds=round(time.monotonic() - self._began, 3),
        )


def _said(begun: BeginResult) -> list[HistoryEntry]:
    return [HistoryEntry(message=remembered(message.body)) for message in begun.messages]


def _is_poison(begun: BeginResult) -> bool:
    return begun.attempts > settings.MAX_ATTEMPTS or begun.vanished >= settings.MAX_VANISHED
