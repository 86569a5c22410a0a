"""One turn: begin or resume, run the agent, commit."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

import structlog
from structlog.contextvars import bound_contextvars

from agent_worker import prompt, settings
from agent_worker.engine import Cancellation, RunConfig, run
from agent_worker.events import EventWriter
from agent_worker.llm.client import LLMClient
from agent_worker.ports import EventLog, StreamMessage, TurnApi
from agent_worker.registry import ToolRegistry
from agent_worker.tool import ToolContextExtras
from agent_worker.turns.exchanges import user_message, whole_exchanges
from agent_worker.turns.feeds import Feeds
from agent_worker.turns.journal import TurnJournal
from posthouse import events, subjects, turns
from posthouse.errors import BadRequest
from posthouse.messages import MAIN_AGENT, ErrorInfo, OutboundMessage
from posthouse.texts import language_of, text
from posthouse.turns import Admitted, BeginResult, Controls, HistoryEntry, Lease, Manifest, Position

log = structlog.get_logger(__name__)

GIVEN_UP = "turn_failed"
FINAL_EVENTS = {
    None: events.WORKFLOW_COMPLETED,
    "cancelled": events.WORKFLOW_CANCELED,
}


class Agent(NamedTuple):
    """What every turn of a worker runs with."""

    llm: LLMClient
    tools: ToolRegistry
    deadline_s: float
    token_budget: int | None = None


class TurnTools(NamedTuple):
    """What all turns of a worker share."""

    worker: str
    api: TurnApi
    event_log: EventLog
    feeds: Feeds
    agent: Agent


class Gone(Exception):
    """The messages of this turn do not wait any more."""


class Turn:
    """A turn under way. ``obey`` may be called from outside while ``play`` runs."""

    def __init__(self, tools: TurnTools, lease: Lease, stopping: asyncio.Event) -> None:
        self._api = tools.api
        self._agent = tools.agent
        self._tools = tools
        self._lease = lease
        self._stopping = stopping
        self._cancellation = Cancellation()
        self._position: Position | None = None
        self._began = time.monotonic()

    def obey(self, controls: Controls) -> None:
        """End the run if a /stop covers this turn."""
        if self._position and controls.stop_upto and self._position <= controls.stop_upto:
            self._cancellation.stop("user")

    async def play(
        self,
        positions: list[Position],
        checked: Callable[[], Position],
        committing: Callable[[], None],
        give_up: bool = False,
    ) -> "Played":
        """Run the turn of these waiting messages and commit it; ``give_up`` fails it unrun.

        ``committing`` is called before the commit: from then on a lost lease must not cancel us.
        Raises what TurnApi raises, HandOver, and CancelledError.
        """
        begun = await self._begin(positions)
        self._position = positions[0]
        with bound_contextvars(conversation=self._lease.key, run_id=begun.manifest.run_id):
            writer = self._writer(begun)
            try:
                if give_up or _is_poison(begun):
                    outcome, entries = _given_up(begun), list[HistoryEntry]()
                else:
                    outcome, entries = await self._outcome(begun, writer)
                committing()
                result = await self._commit(begun, outcome, entries, checked(), writer)
                self._report(begun, outcome, writer)
            finally:
                self._tools.feeds.close(writer)
        return Played(result, begun, outcome)

    def _report(self, begun: BeginResult, outcome: OutboundMessage, writer: EventWriter) -> None:
        code = outcome.error.code if outcome.error else None
        event_type = FINAL_EVENTS.get(code, events.WORKFLOW_FAILED)
        writer.emit(event_type, {"error": code, "waiting_user": outcome.waiting_user})
        log.info(
            "turn.finished",
            messages=len(begun.messages),
            attempts=begun.attempts,
            tools=len(outcome.tools_used),
            error=code,
            seconds=round(time.monotonic() - self._began, 3),
        )

    async def _begin(self, positions: list[Position]) -> BeginResult:
        manifest = Manifest(
            run_id=uuid4().hex,
            positions=positions,
            deadline_ms=int((time.time() + self._agent.deadline_s) * 1000),
            budget={"tokens": self._agent.token_budget},
        )
        request = turns.BeginRequest(
            key=self._lease.key,
            epoch=self._lease.epoch,
            worker=self._tools.worker,
            manifest=manifest,
            history_limit=settings.HISTORY_LIMIT,
        )
        try:
            begun = await self._api.begin(request)
        except BadRequest as error:
            raise Gone from error
        more, steps = begun.more, begun.steps
        while more:
            page = await self._api.read(
                turns.ReadRequest(key=self._lease.key, turn=positions[0], after=steps[-1].n)
            )
            steps, more = [*steps, *page.steps], page.more
        return begun.model_copy(update={"steps": steps})

    def _writer(self, begun: BeginResult) -> EventWriter:
        conversation = begun.messages[0].body.conversation
        workflow_id = begun.manifest.run_id
        resumed = begun.attempts > 1 or bool(begun.steps)
        writer = EventWriter(
            self._tools.event_log,
            subjects.events(conversation, workflow_id),
            workflow_id,
            self._lease.epoch,
            begun.event_seq,
            resumed,
        )
        if resumed:
            writer.emit(events.RUN_RESUMED, {"epoch": self._lease.epoch})
        else:
            ids = [m.source_id for m in begun.messages]
            writer.emit(events.WORKFLOW_ACCEPTED, {"message_ids": ids})
        return writer

    async def _outcome(
        self, begun: BeginResult, writer: EventWriter
    ) -> tuple[OutboundMessage, list[HistoryEntry]]:
        config = self._config(begun, writer)
        self.obey(begun.controls)
        outcome = await run(config)
        said = [HistoryEntry(message=user_message(m.body)) for m in begun.messages]
        done = [
            HistoryEntry(step=entry.step)
            if entry.step is not None
            else HistoryEntry(message=entry.message)
            for entry in config.transcript
        ]
        return outcome, said + done

    def _config(self, begun: BeginResult, writer: EventWriter) -> RunConfig:
        newest = begun.messages[-1].body

        async def event(event_type: str, payload: dict[str, object]) -> None:
            writer.emit(event_type, payload)

        return RunConfig(
            llm_client=self._agent.llm,
            model="",
            tools=self._agent.tools,
            messages=[
                prompt.system_message(),
                *whole_exchanges(begun.history),
                *(user_message(m.body) for m in begun.messages),
            ],
            channel=newest.channel,
            chat_id=newest.chat_id,
            sender_id=newest.sender_id,
            sender_name=newest.sender_name,
            conversation=newest.conversation,
            to=newest.conversation,
            in_reply_to=_ids(begun.messages),
            run_id=begun.manifest.run_id,
            deadline_ms=begun.manifest.deadline_ms,
            language=language_of(newest.content),
            cancellation=self._cancellation,
            journal=TurnJournal(
                self._api,
                self._lease,
                begun.messages[0].position,
                begun.steps,
                self._stopping,
                lambda: writer.seq,
                self.obey,
            ),
            events=event,
            tool_context_extras=ToolContextExtras(tenant_id=self._lease.tenant_id),
        )

    async def _commit(
        self,
        begun: BeginResult,
        outcome: OutboundMessage,
        entries: list[HistoryEntry],
        checked: Position,
        writer: EventWriter,
    ) -> turns.CommitResult:
        failed = outcome.error is not None and outcome.error.code == GIVEN_UP
        return await self._api.commit(
            turns.CommitRequest(
                key=self._lease.key,
                epoch=self._lease.epoch,
                turn=begun.messages[0].position,
                positions=[m.position for m in begun.messages],
                state="failed" if failed else "done",
                reason=outcome.error.code if outcome.error else None,
                outbound=[outcome],
                history=entries,
                checked=checked,
                event_seq=writer.seq,
            )
        )


class Played(NamedTuple):
    """A committed turn."""

    committed: turns.CommitResult
    begun: BeginResult
    outcome: OutboundMessage

    def dead_letters(self) -> list[StreamMessage]:
        """The messages to keep as dead letters: those of a turn that was given up."""
        if self.outcome.error is None or self.outcome.error.code != GIVEN_UP:
            return []
        return [
            StreamMessage(
                subjects.inbound(m.body.conversation), m.position, m.body.to_wire(), m.body.time
            )
            for m in self.begun.messages
        ]


def _is_poison(begun: BeginResult) -> bool:
    return begun.attempts > settings.MAX_ATTEMPTS or begun.vanished >= settings.MAX_VANISHED


def _given_up(begun: BeginResult) -> OutboundMessage:
    newest = begun.messages[-1].body
    return OutboundMessage(
        id="",
        from_=MAIN_AGENT,
        to=newest.conversation,
        conversation=newest.conversation,
        content=text("turn_failed", language_of(newest.content)),
        error=ErrorInfo(code=GIVEN_UP, message="the turn could not be finished"),
        in_reply_to=_ids(begun.messages),
    )


def _ids(messages: list[Admitted]) -> tuple[str, ...]:
    return tuple(message.source_id for message in messages)
