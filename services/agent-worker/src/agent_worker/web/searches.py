"""The search services that can be configured: how each is asked, and what it answers."""

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import httpx
import orjson
from pydantic import AliasChoices, BaseModel, Field

from posthouse.egress.redirects import REDIRECTS
from posthouse.egress.targets import Request, Target

ANSWER_TIMEOUT_S = 15.0
# The most that Brave and Tavily give, and the longest query they take.
MAX_COUNT = 20
MAX_QUERY_CHARACTERS = 400
MAX_SNIPPET_CHARACTERS = 600

_BAD_KEY = "it does not take the key: see web_search.api_key_env in posthouse.yaml"
_MOVED = "it redirects: set web_search.base_url to where it is now"
_COMMON = dict.fromkeys(REDIRECTS, _MOVED) | {
    401: _BAD_KEY,
    403: _BAD_KEY,
    429: "too many searches for now",
}
_EMPHASIS = re.compile(r"</?(?:strong|b|em|mark)>", re.IGNORECASE)


class Hit(BaseModel):
    """One result."""

    title: str | None = None
    url: str | None = None
    snippet: str | None = Field(None, validation_alias=AliasChoices("content", "description"))

    def shown(self) -> str:
        """Title, address and snippet, each on a line."""
        lines = (_plain(self.title) or "(no title)", _plain(self.url), _plain(self.snippet))
        return "\n   ".join(line[:MAX_SNIPPET_CHARACTERS] for line in lines if line)


class Hits(BaseModel):
    """What SearXNG and Tavily answer."""

    results: tuple[Hit, ...]


class BraveHits(BaseModel):
    """What Brave answers; ``web`` is missing when nothing was found."""

    type: str
    web: Hits | None = None

    @property
    def results(self) -> tuple[Hit, ...]:
        """The results."""
        return self.web.results if self.web else ()


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked, and of whom."""

    text: str
    count: int
    base_url: str
    key: str

    def target(self, path: str, **parameters: str) -> Target:
        """The operator chose the address, so it may be private. Raises Refused."""
        url = httpx.URL(self.base_url.rstrip("/") + path, params=parameters)
        return Target.parse(str(url), allow_private=True, timeout_s=ANSWER_TIMEOUT_S)


def _ask_searxng(query: Query) -> Request:
    return Request(query.target("/search", q=query.text, format="json"))


def _ask_brave(query: Query) -> Request:
    target = query.target("/res/v1/web/search", q=query.text, count=str(query.count))
    return Request(target, {"x-subscription-token": query.key})


def _ask_tavily(query: Query) -> Request:
    headers = {"content-type": "application/json", "authorization": f"Bearer {query.key}"}
    body = orjson.dumps({"query": query.text, "max_results": query.count})
    return Request(query.target("/search"), headers, "POST", body)


class Service(NamedTuple):
    """How a search service is asked, what it answers, and what its own failures mean."""

    ask: Callable[[Query], Request]
    hits: type[Hits] | type[BraveHits]
    base_url: str = ""
    needs_key: bool = True
    failures: Mapping[int, str] = _COMMON


SERVICES = {
    "searxng": Service(
        _ask_searxng,
        Hits,
        needs_key=False,
        failures=_COMMON | {403: "its settings.yml must list json under search.formats"},
    ),
    "brave": Service(
        _ask_brave,
        BraveHits,
        "https://api.search.brave.com",
        failures=_COMMON | {422: "it does not take the key or the query"},
    ),
    "tavily": Service(
        _ask_tavily,
        Hits,
        "https://api.tavily.com",
        failures=_COMMON | {432: "the plan is used up", 433: "the pay-as-you-go limit is reached"},
    ),
}


def _plain(text: str | None) -> str:
    """One line without markup; Brave sets matches in <strong>."""
    return " ".join(html.unescape(_EMPHASIS.sub("", text or "")).split())
