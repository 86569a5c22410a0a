"""What a tool is and what it gets to see. Tool authors need nothing else of this service.

A tool is one file with ``tools() -> list[Tool]``, or ``tools(settings)``: in
``agent_worker/tools/``, in a folder of ``tools_path``, or behind an entry point of the group
``posthouse.tools``.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from posthouse.errors import PermanentError

if TYPE_CHECKING:
    # The child process of ``grep`` loads this module, and goes without pydantic.
    from agent_worker.registry import ToolRegistry
    from posthouse.address import Address

Access = Literal["read", "write"]
SendFunc = Callable[[str, str, str], Awaitable[None]]
InjectInbound = Callable[[str, str, str, str], Awaitable[None]]

DEFAULT_TIMEOUT_S = 60.0


class ToolError(PermanentError):
    """The tool could not do it; the message tells the model what to fix."""

    code = "tool"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: text for the model, and whether it worked.

    ``waiting_user`` ends the turn: ``content`` goes to the user, whose next message goes on.
    """

    content: str
    ok: bool = True
    waiting_user: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContextExtras:
    """What the worker lends to tools beyond identity; None = not available here.

    ``inject_inbound(channel, chat_id, sender_id, content)`` puts a message into a conversation.
    """

    tenant_id: int | None = None
    core_memory: Any = None
    archival_memory: Any = None
    memory_svc: Any = None
    recall_time_range: Any = None
    tool_indexer: Any = None
    inject_inbound: InjectInbound | None = None
    registry: "ToolRegistry | None" = None
    invalidate_all_session_mcp: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Who calls, on whose behalf; made by ``engine.build_tool_context`` only, one per call.

    ``idempotency_key`` is the same whenever this very call runs again after a crash.
    ``send_func(channel, chat_id, content)`` sends a message before the end of the turn.
    ``workspace`` is the conversation's directory, which may not exist yet; None = it has no files.
    """

    agent_id: str
    channel: str
    chat_id: str
    sender_id: str
    sender_name: str
    session_key: str
    conversation: "Address"
    run_id: str
    idempotency_key: str
    send_func: SendFunc | None = None
    workspace: Path | None = None
    extras: ToolContextExtras = field(default_factory=ToolContextExtras)


class Tool(Protocol):
    """Something an agent can do.

    ``input_schema`` is the JSON schema of the arguments. ``access`` says whether it changes
    anything: reads run concurrently, writes one by one. An ``idempotent`` write may run again
    with the same key. A call ends after ``timeout_s`` seconds.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def access(self) -> Access: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def timeout_s(self) -> float: ...

    async def execute(self, ctx: ToolContext, input: dict[str, Any]) -> str | ToolResult:
        """Do it. ``input`` fits the schema. Any exception becomes an error the model sees."""
        ...


ToolFunction = Callable[[ToolContext, dict[str, Any]], Awaitable[str | ToolResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A tool made of one async function ``(ctx, input)``; see ``tool``."""

    name: str
    description: str
    input_schema: dict[str, Any]
    function: ToolFunction
    access: Access = "write"
    idempotent: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S

    async def execute(self, ctx: ToolContext, input: dict[str, Any]) -> str | ToolResult:
        """Call the function."""
        return await self.function(ctx, input)


def tool(
    name: str,
    description: str,
    input_schema: dict[str, Any],
    *,
    access: Access = "write",
    idempotent: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Callable[[ToolFunction], FunctionTool]:
    """Make the decorated async function a tool. What is not said to be harmless is a write."""

    def make(function: ToolFunction) -> FunctionTool:
        return FunctionTool(
            name=name,
            description=description,
            input_schema=input_schema,
            function=function,
            access=access,
            idempotent=idempotent,
            timeout_s=timeout_s,
        )

    return make


def runs_again(tool: Tool) -> bool:
    """True if a call that was started but not finished may simply run again."""
    return tool.access == "read" or tool.idempotent
