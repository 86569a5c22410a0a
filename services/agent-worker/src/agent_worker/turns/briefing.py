"""What a run is told: prompt, identity, limits, journal and events, from a begun turn."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from agent_worker import prompt
from agent_worker.engine import Cancellation, RunConfig
from agent_worker.engine.compression import CompressConfig
from agent_worker.engine.journal import RESPONSE, Journal
from agent_worker.events import EventWriter
from agent_worker.llm.client import LLMClient, Tier
from agent_worker.ports import EventLog, TurnApi
from agent_worker.registry import ToolRegistry
from agent_worker.roles import Role, RoleBook
from agent_worker.tool import ToolContextExtras
from agent_worker.turns.exchanges import user_message, whole_exchanges
from agent_worker.turns.feeds import Feeds
from agent_worker.turns.journal import TurnJournal
from agent_worker.turns.notices import Notices
from agent_worker.workspace.location import root_of
from posthouse import events, subjects
from posthouse.messages import MAIN_AGENT, ErrorInfo, OutboundMessage
from posthouse.texts import language_of, text
from posthouse.turns import Admitted, BeginResult, Controls, Lease, Step

GIVEN_UP = "turn_failed"


class Agent(NamedTuple):
    """What every turn of a worker runs with; deadline in seconds.

    ``window`` tells the tokens that a model, or else a tier, takes. Without ``workspace_dir``
    conversations have no files.
    """

    llm: LLMClient
    tools: ToolRegistry
    roles: RoleBook
    window: Callable[[str, Tier], int]
    deadline_s: float
    token_budget: int | None = None
    workspace_dir: str = ""

    def tools_of(self, role: Role) -> ToolRegistry:
        """What a role may use."""
        return self.tools.narrowed(role.allows)


class TurnTools(NamedTuple):
    """What all turns of a worker share."""

    worker: str
    api: TurnApi
    notices: Notices
    event_log: EventLog
    feeds: Feeds
    agent: Agent


def source_ids(messages: list[Admitted]) -> tuple[str, ...]:
    """The ids that the turn's final answers."""
    return tuple(message.source_id for message in messages)


def event_writer(tools: TurnTools, lease: Lease, begun: BeginResult, resumed: bool) -> EventWriter:
    """The turn's writer; its first event says that the turn starts, or goes on here (R16)."""
    workflow_id = begun.manifest.run_id
    subject = subjects.events(begun.messages[0].body.conversation, workflow_id)
    writer = EventWriter(
        tools.event_log, subject, workflow_id, lease.epoch, begun.event_seq, resumed
    )
    if resumed:
        # Readers forget what the lost attempt said in the iteration that runs anew.
        opened = {"iteration": open_iteration(begun.steps), "text": "", "lines": []}
        writer.emit(events.RUN_RESUMED, {"epoch": lease.epoch, **opened})
    else:
        writer.emit(events.WORKFLOW_ACCEPTED, {"message_ids": source_ids(begun.messages)})
    return writer


def open_iteration(steps: list[Step]) -> int:
    """The first iteration of which no response is recorded; they count from 1."""
    recorded = (step.body["iteration"] for step in steps if step.kind == RESPONSE)
    return max(recorded, default=0) + 1


def journal(
    tools: TurnTools,
    lease: Lease,
    begun: BeginResult,
    stopping: asyncio.Event,
    event_seq: Callable[[], int],
    on_controls: Callable[[Controls], None],
) -> Journal:
    """The record of the turn's root run."""
    turn = begun.messages[0].position
    return TurnJournal(tools.api, lease, turn, begun.steps, stopping, event_seq, on_controls)


def run_config(
    agent: Agent,
    lease: Lease,
    begun: BeginResult,
    cancellation: Cancellation,
    record: Journal,
    writer: EventWriter,
) -> RunConfig:
    """Everything the engine gets for this turn."""
    newest = begun.messages[-1].body
    role = agent.roles.current().main
    workspace = root_of(agent.workspace_dir, newest.conversation)

    async def event(event_type: str, payload: dict[str, object]) -> None:
        writer.emit(event_type, payload)

    async def progress(lines: list[str]) -> None:
        writer.emit(events.PROGRESS_UPDATED, {"lines": lines})

    return RunConfig(
        llm_client=agent.llm,
        model=role.model,
        tier=role.tier,
        max_iterations=role.max_iterations,
        tools=agent.tools_of(role),
        auto_compress=CompressConfig(agent.window(role.model, role.tier)),
        messages=[
            prompt.system_message(role.prompt, prompt.directory(newest.metadata, workspace)),
            *whole_exchanges(begun.history),
            *(user_message(message.body) for message in begun.messages),
        ],
        channel=newest.channel,
        chat_id=newest.chat_id,
        sender_id=newest.sender_id,
        sender_name=newest.sender_name,
        conversation=newest.conversation,
        to=newest.conversation,
        in_reply_to=source_ids(begun.messages),
        run_id=begun.manifest.run_id,
        deadline_ms=begun.manifest.deadline_ms,
        language=language_of(newest.content),
        workspace_root=workspace,
        cancellation=cancellation,
        journal=record,
        events=event,
        on_text=writer.emit_text,
        progress_notifier=progress,
        tool_context_extras=ToolContextExtras(tenant_id=lease.tenant_id),
    )


def apology(begun: BeginResult) -> OutboundMessage:
    """The answer of a turn that is given up."""
    newest = begun.messages[-1].body
    return OutboundMessage(
        id="",
        from_=MAIN_AGENT,
        to=newest.conversation,
        conversation=newest.conversation,
        content=text("turn_failed", language_of(newest.content)),
        error=ErrorInfo(code=GIVEN_UP, message="the turn could not be finished"),
        in_reply_to=source_ids(begun.messages),
    )
