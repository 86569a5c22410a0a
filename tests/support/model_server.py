"""A real HTTP server in the test's own loop that answers as it is told."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import orjson
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

Answer = Response | Callable[[Request], Awaitable[Response]]


class _Server(uvicorn.Server):
    """Leaves the signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ModelServer:
    """Gives the answers in turn, the last one again and again; keeps what it was asked."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.answers: list[Answer] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def will(self, *answers: Answer) -> None:
        """Answer so."""
        self.answers = list(answers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One chat completion; whatever the path, so that it can play a proxy too."""
        request = Request(scope, receive)
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        response = answer if isinstance(answer, Response) else await answer(request)
        await response(scope, receive, send)


@asynccontextmanager
async def serving() -> AsyncIterator[ModelServer]:
    """A server on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        model = ModelServer(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        server = _Server(uvicorn.Config(model, log_config=None, lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield model
        finally:
            server.should_exit = True
            server.force_exit = True
            await task


def completion(
    message: dict[str, Any] | None,
    *,
    finish: str | None = "stop",
    usage: Any = None,
    **more: Any,
) -> JSONResponse:
    """A usual response body."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return JSONResponse({"choices": [choice], "usage": usage, **more})


Part = bytes | asyncio.Event


def stream(*parts: Part, kind: str = "text/event-stream") -> Answer:
    """An answer in parts; an event among them is waited for."""

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            if isinstance(part, asyncio.Event):
                await part.wait()
            else:
                yield part

    async def answer(request: Request) -> Response:
        return StreamingResponse(body(), media_type=kind)

    return answer


def data(payload: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """An event with a choice."""
    given = {"content": content} if content is not None else {}
    return data({"choices": [{"index": 0, "delta": given | more, "finish_reason": finish}]})


def tool_call(name: str, arguments: str, pieces: int = 3) -> list[bytes]:
    """The events of a tool call, its arguments in pieces."""
    size = max(1, -(-len(arguments) // pieces))
    cut = [arguments[start : start + size] for start in range(0, len(arguments), size)]
    head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name}}
    rest = [{"index": 0, "function": {"arguments": piece}} for piece in cut]
    return [delta(tool_calls=[piece]) for piece in (head, *rest)] + [delta(finish="tool_calls")]


DONE = b"data: [DONE]\n\n"


def refusal(status: int, error: Any, **headers: str) -> JSONResponse:
    """An error body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"error": error}, status_code=status, headers=named)
