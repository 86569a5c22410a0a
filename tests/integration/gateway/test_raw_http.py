"""Bytes on a socket of the gateway that no HTTP library would send."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.processes import ServiceProcess
from tests.support.servers import Nats
from tests.support.wait import eventually

TOKEN = "raw-token"
WAIT_S = 30.0
MESSAGES = "/api/conversations/c1/messages"
EVENTS = "/api/conversations/c1/events"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def request(method: str = "GET", path: str = MESSAGES, *headers: bytes, body: bytes = b"") -> bytes:
    """A request with the right token, and whatever else."""
    first = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
    token = f"Authorization: Bearer {TOKEN}\r\n".encode()
    return first + token + b"".join(h + b"\r\n" for h in headers) + b"\r\n" + body


@pytest.fixture
async def gateway(bus: Nats, tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    environment = {"POSTHOUSE_NATS_URL": bus.url, "POSTHOUSE_ADMIN_TOKEN": TOKEN}
    process = ServiceProcess("gateway", environment, tmp_path)
    await process.spawn()
    await eventually(lambda: "service.ready" in process.log.read_text(), WAIT_S)
    yield process
    assert await process.stop() == 0
    log = process.log.read_text()
    assert "http.crashed" not in log
    assert "Traceback" not in log


async def connect(gateway: ServiceProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = gateway.health_url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def ask(gateway: ServiceProcess, sent: bytes, half_close: bool = False) -> int:
    """Send bytes; the status that came, 0 for a connection closed without one."""
    reader, writer = await connect(gateway)
    try:
        async with asyncio.timeout(WAIT_S):
            writer.write(sent)
            await writer.drain()
            if half_close:
                writer.write_eof()
            answer = await reader.read(4096)
    except ConnectionError:
        return 0
    finally:
        writer.close()
    found = STATUS.match(answer)
    return int(found[1]) if found else 0


async def lives(gateway: ServiceProcess) -> None:
    async with httpx.AsyncClient(timeout=WAIT_S) as http:
        answer = await http.get(f"{gateway.health_url}/healthz")
        assert answer.json() == {"alive": True}


def sized(body: bytes) -> bytes:
    return request("POST", MESSAGES, b"Content-Length: %d" % len(body), body=body)


def chunked(body: bytes) -> bytes:
    return request("POST", MESSAGES, b"Transfer-Encoding: chunked", body=body)


HI = b'{"content": "hi"}'
# 0: the connection may be closed instead.
CASES: dict[str, tuple[bytes, set[int]]] = {
    "no http": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", {400}),
    "no method": (b" / HTTP/1.1\r\n\r\n", {400}),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", {400}),
    "two hosts": (request("GET", MESSAGES, b"Host: y"), {400}),
    "nul in a header": (request("GET", MESSAGES, b"X-A: a\x00b"), {400}),
    "nul in a path": (request("GET", "/api/conversations/a\x00b/messages"), {400}),
    "escaped nul in an id": (request("GET", "/api/conversations/a%00b/events"), {400}),
    "escaped line break in an id": (request("GET", "/api/conversations/a%0D%0Ab/events"), {400}),
    "bad utf-8 in an id": (request("GET", "/api/conversations/%ff%fe/events"), {200, 400}),
    "bad utf-8 in a query": (request("GET", f"{EVENTS}?last_event_id=%ff"), {400}),
    "nul in an event id": (request("GET", f"{EVENTS}?last_event_id=1-1%00"), {400}),
    "line break in an event id": (request("GET", f"{EVENTS}?last_event_id=1-1%0Aid:9"), {400}),
    "bytes in an event id": (request("GET", EVENTS, b"Last-Event-ID: \xff\xfe"), {400}),
    "folded header": (request("GET", MESSAGES, b"X-A: a", b" b"), {400, 503}),
    "huge header": (request("GET", MESSAGES, b"X-A: " + b"x" * 200_000), {0, 400, 431}),
    "many headers": (request("GET", MESSAGES, *[b"X-A: a"] * 20_000), {0, 400, 431}),
    "huge path": (request("GET", "/" + "x" * 200_000), {0, 400, 414}),
    "key that is no text": (
        request("POST", MESSAGES, b"Idempotency-Key: \xff", b"Content-Length: 17", body=HI),
        {400},
    ),
    "correlation id of bytes": (
        request(
            "POST",
            MESSAGES,
            b"Posthouse-Correlation-Id: \xff\xfe",
            b"traceparent: \xe9",
            b"Content-Length: 17",
            body=HI,
        ),
        {202},
    ),
    "bad utf-8": (sized(b'{"content": "\xff"}'), {400}),
    "byte order mark": (sized(b"\xef\xbb\xbf" + HI), {202}),
    "utf-16": (sized('{"content": "hi"}'.encode("utf-16")), {400}),
    "deep": (sized(b"[" * 100_000), {400}),
    "negative length": (request("POST", MESSAGES, b"Content-Length: -1"), {400}),
    "two lengths": (
        request("POST", MESSAGES, b"Content-Length: 1", b"Content-Length: 2", body=HI),
        {400},
    ),
    "length and chunks": (
        request(
            "POST",
            MESSAGES,
            b"Content-Length: 3",
            b"Transfer-Encoding: chunked",
            body=b"11\r\n" + HI + b"\r\n0\r\n\r\n",
        ),
        {202, 400},
    ),
    "chunks": (chunked(b"11\r\n" + HI + b"\r\n0\r\n\r\n"), {202}),
    "chunk that is no number": (chunked(b"zz\r\n" + HI + b"\r\n0\r\n\r\n"), {0, 400}),
    "chunk longer than it says": (chunked(b"2\r\n" + HI + b"\r\n0\r\n\r\n"), {0, 400}),
    "huge chunk size": (chunked(b"f" * 400 + b"\r\n"), {0, 400}),
    "upgrade": (
        request("GET", MESSAGES, b"Upgrade: websocket", b"Connection: Upgrade"),
        {400, 503},
    ),
    "head": (request("HEAD", EVENTS), {405}),
    "made up method": (request("PURR", EVENTS), {405}),
}


async def test_bytes_that_no_library_sends(gateway: ServiceProcess) -> None:
    wrong = {}
    for name, (sent, expected) in CASES.items():
        status = await ask(gateway, sent)
        if status not in expected:
            wrong[name] = status
    assert wrong == {}
    await lives(gateway)


@pytest.mark.parametrize("rest", [b"", HI[:5]])
async def test_a_client_that_hangs_up_is_no_crash(gateway: ServiceProcess, rest: bytes) -> None:
    for sent in (
        request("POST", MESSAGES, b"Content-Length: 17", body=rest),
        chunked(b"11\r\n" + rest),
        request("GET", MESSAGES),
        request("GET", EVENTS),
        request("GET", EVENTS)[:40],
    ):
        await ask(gateway, sent, half_close=True)
        _, writer = await connect(gateway)
        writer.write(sent)
        await writer.drain()
        writer.transport.abort()
    await lives(gateway)


async def test_slow_bodies_hold_up_nobody(gateway: ServiceProcess) -> None:
    slow = [await connect(gateway) for _ in range(50)]
    for _, writer in slow:
        writer.write(request("POST", MESSAGES, b"Content-Length: 17", body=HI[:3]))
    assert await ask(gateway, sized(HI)) == 202
    for _, writer in slow:
        writer.write(HI[3:])
    for reader, writer in slow:
        async with asyncio.timeout(WAIT_S):
            assert (await reader.read(64)).startswith(b"HTTP/1.1 202 ")
        writer.close()


async def test_many_idle_connections_hold_up_nobody(gateway: ServiceProcess) -> None:
    idle = [await connect(gateway) for _ in range(300)]
    assert await ask(gateway, sized(HI)) == 202
    await lives(gateway)
    for _, writer in idle:
        writer.close()
