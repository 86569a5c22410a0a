"""Tool ``web_search``: asks the configured search service."""

import time
from functools import cached_property
from typing import Any

import httpx
from pydantic import ValidationError

from agent_worker.tool import Tool, ToolContext, ToolError, tool
from agent_worker.web.searches import MAX_COUNT, MAX_QUERY_CHARACTERS, SERVICES, Hit, Query
from agent_worker.web.untrusted import mark
from posthouse.egress.http import HttpEgress
from posthouse.egress.targets import Answer, Refused, Request
from posthouse.errors import ConfigError, PosthouseError
from posthouse.secrets import read_secret
from posthouse.settings import Settings, WebSearchSettings

TOOL_TIMEOUT_S = 30.0
MAX_BYTES = 2 * 1024 * 1024
DEFAULT_COUNT = 5

NOT_CONFIGURED = (
    "web search is not configured. The operator can set web_search.provider in posthouse.yaml "
    "to searxng, brave or tavily. Pages whose address is known can be read with fetch."
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "what to look for",
            "minLength": 1,
            "maxLength": MAX_QUERY_CHARACTERS,
        },
        "count": {
            "type": "integer",
            "description": f"how many results; default {DEFAULT_COUNT}",
            "minimum": 1,
            "maximum": MAX_COUNT,
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


class WebSearch:
    """Asks one service. Redirects are failures: the key is for nobody else."""

    def __init__(self, name: str, base_url: str = "", key: str = "") -> None:
        self._name = name
        self._service = SERVICES[name]
        self._base_url = base_url or self._service.base_url
        self._key = key
        # Fails now for an address that cannot be called.
        self._request("", 1)

    async def __call__(self, ctx: ToolContext, input: dict[str, Any]) -> str:
        """The results. Raises ToolError."""
        count = input.get("count", DEFAULT_COUNT)
        hits = self._read(await self._answer(self._request(input["query"], count)))
        if not hits:
            return "Nothing was found. Other or fewer words may help."
        shown = (f"{n}. {hit.shown()}" for n, hit in enumerate(hits[:count], 1))
        return mark("\n".join(shown), f"a web search ({self._name})")

    @cached_property
    def _egress(self) -> HttpEgress:
        return HttpEgress()

    def _request(self, text: str, count: int) -> Request:
        return self._service.ask(Query(text, count, self._base_url, self._key))

    async def _answer(self, request: Request) -> Answer:
        try:
            answer = await self._egress.ask(request, MAX_BYTES)
        except PosthouseError as error:
            raise ToolError(f"the search failed: {error.message}.") from error
        if answer.status != 200:
            raise ToolError(f"the search failed: {self._name} answered {self._why(answer)}.")
        return answer

    def _why(self, answer: Answer) -> str:
        reason = self._service.failures.get(answer.status, "")
        pause_s = answer.retry_after_s(time.time())
        later = f"again in {pause_s:.0f} s" if pause_s else ""
        return ", ".join(filter(None, (str(answer.status), reason, later)))

    def _read(self, answer: Answer) -> tuple[Hit, ...]:
        try:
            return self._service.hits.model_validate_json(answer.body).results
        except ValidationError as error:
            raise ToolError(f"the search failed: {self._name} sent no list of results.") from error


async def not_configured(ctx: ToolContext, input: dict[str, Any]) -> str:
    """Stands in, so that a user who wants a search hears why there is none."""
    raise ToolError(NOT_CONFIGURED)


def configured(settings: WebSearchSettings) -> WebSearch:
    """The service that the settings name. Raises ConfigError that names the key."""
    name, service = settings.provider, SERVICES[settings.provider]
    key = read_secret("web_search.api_key", env=settings.api_key_env, file=settings.api_key_file)
    if service.needs_key and not key:
        raise ConfigError(f"web_search.api_key_env: name the variable with the key of {name}")
    if not (settings.base_url or service.base_url):
        raise ConfigError(f"web_search.base_url: say where your {name} is")
    try:
        return WebSearch(name, settings.base_url, key)
    except (Refused, httpx.InvalidURL) as error:
        raise ConfigError(f"web_search.base_url: {error}") from error


def tools(settings: Settings) -> list[Tool]:
    """What this file adds."""
    found = configured(settings.web_search) if settings.web_search.provider else not_configured
    description = "Searches the web: titles, addresses and snippets. Read pages with fetch."
    return [tool("web_search", description, SCHEMA, access="read", timeout_s=TOOL_TIMEOUT_S)(found)]
