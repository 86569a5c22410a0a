"""Bodies: bounded in size, however they are compressed, and in time, however slowly they come."""

import asyncio
import gzip
import time
import zlib
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request as WebRequest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from posthouse.egress import http
from posthouse.egress.bodies import Unreadable
from posthouse.egress.http import HttpEgress
from posthouse.egress.targets import Answer, Request, Target, Unanswered
from tests.support.web import NO_TRUST, PRIVATE, WebServer, serving

LIMIT = 100_000
TEXT = "驿站 relays messages. ".encode() * 200


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with serving() as running:
        yield running


async def ask(web: WebServer, timeout_s: float = 20.0, limit: int = LIMIT) -> Answer:
    url = f"http://{PRIVATE}:{web.port}/"
    target = Target.parse(url, allow_private=True, timeout_s=timeout_s)
    async with HttpEgress(trust=NO_TRUST) as egress:
        return await egress.ask(Request(target), limit)


def encoded(body: bytes, encoding: str) -> Response:
    return Response(body, headers={"content-encoding": encoding})


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflater.compress(data) + deflater.flush()


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (TEXT, "identity"),
        (gzip.compress(TEXT), "gzip"),
        (gzip.compress(TEXT), "X-GZIP"),
        (zlib.compress(TEXT), "deflate"),
        (raw_deflate(TEXT), "deflate"),
    ],
)
async def test_encodings(web: WebServer, body: bytes, encoding: str) -> None:
    web.answers["/"] = encoded(body, encoding)
    answer = await ask(web)
    assert (answer.body, answer.whole) == (TEXT, True)
    assert web.seen[0].headers["accept-encoding"] == "gzip, deflate"


async def test_what_fits_is_whole_and_what_does_not_is_cut(web: WebServer) -> None:
    web.answers["/"] = PlainTextResponse("x" * 1000)
    assert await ask(web, limit=1000) == Answer(200, (await ask(web)).headers, b"x" * 1000)
    cut = await ask(web, limit=999)
    assert (cut.body, cut.whole) == (b"x" * 999, False)


@pytest.mark.parametrize("rounds", [1, 2])
async def test_a_decompression_bomb_is_cut(web: WebServer, rounds: int) -> None:
    bomb = bytes(50_000_000)
    for _ in range(rounds):
        bomb = gzip.compress(bomb)
    web.answers["/"] = encoded(bomb, "gzip")
    answer = await ask(web)
    assert len(answer.body) <= LIMIT
    assert answer.whole == (rounds == 2)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip, br", "x" * 900])
async def test_what_was_not_asked_for_is_refused(web: WebServer, encoding: str) -> None:
    web.answers["/"] = encoded(gzip.compress(TEXT), encoding)
    with pytest.raises(Unreadable, match="not asked for"):
        await ask(web)


async def test_what_is_not_compressed_after_all(web: WebServer) -> None:
    for encoding in ("gzip", "deflate"):
        web.answers["/"] = encoded(TEXT, encoding)
        with pytest.raises(Unreadable, match="header says"):
            await ask(web)


async def test_an_endless_body_is_cut(web: WebServer) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 10_000
            await asyncio.sleep(0)

    web.answers["/"] = StreamingResponse(endless())
    answer = await ask(web)
    assert (len(answer.body), answer.whole) == (LIMIT, False)


async def test_a_body_that_drips_ends(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """No single read takes long, all together would."""
    monkeypatch.setattr(http, "CONNECT_TIMEOUT_S", 0.2)

    async def dripping() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.02)

    async def answer(request: WebRequest) -> Response:
        return StreamingResponse(dripping())

    web.answers["/"] = answer
    started = time.monotonic()
    with pytest.raises(Unanswered):
        await ask(web, timeout_s=0.3)
    assert time.monotonic() - started < 20


async def test_a_head_that_drips_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECT_TIMEOUT_S", 0.2)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        try:
            for n in range(10_000):
                writer.write(f"x-{n}: y\r\n".encode())
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, PRIVATE, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unanswered):
            await ask(WebServer(port), timeout_s=0.3)


async def test_a_body_that_breaks_off(web: WebServer) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        writer.close()

    server = await asyncio.start_server(broken, PRIVATE, 0)
    async with server:
        with pytest.raises(Unanswered, match="no answer from 127"):
            await ask(WebServer(server.sockets[0].getsockname()[1]))


@pytest.mark.parametrize("junk", [b"SSH-2.0-OpenSSH\r\n", b"\x00" * 100, b"HTTP/9 x\r\n\r\n"])
async def test_a_server_that_does_not_speak_http(junk: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(junk)
        writer.close()

    server = await asyncio.start_server(talk, PRIVATE, 0)
    async with server:
        with pytest.raises(Unanswered):
            await ask(WebServer(server.sockets[0].getsockname()[1]))
