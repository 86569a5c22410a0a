"""Keeps a prompt within the model's window: by the caller's function, and then by rules.

Whatever happens, calls keep their results (G7), one system message stands first, the newest user
message stays, and a prompt never gets larger. What is stored as history is not touched.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import structlog

from agent_worker.engine.pairs import paired
from agent_worker.engine.results import cap
from agent_worker.llm.client import ChatRequest, Message
from agent_worker.llm.completions import estimate_request

log = structlog.get_logger(__name__)

CompressFunc = Callable[[list[Message], str], Awaitable[list[Message]]]
"""(messages, model) → fewer messages; its outcome is checked."""

# Prompts this short are not worth it.
FEW = 3
KEPT_GROUPS = 3
SHORT_CHARACTERS = 4_000
THIN_CHARACTERS = 400
THINNEST_CHARACTERS = 80
LEFT_OUT = "[Earlier messages were left out here to save space.]"


class CompressConfig(NamedTuple):
    """When to compress: tokens of the window, and the share of it that messages and tool schemas
    may take. Without ``compress_func`` the rules do it alone.
    """

    max_context_tokens: int
    compression_threshold: float = 0.8
    compress_func: CompressFunc | None = None

    @property
    def limit(self) -> int:
        """Tokens that a prompt may have."""
        return int(self.max_context_tokens * self.compression_threshold)


class Compressed(NamedTuple):
    """A prompt, and its tokens before and after."""

    messages: list[Message]
    before: int
    after: int


class Compressor:
    """Compresses the prompts of one run; a function that did not do it is not asked again."""

    def __init__(self, config: CompressConfig, model: str) -> None:
        self._config = config
        self._model = model
        self._asks = config.compress_func is not None

    async def fit(
        self, messages: list[Message], tools: Sequence[dict[str, Any]]
    ) -> Compressed | None:
        """The prompt to send instead of this one; None if it may stay as it is."""
        if len(messages) <= FEW:
            return None
        before, limit = tokens(messages, tools), self._config.limit
        if before <= limit:
            return None
        made = await self._ask(messages, tools, before) if self._asks else messages
        made = truncated(made, limit - tokens((), tools))
        after = tokens(made, tools)
        return Compressed(made, before, after) if after < before else None

    async def _ask(
        self, messages: list[Message], tools: Sequence[dict[str, Any]], before: int
    ) -> list[Message]:
        assert self._config.compress_func is not None
        try:
            made = await self._config.compress_func(list(messages), self._model)
            problem = _problem(messages, made) or (
                "it is not smaller" if tokens(made, tools) >= before else ""
            )
        except Exception as error:
            made, problem = messages, type(error).__name__
        if not problem:
            return made
        self._asks = False
        log.warning("compression.failed", reason=problem)
        return messages


def tokens(messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> int:
    """Tokens of messages and tool schemas, estimated."""
    return estimate_request(ChatRequest(messages=messages, tools=tools))


def truncated(messages: list[Message], limit: int) -> list[Message]:
    """The messages made smaller by rules until they have ``limit`` tokens, if that can be.

    In this order: old tool results are shortened; the oldest exchanges are left out, then the
    oldest calls of the newest one; its newest results are shortened, and last all long texts.
    """
    best, size = messages, tokens(messages)
    steps = _steps(messages)
    while size > limit and (candidate := next(steps, None)) is not None:
        if (smaller := tokens(candidate)) < size:
            best, size = candidate, smaller
    return best


def _steps(messages: list[Message]) -> Iterator[list[Message]]:
    system = [m for m in messages if m["role"] == "system"]
    exchanges = _exchanges([m for m in messages if m["role"] != "system"])
    groups = [group for exchange in exchanges for group in exchange.groups]
    old = {id(group) for group in groups[:-KEPT_GROUPS]}
    thin = [e.thinned(lambda group: id(group) in old, THIN_CHARACTERS) for e in exchanges]
    yield [*system, *_joined(thin)]
    while len(thin) > 1:
        thin = thin[1:]
        yield [*system, _note(), *_joined(thin)]
    if not thin:
        return
    (newest,) = thin
    left_out = [_note()] if len(exchanges) > 1 else []
    while len(newest.groups) > KEPT_GROUPS:
        newest = newest._replace(groups=newest.groups[1:])
        left_out = [_note()]
        yield [*system, *left_out, *_joined([newest])]
    for length in (THIN_CHARACTERS, THINNEST_CHARACTERS):
        newest = newest.thinned(lambda _: True, length)
        yield [*system, *left_out, *_joined([newest])]
    for length in (SHORT_CHARACTERS, THIN_CHARACTERS):
        short = [m | {"content": cap(m["content"], length)} for m in _joined([newest])]
        yield [*system, *left_out, *short]


class _Exchange(NamedTuple):
    """What people said, and the groups that followed: a message of the model, and its results."""

    said: list[Message]
    groups: list[list[Message]]

    def thinned(self, which: Callable[[list[Message]], bool], length: int) -> "_Exchange":
        groups = [_thin(group, length) if which(group) else group for group in self.groups]
        return self._replace(groups=groups)


def _exchanges(messages: Sequence[Message]) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    for message in messages:
        if message["role"] == "user":
            if not exchanges or exchanges[-1].groups:
                exchanges.append(_Exchange([], []))
            exchanges[-1].said.append(message)
        else:
            if not exchanges:
                exchanges.append(_Exchange([], []))
            groups = exchanges[-1].groups
            if message["role"] == "assistant" or not groups:
                groups.append([])
            groups[-1].append(message)
    return exchanges


def _thin(group: list[Message], length: int) -> list[Message]:
    return [m | {"content": cap(m["content"], length)} if m["role"] == "tool" else m for m in group]


def _joined(exchanges: Sequence[_Exchange]) -> Iterator[Message]:
    for exchange in exchanges:
        yield from exchange.said
        for group in exchange.groups:
            yield from group


def _note() -> Message:
    return {"role": "user", "content": LEFT_OUT}


def _problem(before: Sequence[Message], after: Sequence[Message]) -> str:
    """Why these messages cannot take the place of those; '' when they can."""
    try:
        if paired(after) != list(after):
            return "a call and its result were parted"
        systems = [index for index, m in enumerate(after) if m["role"] == "system"]
        if systems != [index for index, m in enumerate(before) if m["role"] == "system"][:1]:
            return "the system message is not as it was"
        if systems and after[0] != before[0]:
            return "the system message was changed"
        newest = [m for m in before if m["role"] == "user"][-1:]
        return "" if all(m in after for m in newest) else "the newest message was lost"
    except (KeyError, TypeError, AttributeError) as error:
        return f"these are no messages: {type(error).__name__}"
