"""Tool ``fetch``: reads a web page, JSON or plain text, as Markdown or as it is."""

import asyncio
import re
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import httpx

from agent_worker.tool import Tool, ToolContext, ToolError, tool
from agent_worker.web.pages import Page, read_page
from agent_worker.web.untrusted import mark
from posthouse.egress.http import HttpEgress
from posthouse.egress.redirects import Arrival, follow
from posthouse.egress.targets import Refused, Request, Target
from posthouse.errors import ConfigError, PosthouseError
from posthouse.settings import Settings

# With everything: names, redirects, the body.
LOAD_TIMEOUT_S = 25.0
ANSWER_TIMEOUT_S = 15.0
TOOL_TIMEOUT_S = 45.0
MAX_BYTES = 2 * 1024 * 1024
# What the engine leaves whole of a result, less the lines around it.
MAX_CHARACTERS = 18_000
DEFAULT_CHARACTERS = 12_000
# Pages made to be slow must not take the threads that other tools wait for.
READING_THREADS = 2

HEADERS = {
    "accept": "text/html, application/xhtml+xml, application/json, text/plain, */*;q=0.5",
    "accept-language": "zh-CN, zh;q=0.9, en;q=0.8",
    # Without the first word many sites refuse.
    "user-agent": "Mozilla/5.0 (compatible; Posthouse)",
}


# No URL, no port, no network, no pattern; an IPv6 address has two colons at least.
_HOST = re.compile(r"[^\s/*@:\[\]]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "beginning with https:// or http://"},
        "start": {
            "type": "integer",
            "description": "first character to show, where a page was cut; default 0",
            "minimum": 0,
        },
        "max_chars": {
            "type": "integer",
            "description": f"how many characters to show; default {DEFAULT_CHARACTERS}",
            "minimum": 1,
            "maximum": MAX_CHARACTERS,
        },
    },
    "required": ["url"],
    "additionalProperties": False,
}


class Fetch:
    """Loads and reads; only hosts of ``allow_private`` may have private addresses."""

    def __init__(
        self,
        allow_private: Collection[str] = (),
        make_egress: Callable[[], HttpEgress] = HttpEgress,
    ) -> None:
        self._allow_private = allow_private
        self._make_egress = make_egress
        self._threads = ThreadPoolExecutor(READING_THREADS, "fetch")

    async def __call__(self, ctx: ToolContext, input: dict[str, Any]) -> str:
        """The part of the page that is asked for. Raises ToolError."""
        try:
            url, answer = await self._load(input["url"].strip())
        except TimeoutError as error:
            raise ToolError(f"the page did not come within {LOAD_TIMEOUT_S:g} s.") from error
        except Refused as error:
            raise ToolError(f"{error.message}.{_permission(error)}") from error
        except PosthouseError as error:
            raise ToolError(f"{error.message}.") from error
        if answer.status >= 400:
            raise ToolError(f"the server answered {answer.status} for {url}.")
        kind = answer.headers.get("content-type", "")
        loop = asyncio.get_running_loop()
        page = await loop.run_in_executor(self._threads, read_page, answer.body, kind, url)
        start, wanted = input.get("start", 0), input.get("max_chars", DEFAULT_CHARACTERS)
        return _shown(page._replace(whole=page.whole and answer.whole), url, start, wanted)

    async def _load(self, url: str) -> Arrival:
        request = Request(self._parse(url), HEADERS)
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            return await follow(self._egress, request, self._parse, MAX_BYTES)

    @cached_property
    def _egress(self) -> HttpEgress:
        return self._make_egress()

    def _parse(self, url: str) -> Target:
        return Target.parse(
            url,
            allow_private=is_allowed(url, self._allow_private),
            allow_http=True,
            timeout_s=ANSWER_TIMEOUT_S,
        )


def is_allowed(url: str, allowed: Collection[str]) -> bool:
    """True when ``allowed`` has the host, or a domain above it, written as ``.example.org``."""
    try:
        host = httpx.URL(url).host.rstrip(".")
    except httpx.InvalidURL:
        return False
    return any(
        host.endswith(entry) if entry.startswith(".") else host == entry
        for entry in map(str.lower, allowed)
    )


def _permission(error: Refused) -> str:
    private = "private" in error.details
    return " The operator can permit hosts in fetch.allow_private." if private else ""


def _shown(page: Page, url: str, start: int, wanted: int) -> str:
    end, total = start + wanted, len(page.text)
    if start and start >= total:
        raise ToolError(f"the page has {total:,} characters only.")
    title = f"# {page.title}\n\n" if page.title and not start else ""
    notes = []
    if end < total:
        notes.append(f"Cut: {total - end:,} more characters. Go on with start={end}.")
    if not page.whole:
        notes.append("The page is too long to be read to its end; this is its beginning.")
    return "\n".join([mark(title + (page.text[start:end] or "(no text)"), url), *notes])


def build(fetch: Fetch) -> Tool:
    """The tool around it."""
    description = "Reads a web page as Markdown, or JSON and plain text as they are."
    return tool("fetch", description, SCHEMA, access="read", timeout_s=TOOL_TIMEOUT_S)(fetch)


def tools(settings: Settings) -> list[Tool]:
    """What this file adds. Raises ConfigError."""
    hosts = settings.fetch.allow_private
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"fetch.allow_private: {host!r}: write a host as wiki.example.org or 10.1.2.3, "
                "or .example.org for all names below it"
            )
    return [build(Fetch(hosts))]
