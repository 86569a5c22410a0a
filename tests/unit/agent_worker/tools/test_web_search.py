"""The tool ``web_search`` as a model uses it, against services as they are documented."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from agent_worker.registry import ToolRegistry, load_tools
from agent_worker.tool import FunctionTool, Tool
from agent_worker.tools.web_search import tools
from agent_worker.web.searches import Hit
from posthouse.errors import ConfigError
from posthouse.settings import Settings, WebSearchSettings
from tests.support.processes import free_port
from tests.support.search_services import KEY, serve_brave, serve_searxng, serve_tavily
from tests.support.web import PRIVATE, WebServer, serving
from tests.unit.agent_worker.using import use

SERVE = {"searxng": serve_searxng, "brave": serve_brave, "tavily": serve_tavily}
SNIPPET = {"searxng": "content", "brave": "description", "tavily": "content"}


@pytest.fixture
async def web(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebServer]:
    monkeypatch.setenv("SEARCH_KEY", KEY)
    async with serving() as running:
        yield running


def configured(provider: str, port: int | None = None, **more: Any) -> FunctionTool:
    given: dict[str, Any] = {"provider": provider, **more}
    if provider != "searxng":
        given.setdefault("api_key_env", "SEARCH_KEY")
    if port is not None:
        given["base_url"] = f"http://{PRIVATE}:{port}/"
    (made,) = tools(Settings(web_search=WebSearchSettings(**given)))
    assert isinstance(made, FunctionTool)
    return made


def hits(provider: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "title": f"驿站 {n}",
            "url": f"https://{n}.test/",
            SNIPPET[provider]: f"A <strong>post\n house</strong> &amp; {n}",
            "score": 0.5,
        }
        for n in range(1, count + 1)
    ]


@pytest.mark.parametrize("provider", SERVE)
async def test_results(web: WebServer, provider: str) -> None:
    SERVE[provider](web, hits(provider, 8))
    found = await use(configured(provider, web.port), {"query": "驿站 历史", "count": 2})
    head, fence, *lines, last = found.split("\n")
    assert head.startswith(f"From a web search ({provider}). ")
    assert fence == last
    assert lines == [
        "1. 驿站 1",
        "   https://1.test/",
        "   A post house & 1",
        "2. 驿站 2",
        "   https://2.test/",
        "   A post house & 2",
    ]


@pytest.mark.parametrize("provider", SERVE)
async def test_nothing_found(web: WebServer, provider: str) -> None:
    SERVE[provider](web, [])
    found = await use(configured(provider, web.port), {"query": "zzz"})
    assert found.startswith("Nothing was found.")


@pytest.mark.parametrize("provider", SERVE)
async def test_five_results_by_default(web: WebServer, provider: str) -> None:
    SERVE[provider](web, hits(provider, 8))
    found = await use(configured(provider, web.port), {"query": "x"})
    assert "\n5. " in found
    assert "\n6. " not in found


async def test_what_is_asked(web: WebServer) -> None:
    for provider in SERVE:
        SERVE[provider](web, [])
        await use(configured(provider, web.port), {"query": "a&b=驿站 +", "count": 3})
    searxng, brave, tavily = web.seen
    assert (searxng.path, searxng.query) == ("/search", {"q": "a&b=驿站 +", "format": "json"})
    assert (brave.path, brave.query) == ("/res/v1/web/search", {"q": "a&b=驿站 +", "count": "3"})
    assert '"max_results":3' in tavily.body.decode()


@pytest.mark.parametrize(
    ("provider", "answer", "error"),
    [
        ("tavily", JSONResponse({"detail": {"error": "no"}}, 401), "401, it does not take the key"),
        ("brave", JSONResponse({"type": "ErrorResponse"}, 422), "422, it does not take the key"),
        ("searxng", PlainTextResponse("no", 403), "403, its settings.yml must list json"),
        ("searxng", PlainTextResponse("no", 429), "429, too many searches for now."),
        (
            "brave",
            JSONResponse({}, 429, {"retry-after": "7"}),
            "429, too many searches for now, again in 7 s.",
        ),
        ("tavily", JSONResponse({}, 432), "432, the plan is used up."),
        ("tavily", PlainTextResponse("oops", 500), "tavily answered 500."),
        ("searxng", RedirectResponse("https://x.test/"), "307, it redirects: set"),
        ("searxng", PlainTextResponse("<html>"), "searxng sent no list of results."),
        ("searxng", PlainTextResponse(""), "searxng sent no list of results."),
        ("searxng", JSONResponse([]), "searxng sent no list of results."),
        ("searxng", JSONResponse({"results": None}), "searxng sent no list of results."),
        ("searxng", JSONResponse({"results": [1]}), "searxng sent no list of results."),
        ("tavily", JSONResponse({"error": "x"}), "tavily sent no list of results."),
        ("brave", JSONResponse({"web": 1}), "brave sent no list of results."),
        ("brave", JSONResponse({}), "brave sent no list of results."),
        ("brave", PlainTextResponse("x", headers={"content-encoding": "br"}), "not asked for."),
    ],
)
async def test_failures_are_told(
    web: WebServer, provider: str, answer: Response, error: str
) -> None:
    web.answers |= {"/search": answer, "/res/v1/web/search": answer}
    found = await use(configured(provider, web.port), {"query": "x"})
    assert found.startswith("Error: the search failed: ")
    assert error in found
    assert KEY not in found


async def test_a_wrong_key(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("wrong", "wr\nong", "错误"):
        monkeypatch.setenv("SEARCH_KEY", key)
        for provider in ("brave", "tavily"):
            SERVE[provider](web, [])
            found = await use(configured(provider, web.port), {"query": "x"})
            assert found.startswith("Error: the search failed: ")
            assert key not in found
            assert "ong" not in found


async def test_nobody_listens() -> None:
    found = await use(configured("searxng", free_port()), {"query": "x"})
    assert found.startswith("Error: the search failed: 127.0.0.1 cannot be reached")


async def test_a_result_that_lacks_something(web: WebServer) -> None:
    serve_searxng(web, [{"url": "https://a.test/"}, {"title": None, "content": None, "url": "u"}])
    found = await use(configured("searxng", web.port), {"query": "x"})
    assert "1. (no title)\n   https://a.test/\n2. (no title)\n   u\n" in found


async def test_a_service_below_a_path(web: WebServer) -> None:
    web.answers["/searx/search"] = JSONResponse({"results": []})
    made = configured("searxng", None, base_url=f"http://{PRIVATE}:{web.port}/searx/")
    assert (await use(made, {"query": "x"})).startswith("Nothing")


@pytest.mark.parametrize("query", ["", "x" * 401])
async def test_a_query_has_a_length(query: str) -> None:
    found = await use(configured("searxng", 1), {"query": query})
    assert found.startswith("Error: the arguments do not fit web_search")


async def test_without_a_provider_it_says_so() -> None:
    found: Tool | None = load_tools(Settings()).get("web_search")
    assert isinstance(found, FunctionTool)
    told = await use(found, {"query": "x"})
    assert told.startswith("Error: web search is not configured. ")
    assert "web_search.provider" in told


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"provider": "searxng"}, "web_search.base_url: say where your searxng is"),
        ({"provider": "searxng", "base_url": "ftp://x"}, "web_search.base_url: the URL must begin"),
        ({"provider": "searxng", "base_url": "http://x:y"}, "web_search.base_url: "),
        ({"provider": "searxng", "base_url": "http://u:p@x"}, "must not hold a user"),
        ({"provider": "brave", "api_key_env": ""}, "web_search.api_key_env: name the variable"),
        ({"provider": "tavily", "api_key_env": "NO_KEY"}, "variable NO_KEY is not set"),
        ({"provider": "tavily", "api_key_env": "", "api_key_file": "/none"}, "api_key_file: /none"),
    ],
)
def test_what_cannot_be_used_is_told_at_the_start(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        configured(**given)


def test_the_public_services_need_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", KEY)
    for provider in ("brave", "tavily"):
        assert ToolRegistry([configured(provider)]).get("web_search")


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
def test_any_result_is_one_to_three_lines(title: str, url: str, content: str) -> None:
    hit = Hit.model_validate({"title": title, "url": url, "content": content})
    assert 1 <= len(hit.shown().split("\n")) <= 3
