"""A program that takes our signed callbacks: a real HTTP server in the test's own loop.

Its check of signatures follows the text of Standard Webhooks and shares no code with ours.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

WINDOW_S = 300
CERTIFICATE = Path(__file__).parent.parent / "fixtures" / "tls" / "callback.test.pem"
"""Good for the name ``callback.test``, and its own authority."""

Answer = Response | Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Delivery:
    """One request that came in."""

    path: str
    headers: dict[str, str]
    raw: bytes
    signed: bool

    @property
    def id(self) -> str:
        """By which a repeat is known."""
        return self.headers.get("webhook-id", "")

    @property
    def body(self) -> dict[str, Any]:
        """The outbound message."""
        return dict(json.loads(self.raw))


@dataclass
class WebhookReceiver:
    """Answers 200, or what a test scripts by path: each answer once, the last one for ever.

    ``secrets`` are the base64 texts behind ``whsec_``, by path.
    """

    secrets: dict[str, str] = field(default_factory=dict)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    url: str = ""

    def to(self, path: str, content: str) -> list[Delivery]:
        """What came on a path with this content."""
        return [d for d in self.deliveries if d.path == path and d.body["content"] == content]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request."""
        request = Request(scope, receive)
        path, raw = request.url.path, await request.body()
        signed = is_signed(dict(request.headers), raw, self.secrets.get(path, ""))
        self.deliveries.append(Delivery(path, dict(request.headers), raw, signed))
        answers = self.answers.get(path) or [Response()]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        response = answer if isinstance(answer, Response) else await answer(request)
        await response(scope, receive, send)


def is_signed(headers: dict[str, str], raw: bytes, secret: str) -> bool:
    """True when the request is signed with the secret, now."""
    content = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}.".encode() + raw
    digest = hmac.new(base64.b64decode(secret), content, hashlib.sha256).digest()
    wanted = "v1," + base64.b64encode(digest).decode()
    fresh = abs(time.time() - int(headers.get("webhook-timestamp", "0"))) <= WINDOW_S
    return fresh and wanted in headers.get("webhook-signature", "").split(" ")


class _Server(uvicorn.Server):
    """Leaves the signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def receiving(
    receiver: WebhookReceiver, port: int = 0, tls: bool = False
) -> AsyncIterator[WebhookReceiver]:
    """The receiver on a port, any free one by default."""
    certificate = str(CERTIFICATE) if tls else None
    config = uvicorn.Config(receiver, log_config=None, lifespan="off", ssl_certfile=certificate)
    with socket.create_server(("127.0.0.1", port)) as listener:
        scheme = "https" if tls else "http"
        receiver.url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield receiver
        finally:
            server.should_exit = True
            server.force_exit = True
            await task


def trusting() -> ssl.SSLContext:
    """Trusts the certificate of the tests alone."""
    return ssl.create_default_context(cafile=str(CERTIFICATE))
