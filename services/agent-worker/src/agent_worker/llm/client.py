"""The port to language models. Adapters are found by discovery, see ``routing``.

Messages are dicts in the OpenAI chat format, whatever the provider speaks; adapters translate.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

Message = dict[str, Any]
Tier = Literal["economy", "standard", "premium"]


@dataclass(frozen=True, slots=True)
class ModelHints:
    """What kind of model is wanted; ``use_case`` is an open string."""

    tier: Tier = "standard"
    use_case: str = "generation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One model call. ``tools`` are OpenAI function schemas; None leaves the provider's default.

    ``model`` names a model and overrides the tier: ``provider/model`` towards the router, the
    provider's own name towards an adapter. Without ``retries`` the first failure is raised.
    """

    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    model_hints: ModelHints = field(default_factory=ModelHints)
    model: str = ""
    retries: bool = True


class Usage(NamedTuple):
    """Tokens of one call."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """An assistant message, with ``tool_calls`` whose arguments are strings, if it has any.

    ``finish_reason`` is ``length`` when the answer was cut off; ``model`` is ``provider/model``.
    """

    message: Message
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = "stop"
    model: str = ""


class TextDelta(NamedTuple):
    """The next piece of an answer's text."""

    text: str


Answering = AsyncGenerator[TextDelta | ChatResponse, None]
"""Pieces of text, then one response. Close it (``aclosing``) to end the call early."""


class LLMClient(Protocol):
    """A language model, or the choice between several."""

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """Answer once. Raises the errors of ``llm.errors``, all of them PosthouseError."""
        ...

    def chat_stream(self, request: ChatRequest) -> Answering:
        """The text as it comes, then the whole response, which counts. Raises as ``chat``.

        What was yielded is never taken back: after the first piece nothing is tried again.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; the client is not used afterwards."""
        ...
