"""The route of webhooks, with fakes behind it."""

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway import registry, signatures
from gateway.app import build_app
from gateway.handlers import Backend
from gateway.ports import Channel, TooManyMessages
from gateway.receiving import Received, WebhookRequest
from gateway.streaming import EventStreams
from posthouse.address import Address
from posthouse.errors import Unavailable
from posthouse.health import Health
from posthouse.messages import MAX_INBOUND_BYTES, InboundMessage
from posthouse.settings import Settings
from tests.support.webhook_sender import OTHER, WHSEC, github, standard
from tests.unit.gateway.fake_feeds import FakeFeeds
from tests.unit.gateway.fakes import FakeChannel, FakeEgress
from tests.unit.gateway.test_http import FakeBus, error_of

SHOP = "/webhooks/webhook/shop"
BODY = orjson.dumps({"id": "m-1", "sender": "alice", "content": "你好"})


class Platform(FakeChannel):
    """Challenges us, ignores events, and brings several messages at once."""

    name = domain = "platform"

    def receive(self, request: WebhookRequest) -> Received:
        """As the body says."""
        if request.body == b"challenge":
            return Received(answer=request.query["echo"].encode(), media_type="text/plain")
        return Received(tuple(self._message(word) for word in request.body.decode().split()))

    def _message(self, text: str) -> InboundMessage:
        chat = Address.im(self.domain, "a")
        return InboundMessage(id=text, from_=chat, conversation=chat, content=text)


@pytest.fixture
def bus() -> FakeBus:
    return FakeBus()


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Channel]:
    monkeypatch.setenv("DEFAULT_SECRET", OTHER)
    monkeypatch.setenv("SHOP_SECRET", WHSEC)
    bots = [{"secret_env": "DEFAULT_SECRET"}, {"bot": "shop", "secret_env": "SHOP_SECRET"}]
    found = registry.discover(Settings(channels={"webhook": bots}), FakeEgress())
    return {**found, "platform": Platform()}


def client(bus: FakeBus | None, channels: dict[str, Channel]) -> httpx.AsyncClient:
    feeds = FakeFeeds()
    backend = Backend(bus, bus, EventStreams(feeds, feeds.stop)) if bus is not None else None
    # An admin token is set: webhooks do not need it.
    app = build_app(Settings(admin_token="t"), Health(), backend, channels)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.fixture
async def http(bus: FakeBus, channels: dict[str, Channel]) -> AsyncIterator[httpx.AsyncClient]:
    async with client(bus, channels) as http:
        yield http


def signed(body: bytes, secret: str = WHSEC, **keys: Any) -> dict[str, str]:
    return standard(body, secret, timestamp=int(time.time()), **keys)


@pytest.mark.parametrize("sign", [signed, github])
async def test_a_message_is_stored_and_named(
    http: httpx.AsyncClient, bus: FakeBus, sign: Any
) -> None:
    answer = await http.post(SHOP, content=BODY, headers=sign(BODY))
    assert answer.status_code == 200
    assert answer.json() == {
        "message_id": "webhook:shop:m-1",
        "conversation": "im://webhook+shop/alice",
    }
    ((subject, message),) = bus.published
    assert subject == "inbound.im.webhook=2Bshop.alice"
    assert (message.id, message.content) == ("webhook:shop:m-1", "你好")


async def test_the_default_bot_has_the_shorter_path(http: httpx.AsyncClient, bus: FakeBus) -> None:
    answer = await http.post("/webhooks/webhook", content=BODY, headers=signed(BODY, OTHER))
    assert answer.json()["conversation"] == "im://webhook/alice"
    assert bus.published[0][0] == "inbound.im.webhook.alice"


@pytest.mark.parametrize("text", ["/stop", " /NEW "])
async def test_commands_go_to_their_own_subject(
    http: httpx.AsyncClient, bus: FakeBus, text: str
) -> None:
    body = orjson.dumps({"id": "m-1", "sender": "alice", "content": text})
    assert (await http.post(SHOP, content=body, headers=signed(body))).status_code == 200
    assert bus.published[0][0] == "command.im.webhook=2Bshop.alice"


@pytest.mark.parametrize("path", ["/webhooks/webhook", SHOP])
async def test_bots_do_not_take_each_others_signatures(
    http: httpx.AsyncClient, bus: FakeBus, path: str
) -> None:
    wrong = WHSEC if path != SHOP else OTHER
    for headers in (signed(BODY, wrong), github(BODY, wrong)):
        answer = await http.post(path, content=BODY, headers=headers)
        assert error_of(answer) == (401, "bad_signature")
        assert answer.headers["www-authenticate"] == "Signature"
    assert bus.published == []


@pytest.mark.parametrize(
    "path",
    [
        "/webhooks/webhook/other",
        "/webhooks/webhook+shop",
        "/webhooks/webhook%2Bshop",
        "/webhooks/webhook/",
        "/webhooks/web",
        "/webhooks/feishu/x",
        "/webhooks/webhook/%00",
        "/webhooks/webhook/shop/more",
    ],
)
async def test_unknown_bots(http: httpx.AsyncClient, bus: FakeBus, path: str) -> None:
    answer = await http.post(path, content=BODY, headers=signed(BODY))
    assert error_of(answer) == (404, "not_found")
    assert bus.published == []


async def test_only_post(http: httpx.AsyncClient) -> None:
    assert error_of(await http.get(SHOP)) == (405, "method_not_allowed")


GARBAGE = st.binary(max_size=60).filter(lambda raw: not set(raw) & set(b"\r\n\0"))
NAMES = [signatures.ID, signatures.TIMESTAMP, signatures.SIGNATURE, signatures.HUB_SIGNATURE]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), GARBAGE))
async def test_any_garbled_header_is_unauthorized(
    http: httpx.AsyncClient, bus: FakeBus, headers: dict[str, bytes]
) -> None:
    raw = [(name.encode(), value) for name, value in headers.items()]
    answer = await http.post(SHOP, content=BODY, headers=raw)
    assert error_of(answer) == (401, "bad_signature")
    assert bus.published == []


async def test_bodies_that_are_refused(http: httpx.AsyncClient, bus: FakeBus) -> None:
    for body in (b"", b"not json", b"[]", b'{"id": "1", "sender": "a", "content": " "}'):
        answer = await http.post(SHOP, content=body, headers=signed(body))
        assert error_of(answer) == (400, "bad_message")
    large = orjson.dumps({"id": "1", "sender": "a", "content": "x" * MAX_INBOUND_BYTES})
    answer = await http.post(SHOP, content=large, headers=signed(large))
    assert error_of(answer) == (413, "too_large")
    assert bus.published == []


async def test_the_size_counts_before_the_signature(http: httpx.AsyncClient) -> None:
    answer = await http.post(SHOP, content=b"x" * (MAX_INBOUND_BYTES + 1))
    assert error_of(answer) == (413, "too_large")


@pytest.mark.parametrize(
    ("failure", "status"), [(Unavailable("no NATS"), 503), (TooManyMessages(), 429)]
)
async def test_what_is_not_stored_is_to_be_sent_again(
    http: httpx.AsyncClient, bus: FakeBus, failure: Exception, status: int
) -> None:
    bus.failure = failure
    answer = await http.post(SHOP, content=BODY, headers=signed(BODY))
    assert answer.status_code == status
    assert int(answer.headers["retry-after"]) >= 1


async def test_before_nats_is_there_only_signed_requests_are_asked_to_wait(
    channels: dict[str, Channel],
) -> None:
    async with client(None, channels) as http:
        answer = await http.post(SHOP, content=BODY, headers=signed(BODY))
        assert error_of(answer) == (503, "unavailable")
        assert error_of(await http.post(SHOP, content=BODY)) == (401, "bad_signature")


async def test_what_a_channel_may_answer(http: httpx.AsyncClient, bus: FakeBus) -> None:
    answer = await http.post("/webhooks/platform?echo=42", content=b"challenge")
    assert (answer.text, answer.headers["content-type"][:10]) == ("42", "text/plain")
    answer = await http.post("/webhooks/platform", content=b"")
    assert (answer.status_code, answer.json(), bus.published) == (200, {}, [])


async def test_several_messages_are_stored_in_order(http: httpx.AsyncClient, bus: FakeBus) -> None:
    assert (await http.post("/webhooks/platform", content=b"one two")).status_code == 200
    assert [message.content for _, message in bus.published] == ["one", "two"]
