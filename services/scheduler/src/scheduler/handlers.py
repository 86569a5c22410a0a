"""RPC handlers of ``scheduler.*``: each takes a request, calls once, answers."""

from typing import Any

from pydantic import Field

from posthouse import subjects
from posthouse.errors import PermanentError
from posthouse.messages import Wire
from posthouse.rpc import RpcServer
from scheduler.ports import Schedules

QUEUE = "scheduler"
LATER = ("create", "show", "preview", "pause", "resume", "run", "update", "delete", "reconcile")
"""Verbs that this version does not serve yet."""


class NotSupported(PermanentError):
    """This version does not do that yet."""

    code = "not_supported"


class ListRequest(Wire):
    """Ask for all schedules."""


class AnyRequest(Wire):
    """Any request at all, to be refused."""


class ListResult(Wire):
    """The records of the schedules."""

    schedules: list[dict[str, Any]] = Field(default_factory=list)


class Handlers:
    """Answers from the records of the schedules."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    async def list(self, request: ListRequest) -> ListResult:
        """All schedules."""
        return ListResult(schedules=await self._schedules.records())

    async def refuse(self, request: AnyRequest) -> None:
        """What comes with a later version."""
        raise NotSupported("schedules come with a later version")


def build_server(schedules: Schedules) -> RpcServer:
    """All methods of the service."""
    handlers = Handlers(schedules)
    server = RpcServer(QUEUE)
    server.add(subjects.scheduler("list"), handlers.list)
    for verb in LATER:
        server.add(subjects.scheduler(verb), handlers.refuse)
    return server
