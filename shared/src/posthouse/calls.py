"""Requests and results of ``memory.call.*``: sub-agent calls, recorded like turns (R13-R15).

A call is named by its id and has a lease and an epoch of its own; a stale epoch raises Fenced and
changes nothing.
"""

from typing import Literal

from pydantic import Field

from posthouse.messages import OutboundMessage, Wire
from posthouse.turns import RequestedCall, Step


class CallOpenRequest(Wire):
    """Take a call record (R13). ``anonymous`` makes one, for callers without a record."""

    call_id: str
    request_hash: str
    worker: str
    anonymous: bool = False


class CallOpenResult(Wire):
    """``opened`` to run or resume, ``joined`` while its owner lives, ``finished`` with result.
    ``more``: read the further steps with ``memory.turn.read``, its ``run_id`` the call id.
    """

    state: Literal["opened", "joined", "finished"]
    epoch: int = 0
    steps: list[Step] = Field(default_factory=list)
    more: bool = False
    result: OutboundMessage | None = None


class CallRecordRequest(Wire):
    """Record a step of a call, with the calls it asks for in turn (R13)."""

    call_id: str
    epoch: int
    step: Step
    calls: list[RequestedCall] = Field(default_factory=list)


class CallFinishRequest(Wire):
    """Store the result of a call, once."""

    call_id: str
    epoch: int
    result: OutboundMessage


class CallCancelRequest(Wire):
    """Cancel a call (R15); ignored when ``epoch`` is older than the newest that called."""

    call_id: str
    epoch: int
    reason: str


class CallReleaseRequest(Wire):
    """Hand an unfinished call back, so that another worker may resume it at once."""

    call_id: str
    epoch: int
