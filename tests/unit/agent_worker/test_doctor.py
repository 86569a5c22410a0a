"""The examination of models, against a real HTTP server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import Response

from agent_worker import doctor
from posthouse.doctor import Finding, Target
from posthouse.embedded.ports import free_port
from posthouse.settings import ProviderSettings, Settings, TierSettings
from tests.support.model_server import ModelServer, completion, refusal, serving

ANSWER = completion({"role": "assistant", "content": "ok"})
LIMITED = refusal(429, {"message": "slow down"}, retry_after="30")
KEY = "ACME_KEY"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    """The server of the provider ``acme``; its key is set."""
    monkeypatch.setenv(KEY, "secret-1")
    async with serving() as model:
        yield model


async def examine(base_url: str, *models: str, **provider: str) -> list[Finding]:
    """What is found for models of the tier ``standard``."""
    provider = {"kind": "openai", "base_url": base_url, "api_key_env": KEY} | provider
    settings = Settings(
        providers={"acme": ProviderSettings.model_validate(provider)},
        tiers=TierSettings(standard=models or ("acme/m-1",)),
    )
    found = await doctor.examine(Target(settings, servers=False))
    assert "secret-1" not in str(found)
    return found


async def test_a_model_that_answers(server: ModelServer) -> None:
    server.will(ANSWER)
    assert await examine(server.base_url) == [Finding("model acme/m-1", "ok", "answers")]
    assert server.headers[0]["authorization"] == "Bearer secret-1"
    assert server.bodies[0]["max_tokens"] <= 16
    assert "tools" not in server.bodies[0]


async def test_a_model_in_two_tiers_is_asked_once(server: ModelServer) -> None:
    server.will(ANSWER)
    provider = ProviderSettings(kind="openai", base_url=server.base_url)
    tiers = TierSettings(economy=("acme/m-1",), premium=("acme/m-1", "acme/m-2"))
    found = await doctor.examine(Target(Settings(providers={"acme": provider}, tiers=tiers)))
    assert [finding.name for finding in found] == ["model acme/m-1", "model acme/m-2"]
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "state", "says", "remedy"),
    [
        (refusal(401, "no"), "failed", "the key is not accepted", f"${KEY}"),
        (
            refusal(404, {"code": "model_not_found", "message": "no m-1"}),
            "failed",
            "the server does not know it",
            "correct 'm-1' in tiers.standard",
        ),
        (LIMITED, "warning", "too many requests now", "tiers.standard"),
        (
            refusal(429, {"code": "insufficient_quota", "message": "empty"}),
            "failed",
            "nothing left to spend",
            "add credit",
        ),
        (refusal(503, "down"), "failed", "cannot be reached", "providers.acme.base_url"),
        (refusal(400, "odd"), "failed", "the request is refused", "providers.acme"),
        (
            Response("<html>"),
            "failed",
            "the answer cannot be used",
            "providers.acme.base_url",
        ),
    ],
    ids=["key", "unknown", "limit", "quota", "down", "refused", "no api"],
)
async def test_what_a_server_refuses(
    server: ModelServer, answer: Response, state: str, says: str, remedy: str
) -> None:
    server.will(answer)
    (finding,) = await examine(server.base_url)
    assert (finding.name, finding.state) == ("model acme/m-1", state)
    assert finding.text.startswith(says)
    assert remedy in finding.remedy
    assert len(server.bodies) == 1
    server.will(ANSWER)
    (mended,) = await examine(server.base_url)
    assert mended.state == "ok"


async def test_a_model_that_takes_no_limit(server: ModelServer) -> None:
    server.will(refusal(400, {"message": "unsupported parameter: max_tokens"}), ANSWER)
    (finding,) = await examine(server.base_url)
    assert finding.state == "ok"


async def test_nobody_listens(server: ModelServer) -> None:
    (finding,) = await examine(f"http://127.0.0.1:{free_port()}/v1")
    assert finding.text.startswith("cannot be reached")
    assert "start that server, or correct providers.acme.base_url" in finding.remedy


async def test_a_key_that_is_not_set(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.will(ANSWER)
    monkeypatch.delenv(KEY)
    (finding,) = await examine(server.base_url)
    assert (finding.state, finding.text) == (
        "failed",
        f"providers.acme.api_key_env: the environment variable {KEY} is not set or empty",
    )
    assert f"`export {KEY}=<your key>`" in finding.remedy
    assert "providers.acme.api_key_env" in finding.remedy
    monkeypatch.setenv(KEY, "secret-1")
    (mended,) = await examine(server.base_url)
    assert mended.state == "ok"


async def test_a_key_in_a_file(server: ModelServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    (finding,) = await examine(server.base_url, api_key_env="", api_key_file=str(file))
    assert str(file) in finding.text
    file.write_text("old")
    server.will(refusal(401, "no"))
    (finding,) = await examine(server.base_url, api_key_env="", api_key_file=str(file))
    assert "providers.acme.api_key_file" in finding.remedy


async def test_a_model_of_no_provider(server: ModelServer) -> None:
    server.will(ANSWER)
    good, bad = await examine(server.base_url, "acme/m-1", "other/m-1")
    assert good.state == "ok"
    assert "known providers: acme" in bad.text
    assert "tiers.standard" in bad.remedy


async def test_the_offline_model() -> None:
    (finding,) = await doctor.examine(
        Target(
            Settings(
                providers={"offline": ProviderSettings(kind="offline")},
                tiers=TierSettings(standard=("offline/rules-1",)),
            )
        )
    )
    assert finding.state == "ok"
    assert finding.text == "answers"


async def test_a_model_that_takes_too_long(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "TIMEOUT_S", 0.0)
    server.will(ANSWER)
    (finding,) = await examine(server.base_url)
    assert (finding.state, finding.text) == ("failed", "no answer in 0 s")
