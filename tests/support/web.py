"""Web servers in the test's own loop, and names that lead to them.

No test may reach the Internet, so one loopback address plays the part of a public one.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from posthouse.egress import targets
from posthouse.egress.addresses import IPAddress, is_public

PRIVATE = "127.0.0.1"
PUBLIC = "127.0.0.2"
"""Public for tests that call ``pretend``."""

NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that meet no TLS: reading the certificates of the system takes long."""

Answer = Response | Callable[[Request], Awaitable[Response]]


class _Server(uvicorn.Server):
    """Leaves the signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Seen:
    """A request that came in, at one of the two addresses."""

    address: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class WebServer:
    """Answers by path, 404 by default; the same port at a public and at a private address."""

    port: int
    answers: dict[str, Answer] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [request.path for request in self.seen]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request."""
        request = Request(scope, receive)
        path, query, headers = request.url.path, dict(request.query_params), dict(request.headers)
        address, body = scope["server"][0], await request.body()
        self.seen.append(Seen(address, request.method, path, query, headers, body))
        answer = self.answers.get(path, PlainTextResponse("no such page", 404))
        response = answer if isinstance(answer, Response) else await answer(request)
        await response(scope, receive, send)


@asynccontextmanager
async def serving() -> AsyncIterator[WebServer]:
    """A server on a free port."""
    with socket.create_server((PUBLIC, 0)) as public:
        port = public.getsockname()[1]
        with socket.create_server((PRIVATE, port)) as private:
            web = WebServer(port)
            server = _Server(uvicorn.Config(web, log_config=None, lifespan="off"))
            task = asyncio.create_task(server.serve(sockets=[public, private]))
            try:
                yield web
            finally:
                server.should_exit = True
                server.force_exit = True
                await task


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the guard take one loopback address for a public one."""

    def guard(address: IPAddress) -> bool:
        return address == ip_address(PUBLIC) or is_public(address)

    monkeypatch.setattr(targets, "is_public", guard)


class Names:
    """A resolver. A name with several answers gives one at each question, the last for ever."""

    def __init__(self, **answers: Sequence[str]) -> None:
        self._answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        """The addresses, as a real resolver gives them."""
        self.asked.append(host)
        given = self._answers.get(host)
        if given is None:
            found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
            return [str(found[0][4][0])]
        return [given.pop(0) if len(given) > 1 else given[0]]
