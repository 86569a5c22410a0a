"""Chooses the model of a call: the one that is named, else the first of its tier that works.

A provider's ``kind`` is the name of a module of this package, or of an entry point of the group
``posthouse.providers``, that has ``build(name, provider_settings) -> LLMClient``.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import replace

import structlog

from agent_worker import llm
from agent_worker.llm.client import (
    Answering,
    ChatRequest,
    ChatResponse,
    LLMClient,
    Tier,
)
from posthouse import discovery
from posthouse.errors import ConfigError, TransientError
from posthouse.settings import ProviderSettings, Settings, TierSettings

log = structlog.get_logger(__name__)

ENTRY_POINTS = "posthouse.providers"

UNKNOWN_WINDOW = 32_000

Build = Callable[[str, ProviderSettings], LLMClient]


class RoutedClient:
    """All configured providers behind one client."""

    def __init__(
        self,
        clients: Mapping[str, LLMClient],
        tiers: TierSettings,
        windows: Mapping[str, int] | None = None,
    ) -> None:
        self._clients = clients
        self._tiers = tiers
        self._windows = windows or {}

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """Answer once. In a tier, a model that fails in passing is followed by the next one.

        Raises ConfigError for a model of no provider, else the errors of ``llm.errors``.
        """
        *others, last = self._candidates(request)
        for model in others:
            try:
                return await self._chat(model, request)
            except TransientError as error:
                log.warning("model.next", model=model, code=error.code)
        return await self._chat(last, request)

    async def chat_stream(self, request: ChatRequest) -> Answering:
        """Answer piece by piece; another model follows only before the first piece.

        Raises as ``chat``.
        """
        candidates = self._candidates(request)
        for number, model in enumerate(candidates, 1):
            said = False
            try:
                async with aclosing(self._stream(model, request)) as pieces:
                    async for piece in pieces:
                        said = True
                        yield piece
                return
            except TransientError as error:
                if said or number == len(candidates):
                    raise
                log.warning("model.next", model=model, code=error.code)

    def context_tokens(self, model: str, tier: Tier) -> int:
        """The smallest window, in tokens, of the models that may answer such a request."""
        models = (model,) if model else getattr(self._tiers, tier)
        # A model of no provider has none; the call itself says what is wrong.
        windows = [self._windows.get(m.partition("/")[0], UNKNOWN_WINDOW) for m in models]
        return min(windows, default=UNKNOWN_WINDOW)

    def check(self, model: str) -> None:
        """Raises ConfigError for a model of no provider."""
        self._client(model)

    async def aclose(self) -> None:
        """Close every provider's client."""
        for client in self._clients.values():
            await client.aclose()

    def _candidates(self, request: ChatRequest) -> tuple[str, ...]:
        if request.model:
            return (request.model,)
        tier = request.model_hints.tier
        models: tuple[str, ...] = getattr(self._tiers, tier)
        if not models:
            raise ConfigError(f"tiers.{tier} names no model")
        return models

    async def _chat(self, model: str, request: ChatRequest) -> ChatResponse:
        client, own = self._client(model)
        return replace(await client.chat(replace(request, model=own)), model=model)

    async def _stream(self, model: str, request: ChatRequest) -> Answering:
        client, own = self._client(model)
        async with aclosing(client.chat_stream(replace(request, model=own))) as pieces:
            async for piece in pieces:
                yield replace(piece, model=model) if isinstance(piece, ChatResponse) else piece

    def _client(self, model: str) -> tuple[LLMClient, str]:
        """The provider's client, and its own name of the model."""
        provider, _, name = model.partition("/")
        if provider not in self._clients or not name:
            raise ConfigError(f"model {model!r}: write provider/model; {_known(self._clients)}")
        return self._clients[provider], name


def build_client(settings: Settings) -> RoutedClient:
    """The client for all configured providers.

    Raises ConfigError, naming the key, for an unknown kind, provider or model.
    """
    kinds: dict[str, Build] = dict(discovery.in_package(llm, "build"))
    kinds |= dict(discovery.in_entry_points(ENTRY_POINTS))
    for tier in TierSettings.model_fields:
        for model in getattr(settings.tiers, tier):
            _check(f"tiers.{tier}", model, settings.providers)
    clients = {}
    for name, provider in settings.providers.items():
        if provider.kind not in kinds:
            raise ConfigError(
                f"providers.{name}.kind: there is no {provider.kind!r}; use one of "
                f"{', '.join(sorted(kinds))}"
            )
        clients[name] = kinds[provider.kind](name, provider)
    windows = {name: provider.context_tokens for name, provider in settings.providers.items()}
    return RoutedClient(clients, settings.tiers, windows)


def _check(key: str, model: str, providers: Mapping[str, ProviderSettings]) -> None:
    name, _, own = model.partition("/")
    if name not in providers or not own:
        raise ConfigError(f"{key}: {model!r}: write provider/model; {_known(providers)}")
    models = providers[name].models
    if models and own not in models:
        raise ConfigError(f"{key}: {model!r}: provider {name} has {', '.join(models)}")


def _known(providers: Mapping[str, object]) -> str:
    return f"known providers: {', '.join(sorted(providers)) or 'none'}"
