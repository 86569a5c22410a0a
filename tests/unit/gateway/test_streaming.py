"""Events over HTTP, with a feed from memory."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.app import build_app
from gateway.handlers import Backend
from gateway.settings import StreamLimits
from gateway.streaming import EventStreams
from posthouse.events import StreamEvent
from posthouse.feed import BEGINNING, Arrived, Place
from posthouse.health import Health
from posthouse.settings import Settings
from tests.unit.gateway.fake_feeds import FakeFeeds
from tests.unit.gateway.test_http import FakeBus, error_of

URL = "/api/conversations/c1/events"
PLACE = Place(1764500000000, 42)


@pytest.fixture
async def feeds() -> FakeFeeds:
    return FakeFeeds()


def client(feeds: FakeFeeds, limits: StreamLimits | None = None) -> httpx.AsyncClient:
    bus = FakeBus()
    backend = Backend(bus, bus, EventStreams(feeds, feeds.stop, limits))
    app = build_app(Settings(embedded=True), Health(), backend)
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 5))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.fixture
async def http(feeds: FakeFeeds) -> AsyncIterator[httpx.AsyncClient]:
    async with client(feeds) as http:
        yield http


def arrived(event_type: str, payload: Any) -> Arrived:
    event = StreamEvent(
        event_id="w:1", workflow_id="w", seq=1, event_type=event_type, payload=payload
    )
    return Arrived(PLACE, "im.web.c1", event)


async def test_an_event_on_the_wire(http: httpx.AsyncClient, feeds: FakeFeeds) -> None:
    feeds.events = [arrived("text.delta", {"text": "你\n好", "extra": None})]
    answer = await http.get(URL)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    first, second, rest = answer.text.split("\n\n")
    assert first.splitlines() == [": open", "id: 0-0", "retry: 2000"]
    event, data, id_ = second.splitlines()
    assert (event, id_) == ("event: text.delta", "id: 1764500000000-42")
    assert rest == ""
    sent = json.loads(data.removeprefix("data: "))
    assert sent["payload"] == {"text": "你\n好", "extra": None}
    assert StreamEvent.model_validate(sent) == feeds.events[0].event


@pytest.mark.parametrize("event_type", ["a\nid: 9-9", "a\rb", "\x00"])
async def test_a_type_that_would_break_the_lines_is_left_to_the_data(
    http: httpx.AsyncClient, feeds: FakeFeeds, event_type: str
) -> None:
    feeds.events = [arrived(event_type, None)]
    data, id_ = (await http.get(URL)).text.split("\n\n")[1].split("\n")
    assert json.loads(data.removeprefix("data: "))["event_type"] == event_type
    assert id_ == f"id: {PLACE}"


@pytest.mark.parametrize(
    ("query", "header", "after"),
    [
        ("", None, None),
        ("", "", None),
        ("?from=start", None, BEGINNING),
        ("?from=start", str(PLACE), PLACE),
        (f"?last_event_id={PLACE}", None, PLACE),
        ("?last_event_id=", None, None),
        ("?last_event_id=1-1", str(PLACE), PLACE),
    ],
)
async def test_where_it_begins(
    http: httpx.AsyncClient, feeds: FakeFeeds, query: str, header: str | None, after: Place | None
) -> None:
    headers = {} if header is None else {"Last-Event-ID": header}
    assert (await http.get(URL + query, headers=headers)).status_code == 200
    assert feeds.asked == [("im://web/c1", after)]


@pytest.mark.parametrize("bad", ["x", "1", "1-", "-1", "1-2-3", "1- 2", "１-２", f"1-{'9' * 19}"])
async def test_an_id_that_is_none_is_refused(
    http: httpx.AsyncClient, feeds: FakeFeeds, bad: str
) -> None:
    answer = await http.get(URL, params={"last_event_id": bad})
    assert error_of(answer) == (400, "bad_request")
    assert "1764500000000-42" in answer.text
    assert feeds.asked == []


async def test_errors_come_before_the_stream(http: httpx.AsyncClient, feeds: FakeFeeds) -> None:
    assert error_of(await http.get(f"{URL}?from=end")) == (422, "invalid_request")
    assert error_of(await http.get("/api/conversations/%0A/events")) == (400, "address")
    for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
        assert (await http.request(method, URL)).status_code == 405
    feeds.away = True
    answer = await http.get(URL)
    assert error_of(answer) == (503, "unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    feeds.stop.set()
    assert error_of(await http.get(URL)) == (503, "unavailable")


@pytest.mark.parametrize(
    ("path", "conversation"),
    [
        ("a/b/events", "im://web/a/b"),
        ("a%2Fb/events", "im://web/a/b"),
        ("a/events/events", "im://web/a/events"),
        ("a/messages/events", "im://web/a/messages"),
        ("events/events", "im://web/events"),
        ("%E4%BD%A0/events", "im://web/你"),
        ("a//events", "im://web/a/"),
    ],
)
async def test_the_last_part_of_the_path_says_what_is_asked(
    http: httpx.AsyncClient, feeds: FakeFeeds, path: str, conversation: str
) -> None:
    assert (await http.get(f"/api/conversations/{path}")).status_code == 200
    assert feeds.asked == [(conversation, None)]


async def test_an_id_may_end_like_a_route(http: httpx.AsyncClient, feeds: FakeFeeds) -> None:
    for id_ in ("a/events", "a/messages", "events", "messages"):
        url = f"/api/conversations/{id_}/messages"
        answer = await http.post(url, json={"content": "hi"})
        assert answer.json()["conversation"] == f"im://web/{id_}"
        assert "messages" in (await http.get(url)).json()
    assert feeds.asked == []
    assert (await http.get("/api/conversations/events")).status_code == 404


async def test_readers_are_limited_and_leave_their_place_behind(feeds: FakeFeeds) -> None:
    async with client(feeds, StreamLimits(max_streams=0)) as http:
        answer = await http.get(URL)
        assert error_of(answer) == (503, "busy")
        assert answer.headers["Retry-After"] == "1"
    async with client(feeds, StreamLimits(max_streams=1)) as http:
        for _ in range(3):
            feeds.stop.clear()
            assert (await http.get(URL)).status_code == 200
    assert feeds.open_now == 0
