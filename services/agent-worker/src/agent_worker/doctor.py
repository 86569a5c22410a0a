"""Examines the models for ``posthouse doctor``: asks each model of a tier one short question."""

import asyncio
from dataclasses import replace

from agent_worker.llm import errors
from agent_worker.llm.client import ChatRequest
from agent_worker.llm.routing import RoutedClient, build_client
from posthouse.doctor import Finding, Target, failed, ok, warning
from posthouse.errors import ConfigError, PosthouseError
from posthouse.settings import ProviderSettings, Settings, TierSettings

TIMEOUT_S = 10.0
QUESTION = ChatRequest(
    messages=[{"role": "user", "content": "Say ok."}], max_tokens=16, retries=False
)
NOT_FOUND = 404


async def examine(target: Target) -> list[Finding]:
    """Every model that a tier names, all at once."""
    tiers: dict[str, str] = {}
    for tier in TierSettings.model_fields:
        for model in getattr(target.settings.tiers, tier):
            tiers.setdefault(model, tier)
    asked = (_model(model, tier, target.settings) for model, tier in tiers.items())
    return list(await asyncio.gather(*asked))


async def _model(model: str, tier: str, settings: Settings) -> Finding:
    provider = model.partition("/")[0]
    try:
        client = build_client(_alone(model, tier, settings))
    except ConfigError as error:
        return failed(_name(model), error.message, _configure(provider, tier, settings))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await _ask(client, model)
    except TimeoutError:
        text = f"no answer in {TIMEOUT_S:g} s"
        return failed(_name(model), text, _unreachable(provider))
    except PosthouseError as error:
        return _judge(error, model, tier, settings.providers[provider])
    finally:
        await client.aclose()
    return ok(_name(model), "answers")


async def _ask(client: RoutedClient, model: str) -> None:
    question = replace(QUESTION, model=model)
    try:
        await client.chat(question)
    except errors.BadModelRequest as error:
        if "max_tokens" not in error.message:
            raise
        # Some models take no such limit; turns do not send it either.
        await client.chat(replace(question, max_tokens=None))


def _judge(error: PosthouseError, model: str, tier: str, provider: ProviderSettings) -> Finding:
    name, _, own = model.partition("/")
    says = error.message.removeprefix(f"{model}: ")
    match error:
        case errors.ModelAuth():
            return failed(
                _name(model), f"the key is not accepted: {says}", _new_key(name, provider)
            )
        case errors.QuotaExhausted():
            remedy = f"add credit at the provider, or name another model in tiers.{tier}"
            return failed(_name(model), f"nothing left to spend: {says}", remedy)
        case errors.RateLimited():
            remedy = f"wait, or name another model behind it in tiers.{tier}"
            return warning(_name(model), f"too many requests now: {says}", remedy)
        case errors.IncompleteAnswer():
            remedy = (
                f"check providers.{name}.base_url: it must be the address above /chat/completions"
            )
            return failed(_name(model), f"the answer cannot be used: {says}", remedy)
        case errors.ModelUnavailable():
            return failed(_name(model), f"cannot be reached: {says}", _unreachable(name))
        case _ if error.details.get("status") == NOT_FOUND or "model_not_found" in says:
            remedy = (
                f"correct {own!r} in tiers.{tier} and providers.{name}.models; if the name is "
                f"right, correct providers.{name}.base_url"
            )
            return failed(_name(model), f"the server does not know it: {says}", remedy)
        case _:
            remedy = f"correct providers.{name}, or name another model in tiers.{tier}"
            return failed(_name(model), f"the request is refused: {says}", remedy)


def _alone(model: str, tier: str, settings: Settings) -> Settings:
    """The configuration with this model only: another provider must not hide what it lacks."""
    name = model.partition("/")[0]
    known = settings.providers
    update = {
        "tiers": TierSettings(**{tier: (model,)}),
        "providers": {name: known[name]} if name in known else known,
    }
    return settings.model_copy(update=update)


def _configure(name: str, tier: str, settings: Settings) -> str:
    provider = settings.providers.get(name)
    if provider is not None and provider.api_key_env:
        variable = provider.api_key_env
        return (
            f"run `export {variable}=<your key>` here and where the workers start, or correct "
            f"providers.{name}.api_key_env"
        )
    return f"correct tiers.{tier} or providers.{name} in posthouse.yaml"


def _new_key(name: str, provider: ProviderSettings) -> str:
    if provider.api_key_env:
        return f"put a valid key into ${provider.api_key_env} (providers.{name}.api_key_env)"
    if provider.api_key_file:
        return f"put a valid key into {provider.api_key_file} (providers.{name}.api_key_file)"
    return f"name the variable that holds the key in providers.{name}.api_key_env"


def _unreachable(name: str) -> str:
    return f"start that server, or correct providers.{name}.base_url"


def _name(model: str) -> str:
    return f"model {model}"
