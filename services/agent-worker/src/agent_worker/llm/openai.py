"""Models behind an OpenAI-compatible ``/chat/completions``: the provider kind ``openai``.

What such servers really send differs; ``completions`` reads it with tolerance.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import orjson
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from agent_worker.llm import completions
from agent_worker.llm.client import Answering, ChatRequest, ChatResponse, TextDelta
from agent_worker.llm.errors import BadModelRequest, IncompleteAnswer, ModelUnavailable
from agent_worker.llm.failures import Failure, inner_error, retry_after_s, to_error
from agent_worker.llm.streaming import AnswerStream
from agent_worker.llm.surrogates import joined, loads
from agent_worker.llm.transport import build_transport
from posthouse.errors import ConfigError, TransientError
from posthouse.secrets import read_secret
from posthouse.settings import ProviderSettings

DEFAULT_BASE_URL = "https://api.openai.com/v1"
ATTEMPTS = 3
BACKOFF_S = 0.5
MAX_BACKOFF_S = 8.0
# A server that asks for a longer pause gets its turn back instead of a held connection.
MAX_RETRY_AFTER_S = 60.0
EVENT_STREAM = "text/event-stream"


class Patience(NamedTuple):
    """Longest silences in seconds. A whole answer comes only when the model is done; a stream
    has no limit in all, but its bytes come steadily once they come.
    """

    connect_s: float = 10.0
    whole_s: float = 300.0
    first_byte_s: float = 120.0
    idle_s: float = 60.0

    def timeout(self, read_s: float) -> httpx.Timeout:
        """For a request whose answer may take ``read_s`` seconds to come."""
        return httpx.Timeout(connect=self.connect_s, read=read_s, write=30.0, pool=30.0)


PATIENCE = Patience()


class OpenAIClient:
    """One provider. Transient failures are tried again a few times, with jitter."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str = "",
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        patience: Patience = PATIENCE,
        backoff_s: float = BACKOFF_S,
        stream: bool = True,
    ) -> None:
        self._name = name
        headers = {"content-type": "application/json"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._http = httpx.AsyncClient(headers=headers, transport=transport or build_transport())
        self._patience = patience
        self._backoff = wait_random_exponential(multiplier=backoff_s, max=MAX_BACKOFF_S)
        self._may_stream = stream
        self._takes_stream_options = True

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """Answer once. Raises the errors of ``llm.errors``."""
        return await self._attempts(request)(self._answer, request)

    async def chat_stream(self, request: ChatRequest) -> Answering:
        """The text as it comes, then the response; tried again only before the first piece."""
        begin = self._begin if self._may_stream else self._answer
        begun: AnswerStream | ChatResponse = await self._attempts(request)(begin, request)
        if isinstance(begun, ChatResponse):
            if text := begun.message["content"]:
                yield TextDelta(text)
            yield begun
            return
        try:
            async for text in begun.texts():
                yield TextDelta(text)
        finally:
            await begun.close()
        yield completions.read(begun.payload, request, self._model(request))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _attempts(self, request: ChatRequest) -> AsyncRetrying:
        return AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS if request.retries else 1),
            wait=self._pause_s,
            retry=retry_if_exception(_worth_another_try),
            reraise=True,
        )

    async def _answer(self, request: ChatRequest) -> ChatResponse:
        body = completions.request_body(request)
        reply = await self._send(body, self._model(request), self._patience.whole_s)
        return await self._read(reply, request)

    async def _begin(self, request: ChatRequest) -> AnswerStream | ChatResponse:
        """A stream whose first piece is there, or the answer of a server that does not stream."""
        try:
            return await self._open(request)
        except BadModelRequest as error:
            if not self._takes_stream_options or "stream_options" not in error.message:
                raise
            # Older servers refuse what they do not know; without it usage is estimated.
            self._takes_stream_options = False
            return await self._open(request)

    async def _open(self, request: ChatRequest) -> AnswerStream | ChatResponse:
        body = completions.request_body(request) | {"stream": True}
        if self._takes_stream_options:
            body["stream_options"] = {"include_usage": True}
        patience = self._patience
        reply = await self._send(body, self._model(request), patience.first_byte_s)
        kind = reply.headers.get("content-type", "")
        if not reply.is_success or not kind.startswith(EVENT_STREAM):
            return await self._read(reply, request)
        stream = AnswerStream(reply, self._model(request), patience.first_byte_s, patience.idle_s)
        await stream.begin()
        return stream

    async def _send(self, body: dict[str, Any], model: str, read_s: float) -> httpx.Response:
        request = self._http.build_request(
            "POST", self._url, content=orjson.dumps(body), timeout=self._patience.timeout(read_s)
        )
        with _reachable(model):
            return await self._http.send(request, stream=True)

    async def _read(self, reply: httpx.Response, request: ChatRequest) -> ChatResponse:
        model = self._model(request)
        try:
            with _reachable(model):
                content = await reply.aread()
        finally:
            await reply.aclose()
        return self._understand(reply, content, request, model)

    def _model(self, request: ChatRequest) -> str:
        return f"{self._name}/{request.model}"

    def _understand(
        self, reply: httpx.Response, content: bytes, request: ChatRequest, model: str
    ) -> ChatResponse:
        try:
            payload = joined(loads(content))
        except orjson.JSONDecodeError as error:
            if reply.is_success:
                raise IncompleteAnswer(f"{model}: the body is not JSON", model=model) from error
            payload = {"error": reply.text}
        inner = inner_error(payload)
        if inner is not None or not reply.is_success:
            code, message = inner or ("", "")
            failure = Failure(reply.status_code, code, message, retry_after_s(reply.headers))
            raise to_error(failure, model)
        return completions.read(payload, request, model)

    def _pause_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = _asked_pause_s(error)
        return asked if asked is not None else self._backoff(state)


@contextmanager
def _reachable(model: str) -> Iterator[None]:
    """What goes wrong on the way to a server, as our errors."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise ModelUnavailable(f"{model}: no answer in time", model=model) from error
    except httpx.HTTPError as error:
        reason = f"{model}: {type(error).__name__}: {error}"
        raise ModelUnavailable(reason, model=model) from error


def _asked_pause_s(error: BaseException | None) -> float | None:
    if isinstance(error, TransientError) and "retry_after_s" in error.details:
        return float(error.details["retry_after_s"])
    return None


def _worth_another_try(error: BaseException) -> bool:
    if not isinstance(error, TransientError):
        return False
    return (_asked_pause_s(error) or 0.0) <= MAX_RETRY_AFTER_S


def build(name: str, provider: ProviderSettings) -> OpenAIClient:
    """The client of a configured provider. Raises ConfigError."""
    if provider.tool_mode != "native":
        raise ConfigError(f"providers.{name}.tool_mode: {provider.tool_mode} is not supported yet")
    url = provider.base_url or DEFAULT_BASE_URL
    env, file = provider.api_key_env, provider.api_key_file
    key = read_secret(f"providers.{name}.api_key", env=env, file=file)
    return OpenAIClient(name, url, key, stream=provider.stream)
