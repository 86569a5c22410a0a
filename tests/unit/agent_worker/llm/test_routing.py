"""Which model answers."""

from typing import Any

import pytest

from agent_worker.llm.client import (
    Answering,
    ChatRequest,
    ChatResponse,
    ModelHints,
    TextDelta,
    Tier,
)
from agent_worker.llm.errors import ModelAuth, ModelUnavailable
from agent_worker.llm.routing import UNKNOWN_WINDOW, RoutedClient, build_client
from posthouse.errors import ConfigError, PosthouseError
from posthouse.settings import Settings, TierSettings, load


class Provider:
    """Answers with the model's own name, or fails."""

    def __init__(self, failure: PosthouseError | None = None, fails_at: int = 0) -> None:
        self.failure = failure
        self.fails_at = fails_at
        self.asked: list[str] = []
        self.closed = False

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """Answer."""
        self.asked.append(request.model)
        if self.failure:
            raise self.failure
        return ChatResponse(message={"role": "assistant", "content": request.model})

    async def chat_stream(self, request: ChatRequest) -> Answering:
        """Answer in two pieces; a failure comes in place of piece number ``fails_at``."""
        self.asked.append(request.model)
        for number, piece in enumerate(("he", "llo")):
            if self.failure and number == self.fails_at:
                raise self.failure
            yield TextDelta(piece)
        yield ChatResponse(message={"role": "assistant", "content": "hello"})

    async def aclose(self) -> None:
        """Close."""
        self.closed = True


TIERS = TierSettings(economy=("a/small",), standard=("a/mid", "b/mid"))


def asking(model: str = "", tier: Tier = "standard") -> ChatRequest:
    return ChatRequest(messages=[], model=model, model_hints=ModelHints(tier=tier))


async def test_the_tier_chooses_standard_by_default() -> None:
    routed = RoutedClient({"a": Provider(), "b": Provider()}, TIERS)

    assert (await routed.chat(ChatRequest(messages=[]))).model == "a/mid"
    assert (await routed.chat(asking(tier="economy"))).model == "a/small"


async def test_a_named_model_overrides_the_tier_and_may_contain_slashes() -> None:
    provider = Provider()
    routed = RoutedClient({"b": provider}, TIERS)

    response = await routed.chat(asking("b/org/model-1"))

    assert response.model == "b/org/model-1"
    assert provider.asked == ["org/model-1"]


async def test_the_next_of_a_tier_answers_when_one_fails_in_passing() -> None:
    routed = RoutedClient({"a": Provider(ModelUnavailable("down")), "b": Provider()}, TIERS)

    assert (await routed.chat(asking())).model == "b/mid"


async def test_a_permanent_failure_is_not_hidden_by_the_next_model() -> None:
    other = Provider()
    routed = RoutedClient({"a": Provider(ModelAuth("key")), "b": other}, TIERS)

    with pytest.raises(ModelAuth):
        await routed.chat(asking())
    assert other.asked == []


async def test_the_last_failure_of_a_tier_is_raised() -> None:
    down = Provider(ModelUnavailable("down"))
    routed = RoutedClient({"a": down, "b": down}, TIERS)

    with pytest.raises(ModelUnavailable):
        await routed.chat(asking())
    assert down.asked == ["mid", "mid"]


@pytest.mark.parametrize("model", ["c/x", "nothing", "a/"])
async def test_an_unknown_model_names_the_providers(model: str) -> None:
    routed = RoutedClient({"a": Provider(), "b": Provider()}, TIERS)

    with pytest.raises(ConfigError, match="known providers: a, b"):
        await routed.chat(asking(model))


async def test_an_empty_tier_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"tiers\.premium"):
        await RoutedClient({"a": Provider()}, TIERS).chat(asking(tier="premium"))


async def test_closes_every_provider() -> None:
    providers = Provider(), Provider()

    await RoutedClient(dict(zip("ab", providers, strict=True)), TIERS).aclose()

    assert all(provider.closed for provider in providers)


def settings(**given: Any) -> Settings:
    return Settings(**given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"providers": {"x": {"kind": "psychic"}}}, r"providers\.x\.kind.*'psychic'.*openai"),
        ({"tiers": {"standard": ["x/m"]}}, r"tiers\.standard: 'x/m'"),
        (
            {
                "providers": {"x": {"kind": "openai", "models": ["m-1", "m-2"]}},
                "tiers": {"economy": ["x/m-3"]},
            },
            r"tiers\.economy: 'x/m-3': provider x has m-1, m-2",
        ),
    ],
)
async def test_a_configuration_that_cannot_work_names_its_key(
    given: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        build_client(settings(**given))


async def test_the_default_configuration_answers_without_a_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    client = build_client(load())

    response = await client.chat(
        ChatRequest(messages=[{"role": "user", "content": "hello"}], tools=[])
    )

    assert "not a language model" in response.message["content"]
    await client.aclose()


async def streamed(routed: RoutedClient, request: ChatRequest) -> tuple[str, list[ChatResponse]]:
    """The text that came, and the responses."""
    pieces = [piece async for piece in routed.chat_stream(request)]
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    return text, [piece for piece in pieces if isinstance(piece, ChatResponse)]


async def test_a_stream_names_its_model() -> None:
    text, (response,) = await streamed(RoutedClient({"a": Provider()}, TIERS), asking("a/x"))

    assert (text, response.model) == ("hello", "a/x")


async def test_a_stream_fails_over_before_its_first_piece() -> None:
    routed = RoutedClient({"a": Provider(ModelUnavailable("down")), "b": Provider()}, TIERS)

    text, (response,) = await streamed(routed, asking())

    assert (text, response.model) == ("hello", "b/mid")


async def test_what_was_said_is_not_said_again_by_another_model() -> None:
    second = Provider()
    routed = RoutedClient({"a": Provider(ModelUnavailable("down"), 1), "b": second}, TIERS)

    with pytest.raises(ModelUnavailable):
        await streamed(routed, asking())

    assert second.asked == []


async def test_a_stream_of_no_provider_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="write provider/model"):
        await streamed(RoutedClient({}, TIERS), asking("nobody/x"))


def test_the_window_is_that_of_the_smallest_model_that_may_answer() -> None:
    tiers = TierSettings(economy=("a/small",), standard=("a/mid", "b/mid"))
    routed = RoutedClient({"a": Provider(), "b": Provider()}, tiers, {"a": 9000, "b": 5000})

    assert routed.context_tokens("", "economy") == 9000
    assert routed.context_tokens("", "standard") == 5000
    assert routed.context_tokens("a/other", "standard") == 9000
    assert routed.context_tokens("nobody/x", "standard") == UNKNOWN_WINDOW
    assert routed.context_tokens("", "premium") == UNKNOWN_WINDOW
