"""Answers a plain request to an agent: exactly one reply, recorded as a call (R13, R19).

A request without a call record is anonymous: no identity, no history, the default tools.
"""

import asyncio
import hashlib
import time
from typing import Any
from uuid import uuid4

import structlog

from agent_worker import prompt
from agent_worker.engine import RunConfig, run
from agent_worker.engine.compression import CompressConfig
from agent_worker.engine.journal import Recorded
from agent_worker.ingress import AGENT_FIELDS
from agent_worker.ports import CallApi
from agent_worker.roles import Role
from agent_worker.turns.briefing import Agent
from posthouse import calls, subjects
from posthouse.address import Address
from posthouse.errors import Busy, PosthouseError
from posthouse.messages import (
    MAIN_AGENT,
    ErrorInfo,
    InboundMessage,
    OutboundMessage,
    read_inbound,
    utc_now,
)
from posthouse.texts import language_of, text
from posthouse.turns import Step

log = structlog.get_logger(__name__)


class AgentRequests:
    """Runs requests, at most ``limit`` at once; ``calls`` is what the heartbeat renews."""

    def __init__(self, api: CallApi, agent: Agent, worker: str, limit: int) -> None:
        self._api = api
        self._agent = agent
        self._worker = worker
        self._limit = limit
        self.calls: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def cancel(self, call_id: str) -> None:
        """End a call that was lost or cancelled."""
        if task := self._tasks.get(call_id):
            task.cancel()

    async def answer(self, subject: str, body: bytes) -> OutboundMessage:
        """The reply to a request; an error is a reply too."""
        agent = MAIN_AGENT
        try:
            agent = subjects.address(subject)
            if len(self._tasks) >= self._limit:
                raise Busy("this worker answers enough requests already")
            message = read_inbound(body, subject, default_id=uuid4().hex, time=utc_now())
            message = message.model_copy(update=AGENT_FIELDS)
            roles = self._agent.roles.current()
            role = roles.by_name.get(_role_name(agent))
            if role is None:
                language = language_of(message.content)
                content = text("unknown_role", language, role=agent, known=roles.names)
                return _error(agent, content, ErrorInfo(code="unknown_role", message=content))
            return await self._run(uuid4().hex, body, message, role)
        except PosthouseError as error:
            info = ErrorInfo(
                code=error.code,
                message=error.message,
                retryable=error.retryable,
                details=error.details,
            )
            return _error(agent, error.message, info)

    async def _run(
        self, call_id: str, body: bytes, message: InboundMessage, role: Role
    ) -> OutboundMessage:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is answered in a task")
        opened = await self._api.open(
            calls.CallOpenRequest(
                call_id=call_id,
                request_hash=hashlib.sha256(body).hexdigest(),
                worker=self._worker,
                anonymous=True,
            )
        )
        self.calls[call_id], self._tasks[call_id] = opened.epoch, task
        try:
            result = await run(
                RunConfig(
                    llm_client=self._agent.llm,
                    model=role.model,
                    tier=role.tier,
                    max_iterations=role.max_iterations,
                    tools=self._agent.tools_of(role),
                    auto_compress=CompressConfig(self._agent.window(role.model, role.tier)),
                    messages=[
                        prompt.system_message(role.prompt, prompt.directory(message.metadata)),
                        {"role": "user", "content": message.content},
                    ],
                    agent_id=_path(message.conversation),
                    conversation=message.conversation,
                    to=message.from_,
                    in_reply_to=(message.id,),
                    run_id=call_id,
                    deadline_ms=int((time.time() + self._agent.deadline_s) * 1000),
                    journal=_CallJournal(self._api, call_id, opened.epoch),
                )
            )
            result = result.model_copy(update={"id": call_id})
            # A beat that comes while this is stored would be told that the call is lost.
            del self._tasks[call_id]
            await self._api.finish(
                calls.CallFinishRequest(call_id=call_id, epoch=opened.epoch, result=result)
            )
            return result
        finally:
            self.calls.pop(call_id, None)
            self._tasks.pop(call_id, None)


class _CallJournal:
    """Steps of a call; a plain request has a fresh id each time, so nothing is resumed."""

    def __init__(self, api: CallApi, call_id: str, epoch: int) -> None:
        self._api = api
        self._call_id = call_id
        self._epoch = epoch
        self._next = 0
        self._lock = asyncio.Lock()

    def recorded(self, kind: str, iteration: int, index: int = 0) -> Recorded | None:
        """See Journal."""
        return None

    async def record(
        self, kind: str, iteration: int, body: dict[str, Any], index: int = 0
    ) -> int | None:
        """See Journal."""
        async with self._lock:
            n = self._next
            placed = body | {"iteration": iteration, "index": index}
            step = Step(run_id=self._call_id, n=n, kind=kind, body=placed)
            await self._api.record(
                calls.CallRecordRequest(call_id=self._call_id, epoch=self._epoch, step=step)
            )
            self._next = n + 1
        return n


def _path(agent: Address) -> str:
    return f"{agent.domain}/{agent.id}" if agent.id else agent.domain


def _role_name(agent: Address) -> str:
    """The last part of the path: ``agent://main/researcher`` is the role researcher."""
    return _path(agent).rpartition("/")[2]


def _error(agent: Address, content: str, error: ErrorInfo) -> OutboundMessage:
    return OutboundMessage(
        id=uuid4().hex, from_=agent, to=agent, conversation=agent, content=content, error=error
    )
