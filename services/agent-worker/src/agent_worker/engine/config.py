"""What a run is given. A capability that is None is off; the engine asks for nothing else."""

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agent_worker.engine.cancellation import Cancellation
from agent_worker.engine.compression import CompressConfig
from agent_worker.engine.journal import Journal
from agent_worker.llm.client import LLMClient, Message, Tier
from agent_worker.registry import ToolRegistry
from agent_worker.tool import SendFunc, ToolContext, ToolContextExtras
from posthouse.address import Address
from posthouse.texts import Language, language_of

DEFAULT_MAX_ITERATIONS = 100
# About 6k tokens of English; a longer tool result is cut to this many characters.
DEFAULT_RESULT_LIMIT = 20_000

ProgressNotifier = Callable[[list[str]], Awaitable[None]]
EventHook = Callable[[str, dict[str, Any]], Awaitable[None]]
TextHook = Callable[[int, str], None]
"""Takes the next piece of what the model says in an iteration (from 1); hands over, never waits."""


class TranscriptEntry(NamedTuple):
    """A message that the run adds to the history, and the journal step that holds it, if any."""

    message: Message
    step: int | None


@dataclass(kw_only=True, slots=True)
class RunConfig:
    """One run. Use each config once; ``messages`` stays as it is.

    ``model`` is ``provider/model``, '' = by ``tier``. ``messages`` hold the system message, the
    history and the new user messages. ``run_id`` must be the same for a resume. ``deadline_ms``
    is Unix time. ``workspace_root`` is where the conversation's files lie, '' = it has none. With
    ``on_text`` the model streams. ``transcript`` receives the new history:
    commit it in this order.
    """

    llm_client: LLMClient
    model: str
    tools: ToolRegistry
    messages: list[Message]

    agent_id: str = "main"
    channel: str = ""
    chat_id: str = ""
    sender_id: str = ""
    sender_name: str = ""
    session_key: str = ""
    conversation: Address | None = None
    to: Address | None = None
    in_reply_to: tuple[str, ...] = ()
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    tier: Tier = "standard"
    max_tokens: int | None = None
    temperature: float | None = None
    max_iterations: int = 0
    result_limit: int = DEFAULT_RESULT_LIMIT
    deadline_ms: int | None = None
    language: Language | None = None
    workspace_root: str = ""

    cancellation: Cancellation = field(default_factory=Cancellation)
    journal: Journal | None = None
    auto_compress: CompressConfig | None = None
    progress_notifier: ProgressNotifier | None = None
    events: EventHook | None = None
    on_text: TextHook | None = None
    send_func: SendFunc | None = None
    tool_context_extras: ToolContextExtras | None = None
    transcript: list[TranscriptEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.max_iterations = self.max_iterations or DEFAULT_MAX_ITERATIONS
        self.session_key = self.session_key or f"{self.channel}:{self.chat_id}"

    @property
    def conversation_address(self) -> Address:
        """``conversation``, by default that of channel and chat."""
        return self.conversation or Address.im(self.channel or "cli", self.chat_id or "local")

    def seconds_left(self) -> float | None:
        """Seconds until the deadline, negative after it; None without one."""
        return None if self.deadline_ms is None else self.deadline_ms / 1000 - time.time()

    def spoken_language(self) -> Language:
        """``language``, by default that of the newest user message."""
        return self.language or language_of(_last_user_text(self.messages))


def build_tool_context(config: RunConfig, idempotency_key: str = "") -> ToolContext:
    """The only constructor of ToolContext: identity from the config, never from the model."""
    return ToolContext(
        agent_id=config.agent_id,
        channel=config.channel,
        chat_id=config.chat_id,
        sender_id=config.sender_id,
        sender_name=config.sender_name,
        session_key=config.session_key,
        conversation=config.conversation_address,
        run_id=config.run_id,
        idempotency_key=idempotency_key,
        send_func=config.send_func,
        workspace=Path(config.workspace_root) if config.workspace_root else None,
        extras=config.tool_context_extras or ToolContextExtras(),
    )


def _last_user_text(messages: list[Message]) -> str:
    for message in reversed(messages):
        if message.get("role") == "user":
            return str(message.get("content") or "")
    return ""
