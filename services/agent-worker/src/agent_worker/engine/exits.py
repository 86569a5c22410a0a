"""How runs end: what was used up to there, and the message that leaves."""

from dataclasses import dataclass, field

from agent_worker.engine.config import RunConfig
from agent_worker.llm.client import Usage
from posthouse.address import Address
from posthouse.errors import PosthouseError
from posthouse.messages import ErrorInfo, OutboundMessage, UsageStats
from posthouse.texts import Language, text


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a run: text for the user, and the error or the question, if it is one."""

    content: str
    error: ErrorInfo | None = None
    waiting_user: bool = False


@dataclass(slots=True)
class Tally:
    """What a run used, replayed steps included; ``tools_used`` in order of first use."""

    usage: Usage = field(default_factory=Usage)
    tool_calls: int = 0
    tools_used: dict[str, None] = field(default_factory=dict)
    model: str = ""

    def add_response(self, model: str, input_tokens: int, output_tokens: int) -> None:
        """Count a model response."""
        self.model = model
        self.usage = Usage(
            self.usage.input_tokens + input_tokens, self.usage.output_tokens + output_tokens
        )

    def add_call(self, tool: str) -> None:
        """Count a tool call that ran."""
        self.tool_calls += 1
        self.tools_used[tool] = None


def failed(code: str, language: Language, **details: str) -> Exit:
    """The end with an error: the catalogue's words for the user, ``details`` for programs."""
    content = text(code, language)
    return Exit(content, ErrorInfo(code=code, message=content, details=dict(details)))


def model_failed(cause: Exception, language: Language) -> Exit:
    """The end because of a failed model call; the cause is kept in the error's details."""
    known = cause if isinstance(cause, PosthouseError) else None
    error = ErrorInfo(
        code="llm_generate",
        message=str(cause),
        retryable=known.retryable if known else False,
        details={"cause": known.code if known else type(cause).__name__},
    )
    return Exit(text("model_failed", language), error)


def outbound(config: RunConfig, end: Exit, tally: Tally, seconds: float) -> OutboundMessage:
    """The message that leaves the run; its ``id`` is '': the caller gives it one."""
    return OutboundMessage(
        id="",
        from_=Address.agent(*config.agent_id.split("/")),
        to=config.to or config.conversation_address,
        conversation=config.conversation_address,
        content=end.content,
        metadata={"model": tally.model} if tally.model else {},
        tools_used=tuple(tally.tools_used),
        waiting_user=end.waiting_user,
        error=end.error,
        usage=UsageStats(
            input_tokens=tally.usage.input_tokens,
            output_tokens=tally.usage.output_tokens,
            tool_calls=tally.tool_calls,
            latency_ms=int(seconds * 1000),
        ),
        in_reply_to=config.in_reply_to,
    )
