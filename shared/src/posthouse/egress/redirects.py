"""Redirects, followed by hand: each hop is a target of its own, parsed, resolved and checked."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

import httpx

from posthouse.egress.targets import Answer, Refused, Request, Target
from posthouse.errors import PermanentError

MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Another origin gets these alone: whatever else a caller sends may be a secret of the first one.
_FOR_ANYBODY = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})

ParseTarget = Callable[[str], Target]


class TooManyRedirects(PermanentError):
    """The server sends from one address to the next without end."""

    code = "egress_redirects"


class Asks(Protocol):
    """See HttpEgress."""

    async def ask(self, request: Request, max_bytes: int) -> Answer: ...


class Arrival(NamedTuple):
    """An answer that is no redirect, and where it came from."""

    url: str
    answer: Answer


async def follow(egress: Asks, request: Request, parse: ParseTarget, max_bytes: int) -> Arrival:
    """Get a page, through up to five redirects; ``parse`` decides where each may lead.

    The time limit of a target holds for its hop alone. Raises TooManyRedirects and as
    ``HttpEgress.ask``.
    """
    for _ in range(MAX_REDIRECTS + 1):
        answer = await egress.ask(request, max_bytes)
        location = answer.headers.get("location", "")
        if answer.status not in REDIRECTS or not location:
            return Arrival(str(request.target.url), answer)
        request = _next(request, _parse(parse, request.target.url, location))
    raise TooManyRedirects(f"more than {MAX_REDIRECTS} redirects, the last to {location[:200]!r}")


def _parse(parse: ParseTarget, here: httpx.URL, location: str) -> Target:
    try:
        url = str(here.join(location))
    except (httpx.InvalidURL, ValueError) as error:
        raise Refused(f"it redirects to what is no URL: {location[:200]!r}") from error
    try:
        return parse(url)
    except Refused as error:
        raise Refused(f"it redirects to {url[:200]}: {error.message}", **error.details) from error


def _next(request: Request, target: Target) -> Request:
    if _origin(target.url) == _origin(request.target.url):
        return replace(request, target=target)
    headers = {name: value for name, value in request.headers.items() if name in _FOR_ANYBODY}
    return replace(request, target=target, headers=headers)


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    port = url.port or (443 if url.scheme == "https" else 80)
    return url.scheme, url.host, port
