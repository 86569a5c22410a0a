"""The HTTP interface with fakes behind it."""

import asyncio
import codecs
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway import intake
from gateway.app import build_app
from gateway.handlers import Backend
from gateway.ports import TooManyMessages
from gateway.settings import MAX_CONVERSATION_ID_CHARACTERS, MAX_IDEMPOTENCY_KEY_CHARACTERS
from gateway.streaming import EventStreams
from posthouse.errors import PosthouseError, Unavailable
from posthouse.health import Health
from posthouse.messages import MAX_INBOUND_BYTES, InboundMessage
from posthouse.rpc import RemotePermanentError
from posthouse.settings import Settings
from posthouse.turns import RecalledMessage, RecallRequest, RecallResult
from tests.unit.gateway.fake_feeds import FakeFeeds

TOKEN = "s3cret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
URL = "/api/conversations/c1/messages"


class FakeBus:
    """Inbound and history in memory; ``failure`` is raised instead."""

    def __init__(self) -> None:
        self.published: list[tuple[str, InboundMessage]] = []
        self.recalled: list[RecallRequest] = []
        self.failure: Exception | None = None

    async def publish(self, subject: str, message: InboundMessage) -> None:
        if self.failure:
            raise self.failure
        self.published.append((subject, message))

    async def recall(self, request: RecallRequest) -> RecallResult:
        if self.failure:
            raise self.failure
        self.recalled.append(request)
        message = {"role": "user", "content": "hi"}
        stored = RecalledMessage(n=7, message=message, time="2026-01-01T00:00:00Z")
        return RecallResult(messages=[stored])


@pytest.fixture
def bus() -> FakeBus:
    return FakeBus()


def client(bus: FakeBus | None, peer: str = "10.0.0.9", **settings: Any) -> httpx.AsyncClient:
    feeds = FakeFeeds()
    events = EventStreams(feeds, feeds.stop)
    backend = Backend(bus, bus, events) if bus is not None else None
    app = build_app(Settings(**settings), Health(), backend)
    transport = httpx.ASGITransport(app=app, client=(peer, 5), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.fixture
async def http(bus: FakeBus) -> AsyncIterator[httpx.AsyncClient]:
    async with client(bus, admin_token=TOKEN) as http:
        http.headers.update(BEARER)
        yield http


def error_of(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["message"]
    return answer.status_code, body["error"]["code"]


async def test_message_is_stored_and_named(http: httpx.AsyncClient, bus: FakeBus) -> None:
    body = {
        "content": "你好",
        "sender": "alice",
        "sender_name": "Alice",
        "media": [{"url": "https://x.example/a.png"}],
        "metadata": {"page": "7"},
    }
    answer = await http.post(URL, json=body, headers={"Idempotency-Key": "k-1"})
    assert answer.status_code == 202
    assert answer.json() == {"message_id": "web::k-1", "conversation": "im://web/c1"}
    [(subject, message)] = bus.published
    assert subject == "inbound.im.web.c1"
    assert (message.id, message.content, message.sender_name) == ("web::k-1", "你好", "Alice")
    assert (str(message.from_), str(message.conversation)) == ("im://web/alice", "im://web/c1")
    assert (str(message.to), message.chat_type, message.metadata) == (
        "agent://main",
        "p2p",
        {"page": "7"},
    )
    assert message.media[0].url == "https://x.example/a.png"


async def test_without_a_key_every_message_is_new(http: httpx.AsyncClient, bus: FakeBus) -> None:
    first, second = [(await http.post(URL, json={"content": "hi"})).json() for _ in range(2)]
    assert first["message_id"] != second["message_id"]
    assert bus.published[0][1].from_ == bus.published[0][1].conversation


@pytest.mark.parametrize("text", ["/stop", " /NEW ", "/approve 7f3a"])
async def test_commands_go_to_their_own_subject(
    http: httpx.AsyncClient, bus: FakeBus, text: str
) -> None:
    assert (await http.post(URL, json={"content": text})).status_code == 202
    assert bus.published[0][0] == "command.im.web.c1"


@pytest.mark.parametrize(
    ("path", "conversation"),
    [
        ("team%2Falice", "im://web/team/alice"),
        ("a/messages", "im://web/a/messages"),
        ("%E4%BD%A0%20%3A", "im://web/你 :"),
        ("x" * 200, f"im://web/{'x' * 200}"),
    ],
)
async def test_any_printable_id_names_a_conversation(
    http: httpx.AsyncClient, bus: FakeBus, path: str, conversation: str
) -> None:
    answer = await http.post(f"/api/conversations/{path}/messages", json={"content": "hi"})
    assert answer.status_code == 202
    assert answer.json()["conversation"] == conversation
    assert str(bus.published[0][1].conversation) == conversation


@pytest.mark.parametrize("path", ["a%00b", "%0A", "a%0Ab", "%7F", "x" * 600])
async def test_unusable_ids_are_refused(http: httpx.AsyncClient, path: str) -> None:
    url = f"/api/conversations/{path}/messages"
    assert (await http.post(url, json={"content": "hi"})).status_code == 400
    assert len("x" * 600) > MAX_CONVERSATION_ID_CHARACTERS


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"hi"',
        b"null",
        b"{}",
        b'{"content": ""}',
        b'{"content": "  "}',
        b'{"content": 7}',
        b'{"content": null}',
        b'{"content": "a\\u0000b"}',
        b'{"content": "\\ud800"}',
        b'{"content": "\xff"}',
        b'{"content": "hi", "metadata": {"a": 1}}',
        b'{"content": "hi", "metadata": {"a": "\\u0000"}}',
        b'{"content": "hi", "media": [{}]}',
        b'{"content": "hi", "media": [{"url": "u", "object": "o"}]}',
        b'{"content": "hi", "sender": "a\\nb"}',
        b'{"content": "hi", "sender_name": "a\\u0000b"}',
    ],
)
async def test_bad_bodies_are_refused(http: httpx.AsyncClient, bus: FakeBus, body: bytes) -> None:
    answer = await http.post(URL, content=body)
    assert answer.status_code == 400
    error_of(answer)
    assert bus.published == []


async def test_a_byte_order_mark_is_passed_over(http: httpx.AsyncClient, bus: FakeBus) -> None:
    answer = await http.post(URL, content=codecs.BOM_UTF8 + '{"content": "驿站"}'.encode())
    assert answer.status_code == 202
    assert bus.published[0][1].content == "驿站"


async def test_media_alone_is_a_message(http: httpx.AsyncClient, bus: FakeBus) -> None:
    answer = await http.post(URL, json={"media": [{"object": "k"}]})
    assert answer.status_code == 202


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "é", "x" * 201])
async def test_bad_idempotency_keys_are_refused(http: httpx.AsyncClient, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    answer = await http.post(URL, json={"content": "hi"}, headers=headers)
    assert error_of(answer) == (400, "bad_request")
    assert len("x" * 201) > MAX_IDEMPOTENCY_KEY_CHARACTERS


async def test_large_bodies_are_refused_before_they_are_read(http: httpx.AsyncClient) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"x" * 65536

    assert error_of(await http.post(URL, content=endless())) == (413, "too_large")
    assert read <= MAX_INBOUND_BYTES // 65536 + 3


async def test_a_body_that_does_not_come_is_not_waited_for_for_ever(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "BODY_TIMEOUT_S", 0.05)

    async def stuck() -> AsyncIterator[bytes]:
        yield b'{"content":'
        await asyncio.sleep(5)

    assert error_of(await http.post(URL, content=stuck())) == (408, "request_timeout")


async def test_what_agents_would_find_too_large_is_refused(http: httpx.AsyncClient) -> None:
    room = MAX_INBOUND_BYTES - len(b'{"content":""}')
    body = json.dumps({"content": "x" * room}, separators=(",", ":"))
    assert len(body) == MAX_INBOUND_BYTES
    assert error_of(await http.post(URL, content=body)) == (413, "too_large")


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Unavailable("NATS does not answer"), 503, "unavailable"),
        (TooManyMessages(), 429, "too_many_messages"),
        (RemotePermanentError("no"), 502, "permanent"),
        (RuntimeError("a bug with a secret"), 500, "internal"),
    ],
)
async def test_failures_are_answered_in_one_shape(
    http: httpx.AsyncClient, bus: FakeBus, failure: Exception, status: int, code: str
) -> None:
    bus.failure = failure
    for answer in (await http.post(URL, json={"content": "hi"}), await http.get(URL)):
        assert error_of(answer) == (status, code)
        assert ("Retry-After" in answer.headers) == (status in (429, 503))
        assert "secret" not in answer.text
    assert isinstance(failure, PosthouseError) or status == 500


async def test_history_is_paged(http: httpx.AsyncClient, bus: FakeBus) -> None:
    answer = await http.get(URL, params={"limit": 2, "before": 9})
    assert answer.status_code == 200
    assert answer.json() == {
        "messages": [
            {"n": 7, "message": {"role": "user", "content": "hi"}, "time": "2026-01-01T00:00:00Z"}
        ]
    }
    assert bus.recalled == [RecallRequest(key="im.web.c1", limit=2, before=9)]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "before=-1", f"before={2**63}"]
)
async def test_bad_queries_are_422(http: httpx.AsyncClient, query: str) -> None:
    answer = await http.get(f"{URL}?{query}")
    assert error_of(answer) == (422, "invalid_request")


async def test_unknown_paths_and_methods(http: httpx.AsyncClient) -> None:
    assert error_of(await http.get("/nothing")) == (404, "not_found")
    assert error_of(await http.post("/api/conversations//messages")) == (404, "not_found")
    answer = await http.delete(URL)
    assert error_of(answer) == (405, "method_not_allowed")
    assert "POST" in answer.headers["Allow"] or "GET" in answer.headers["Allow"]


async def test_before_the_bus_is_there() -> None:
    async with client(None, admin_token=TOKEN) as http:
        answer = await http.post(URL, json={"content": "hi"}, headers=BEARER)
        assert error_of(answer) == (503, "unavailable")
        assert (await http.get("/healthz")).json() == {"alive": True}
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer é"]
)
async def test_wrong_tokens_are_refused(bus: FakeBus, header: str | None) -> None:
    async with client(bus, "127.0.0.1", admin_token=TOKEN, embedded=True) as http:
        headers = [] if header is None else [(b"Authorization", header.encode("latin-1"))]
        answer = await http.post(URL, content=b"{", headers=headers)
        assert error_of(answer) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert bus.published == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_right_token(bus: FakeBus, scheme: str) -> None:
    async with client(bus, admin_token=TOKEN) as http:
        headers = {"Authorization": f"{scheme} {TOKEN}"}
        assert (await http.get(URL, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("peer", "host", "origin", "embedded", "status"),
    [
        ("127.0.0.1", "localhost:8080", None, True, 200),
        ("127.0.0.9", "127.0.0.1", None, True, 200),
        ("::1", "[::1]:8080", None, True, 200),
        ("::ffff:127.0.0.1", "127.0.0.1", None, True, 200),
        ("127.0.0.1", "localhost", "http://localhost:8080", True, 200),
        ("127.0.0.1", "localhost", None, False, 403),
        ("10.0.0.9", "localhost", None, True, 403),
        ("::ffff:10.0.0.9", "localhost", None, True, 403),
        ("127.0.0.1", "rebound.example", None, True, 403),
        ("127.0.0.1", "localhost", "https://evil.example", True, 403),
        ("127.0.0.1", "localhost", "null", True, 403),
        ("127.0.0.1", "localhost", "http://[", True, 403),
    ],
)
async def test_without_a_token_only_this_machine_and_only_embedded(
    bus: FakeBus, peer: str, host: str, origin: str | None, embedded: bool, status: int
) -> None:
    async with client(bus, peer, embedded=embedded) as http:
        headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
        answer = await http.get(URL, headers=headers)
        assert answer.status_code == status
        if status != 200:
            assert error_of(answer) == (403, "forbidden")
