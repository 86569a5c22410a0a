"""Models behind an OpenAI-compatible ``/chat/completions``: the provider kind ``openai``.

What such servers really send differs; ``completions`` reads it with tolerance.
"""

import os
from pathlib import Path
from urllib.request import getproxies

import httpx
import orjson
from aiohttp import ClientSession, TCPConnector
from httpx_aiohttp import AiohttpTransport
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from agent_worker.llm import completions
from agent_worker.llm.client import ChatRequest, ChatResponse
from agent_worker.llm.errors import IncompleteAnswer, ModelUnavailable
from agent_worker.llm.failures import Failure, inner_error, retry_after_s, to_error
from posthouse.errors import ConfigError, TransientError
from posthouse.settings import ProviderSettings

DEFAULT_BASE_URL = "https://api.openai.com/v1"
ATTEMPTS = 3
BACKOFF_S = 0.5
MAX_BACKOFF_S = 8.0
# A server that asks for a longer pause gets its turn back instead of a held connection.
MAX_RETRY_AFTER_S = 60.0
# The whole answer is one response here: the first byte comes only when the model is done.
TIMEOUT = httpx.Timeout(connect=10.0, read=300.0, write=30.0, pool=30.0)
MAX_CONNECTIONS = 200


class OpenAIClient:
    """One provider. Transient failures are tried again a few times, with jitter."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str = "",
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout: httpx.Timeout = TIMEOUT,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        self._name = name
        headers = {"content-type": "application/json"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._http = httpx.AsyncClient(
            headers=headers, timeout=timeout, transport=transport or _transport()
        )
        self._backoff = wait_random_exponential(multiplier=backoff_s, max=MAX_BACKOFF_S)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """Answer once. Raises the errors of ``llm.errors``."""
        attempts = AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS if request.retries else 1),
            wait=self._pause_s,
            retry=retry_if_exception(_worth_another_try),
            reraise=True,
        )
        return await attempts(self._chat_once, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _chat_once(self, request: ChatRequest) -> ChatResponse:
        model = f"{self._name}/{request.model}"
        body = orjson.dumps(completions.request_body(request))
        try:
            reply = await self._http.post(self._url, content=body)
        except httpx.TimeoutException as error:
            raise ModelUnavailable(f"{model}: no answer in time", model=model) from error
        except httpx.HTTPError as error:
            reason = f"{model}: {type(error).__name__}: {error}"
            raise ModelUnavailable(reason, model=model) from error
        return self._read(reply, request, model)

    def _read(self, reply: httpx.Response, request: ChatRequest, model: str) -> ChatResponse:
        try:
            payload = orjson.loads(reply.content)
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


def _transport() -> AiohttpTransport:
    """aiohttp below httpx: a quarter of the CPU of httpx's own transport.

    The session is ours because httpx reads no proxy from the environment for a given transport.
    """
    context = httpx.create_ssl_context()

    # Without a proxy to look up, asking for it costs each call two hops to a thread (measured:
    # 2.4 ms of CPU a call instead of 0.85).
    proxied = bool(getproxies())

    def session() -> ClientSession:
        connector = TCPConnector(limit=MAX_CONNECTIONS, ssl=context)
        return ClientSession(connector=connector, trust_env=proxied)

    return AiohttpTransport(verify=context, client=session)


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
    return OpenAIClient(name, provider.base_url or DEFAULT_BASE_URL, _api_key(name, provider))


def _api_key(name: str, provider: ProviderSettings) -> str:
    if provider.api_key_env:
        key = os.environ.get(provider.api_key_env, "").strip()
        if not key:
            raise ConfigError(f"providers.{name}: {provider.api_key_env} is not set")
        return key
    if provider.api_key_file:
        try:
            return Path(provider.api_key_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(
                f"providers.{name}.api_key_file: {provider.api_key_file}: {error.strerror}"
            ) from error
    return ""
