"""Events of a workflow: what happens while an agent works (docs/protocol.md, R16)."""

from typing import Any

from pydantic import Field

from posthouse.messages import Time, Wire, utc_now

WORKFLOW_ACCEPTED = "workflow.accepted"
ROUTE_RESOLVED = "route.resolved"
AGENT_STARTED = "agent.started"
TEXT_DELTA = "text.delta"
ARTIFACT_READY = "artifact.ready"
USER_INPUT_REQUIRED = "user_input.required"
WORKFLOW_COMPLETED = "workflow.completed"
WORKFLOW_FAILED = "workflow.failed"
WORKFLOW_CANCELED = "workflow.canceled"
RUN_RESUMED = "run.resumed"
STEP_RECORDED = "step.recorded"
TOOL_STARTED = "tool.started"
TOOL_FINISHED = "tool.finished"
SUB_AGENT_STARTED = "sub_agent.started"
SUB_AGENT_FINISHED = "sub_agent.finished"
PROGRESS_UPDATED = "progress.updated"
TICKET_OPENED = "ticket.opened"
TICKET_CLOSED = "ticket.closed"
MESSAGE_SENT = "message.sent"

FINAL = frozenset({WORKFLOW_COMPLETED, WORKFLOW_FAILED, WORKFLOW_CANCELED})


class StreamEvent(Wire):
    """One event; ``seq`` counts up by one from 1 within a workflow.

    ``epoch`` is the lease epoch of the writer: readers drop what an older epoch wrote above the
    seq at which a newer one resumed.
    """

    event_id: str
    workflow_id: str
    seq: int
    event_type: str
    timestamp: Time = Field(default_factory=utc_now)
    payload: Any = None
    final: bool = False
    epoch: int = 0
