"""Server-sent events from gateway processes on a real NATS server."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from nats.js import JetStreamContext

from gateway.adapters.nats_feeds import NatsFeeds
from gateway.app import build_app
from gateway.handlers import Backend
from gateway.settings import StreamLimits
from gateway.streaming import EventStreams
from posthouse import bootstrap, health, streams
from posthouse.address import Address
from posthouse.embedded.nats import NatsServer
from posthouse.messages import OutboundMessage
from posthouse.settings import Settings
from tests.integration.gateway.post_office import message, open_office
from tests.support.processes import ServiceProcess, free_port
from tests.support.publisher import EventPublisher
from tests.support.servers import Nats, crash
from tests.support.wait import eventually
from tests.unit.gateway.test_http import FakeBus

TOKEN = "test-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
DEMO = Address.im("web", "demo")
URL = "/api/conversations/demo/events"
WAIT_S = 30.0


class Sent(NamedTuple):
    """One event as a reader gets it."""

    id: str
    event: str
    data: dict[str, Any]

    @property
    def text(self) -> str:
        """Of a delta."""
        return str(self.data["payload"]["text"])


class Reader:
    """An open stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments: list[str] = []
        self._lines = response.aiter_lines()

    async def take(self, count: int) -> list[Sent]:
        """The next ``count`` events."""
        async with asyncio.timeout(WAIT_S):
            return [await self._next() for _ in range(count)]

    async def texts(self, count: int) -> list[str]:
        """What the next ``count`` deltas say."""
        return [sent.text for sent in await self.take(count)]

    async def opened(self) -> str:
        """The id that the stream begins with."""
        async with asyncio.timeout(WAIT_S):
            async for line in self._lines:
                if line.startswith("id: "):
                    return line.removeprefix("id: ")
        raise AssertionError("the stream ended")

    async def comment(self) -> str:
        """The next comment."""
        async with asyncio.timeout(WAIT_S):
            async for line in self._lines:
                if line.startswith(":"):
                    return line
        raise AssertionError("the stream ended")

    async def end(self) -> None:
        """Read until the server ends the stream, as it should."""
        async with asyncio.timeout(WAIT_S):
            async for _ in self._lines:
                pass

    async def _next(self) -> Sent:
        fields: dict[str, str] = {}
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if line and name:
                fields[name] = value
            elif not line and "data" in fields:
                return Sent(fields["id"], fields["event"], json.loads(fields["data"]))
            elif not line:
                fields = {}
        raise AssertionError("the stream ended")


@asynccontextmanager
async def reading(url: str, last: str = "", query: str = "") -> AsyncIterator[Reader]:
    """A reader whose stream is open."""
    headers = BEARER | ({"Last-Event-ID": last} if last else {})
    async with (
        httpx.AsyncClient(timeout=WAIT_S) as http,
        http.stream("GET", f"{url}{URL}{query}", headers=headers) as response,
    ):
        assert response.status_code == 200, await response.aread()
        yield Reader(response)


@pytest.fixture
async def js(bus: Nats) -> JetStreamContext:
    return await bus.jetstream()


@pytest.fixture
async def publisher(js: JetStreamContext) -> EventPublisher:
    return EventPublisher(js, DEMO, "w1")


async def started(bus: Nats, folder: Path) -> ServiceProcess:
    """A gateway process that is connected; memory is not there."""
    environment = {"POSTHOUSE_NATS_URL": bus.url, "POSTHOUSE_ADMIN_TOKEN": TOKEN}
    process = ServiceProcess("gateway", environment, folder)
    await process.spawn()

    async def connected() -> bool:
        return "service.ready" in process.log.read_text()

    await eventually(connected, WAIT_S)
    return process


@pytest.fixture
async def gateway(bus: Nats, tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    """A process on the bus."""
    process = await started(bus, tmp_path)
    yield process
    await process.stop()
    assert "http.crashed" not in process.log.read_text()


@pytest.fixture
async def gateways(bus: Nats, tmp_path: Path) -> AsyncIterator[list[ServiceProcess]]:
    """Two processes on one bus."""
    both = await asyncio.gather(*(started(bus, tmp_path) for _ in range(2)))
    yield list(both)
    await asyncio.gather(*(process.stop() for process in both))


async def test_readers_of_two_gateways_and_one_that_changes_over(
    gateways: list[ServiceProcess], publisher: EventPublisher
) -> None:
    one, two = (gateway.health_url for gateway in gateways)
    said = [f"{number} 字" for number in range(60)]
    async with reading(two) as steady:
        async with reading(one) as cut:
            for text in said[:20]:
                await publisher.delta(text)
            before = await cut.take(20)
        publishing = asyncio.create_task(publish(publisher, said[20:]))
        async with reading(two, last=before[-1].id) as resumed:
            after = await resumed.take(40)
        await publishing
        all_of_it = await steady.take(60)
    assert [sent.text for sent in before + after] == said
    # Ids, types and data are the same at each gateway.
    assert before + after == all_of_it
    assert all_of_it[0].event == "text.delta"


async def publish(publisher: EventPublisher, texts: list[str]) -> None:
    for text in texts:
        await publisher.delta(text)


async def test_a_reader_that_is_cut_off_before_the_first_event_misses_none(
    gateways: list[ServiceProcess], publisher: EventPublisher
) -> None:
    one, two = (gateway.health_url for gateway in gateways)
    await publisher.delta("old")
    async with reading(one) as cut:
        place = await cut.opened()
    await publisher.delta("missed")
    async with reading(two, last=place) as resumed:
        await publisher.delta("new")
        assert await resumed.texts(2) == ["missed", "new"]


async def test_new_only_or_from_the_start(
    gateway: ServiceProcess, publisher: EventPublisher
) -> None:
    await publisher.delta("old")
    url = gateway.health_url
    async with reading(url) as new, reading(url, query="?from=start") as all_:
        await publisher.delta("new")
        assert await new.texts(1) == ["new"]
        assert await all_.texts(2) == ["old", "new"]


async def test_readers_that_leave_while_they_are_sent_something_are_no_crash(
    gateway: ServiceProcess, publisher: EventPublisher, js: JetStreamContext
) -> None:
    publishing = asyncio.create_task(publish(publisher, ["x" * 50_000] * 400))
    while not publishing.done():
        async with reading(gateway.health_url, query="?from=start") as reader:
            await reader.take(1)
    await publishing

    async def all_left() -> bool:
        return await readers_of(js) == 0

    await eventually(all_left, WAIT_S)


async def test_messages_to_the_conversation_are_shown_too(
    gateways: list[ServiceProcess], bus: Nats
) -> None:
    office = await open_office(bus)
    async with reading(gateways[0].health_url) as reader:
        await office.publish(message("demo", 1, "an answer, which its workflow shows"))
        notice = message("demo", 2, "没有运行中的任务", kind="notice", in_reply_to=("web::1",))
        await office.publish(notice)
        [shown] = await reader.take(1)
    assert shown.event == "message.sent"
    assert OutboundMessage.model_validate(shown.data["payload"]) == notice
    # Who comes later finds it where the other events are.
    async with reading(gateways[1].health_url, query="?from=start") as later:
        assert await later.take(1) == [shown]


async def test_a_message_waits_for_the_stream_of_events(
    gateway: ServiceProcess, bus: Nats, js: JetStreamContext
) -> None:
    await js.delete_stream(streams.EVENTS)
    office = await open_office(bus)
    await office.publish(message("demo", 1, kind="notice"))
    await eventually(office.all_acknowledged, WAIT_S)
    async with reading(gateway.health_url, query="?from=start") as reader:
        [shown] = await reader.take(1)
    assert shown.data["payload"]["content"] == "1"


async def test_who_may_not_ask_gets_no_stream(gateway: ServiceProcess) -> None:
    async with httpx.AsyncClient(base_url=gateway.health_url, timeout=WAIT_S) as http:
        assert (await http.get(URL)).status_code == 401
        assert (await http.get(URL, headers={"Authorization": "Bearer x"})).status_code == 401
        bad = await http.get(URL, headers=BEARER | {"Last-Event-ID": "nonsense"})
        assert (bad.status_code, bad.json()["error"]["code"]) == (400, "bad_request")


async def test_without_a_token_outside_embedded_mode_nobody_may(bus: Nats, tmp_path: Path) -> None:
    process = ServiceProcess("gateway", {"POSTHOUSE_NATS_URL": bus.url}, tmp_path)
    await process.spawn()
    try:
        await eventually(lambda: "service.ready" in process.log.read_text(), WAIT_S)
        answer = await asyncio.to_thread(httpx.get, process.health_url + URL, timeout=WAIT_S)
        assert answer.status_code == 403
    finally:
        await process.stop()


async def test_a_stopping_gateway_ends_its_streams_at_once(
    gateways: list[ServiceProcess], publisher: EventPublisher
) -> None:
    async with AsyncExitStack() as stack:
        url = gateways[0].health_url
        readers = [await stack.enter_async_context(reading(url)) for _ in range(20)]
        await publisher.delta("a")
        [last] = await readers[0].take(1)
        began = time.monotonic()
        assert await gateways[0].stop() == 0
        assert time.monotonic() - began < 10
        # As a finished response, not as a broken one.
        for reader in readers:
            await reader.end()
    await publisher.delta("b")
    async with reading(gateways[1].health_url, last=last.id) as resumed:
        assert await resumed.texts(1) == ["b"]
    log = gateways[0].log.read_text()
    assert "graceful shutdown exceeded" not in log
    assert "Traceback" not in log


async def test_streams_outlive_a_restart_of_nats(
    gateways: list[ServiceProcess], publisher: EventPublisher, own_nats: NatsServer, bus: Nats
) -> None:
    async with reading(gateways[0].health_url) as reader:
        await publisher.delta("before")
        [before] = await reader.take(1)
        await crash(own_nats)
        async with httpx.AsyncClient(base_url=gateways[0].health_url, timeout=WAIT_S) as http:

            async def refused() -> bool:
                answer = await http.get(URL, headers=BEARER)
                return answer.status_code == 503

            await eventually(refused, WAIT_S)
        await own_nats.start()
        js = await bus.jetstream()
        await bootstrap.create_events(js)
        await EventPublisher(js, DEMO, "w2").delta("after")
        [after] = await reader.take(1)
    assert after.text == "after"
    assert after.id.partition("-")[0] != before.id.partition("-")[0]
    async with reading(gateways[1].health_url, last=before.id) as resumed:
        assert await resumed.take(1) == [after]


class InProcess:
    """The application with limits of its own, behind a real socket."""

    def __init__(self, feeds: NatsFeeds, limits: StreamLimits) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        bus = FakeBus()
        backend = Backend(bus, bus, EventStreams(feeds, asyncio.Event(), limits))
        app = build_app(Settings(admin_token=TOKEN), health.Health(), backend)
        self.server = health.AppServer(app, "127.0.0.1", port)


@pytest.fixture
async def small(bus: Nats, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InProcess]:
    """Two streams at most, a ping every 0.2 s, and no patience with those who do not read."""
    monkeypatch.setattr(health, "WRITE_TIMEOUT_S", 1)
    gateway = InProcess(NatsFeeds(await bus.connect()), StreamLimits(max_streams=2, ping_s=0.2))
    await gateway.server.start()
    await eventually(lambda: listening(gateway.url), WAIT_S)
    yield gateway
    await gateway.server.stop()


async def listening(url: str) -> bool:
    async with httpx.AsyncClient(timeout=WAIT_S) as http:
        try:
            return (await http.get(f"{url}/healthz")).status_code == 200
        except httpx.TransportError:
            return False


async def readers_of(js: JetStreamContext) -> int:
    return (await js.stream_info(streams.EVENTS)).state.consumer_count


async def test_pings_come_while_nothing_happens(
    small: InProcess, publisher: EventPublisher
) -> None:
    async with reading(small.url) as reader:
        assert await reader.comment() == ": open"
        assert await reader.comment() == ": ping"
        assert await reader.comment() == ": ping"
        await publisher.delta("a")
        assert await reader.texts(1) == ["a"]


async def test_who_leaves_makes_room(small: InProcess, js: JetStreamContext) -> None:
    async with httpx.AsyncClient(base_url=small.url, timeout=WAIT_S, headers=BEARER) as http:
        async with reading(small.url), reading(small.url):
            answer = await http.get(URL)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
            assert await readers_of(js) == 2

        async def left() -> bool:
            return await readers_of(js) == 0

        await eventually(left, WAIT_S)
        async with reading(small.url):
            pass


@asynccontextmanager
async def stuck_reader(
    url: str, js: JetStreamContext, publisher: EventPublisher
) -> AsyncIterator[None]:
    """One that asks for events and never takes them, and more events than fit into any buffer."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        request = f"GET {URL} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(request.encode())

        async def opened() -> bool:
            return await readers_of(js) == 1

        await eventually(opened, WAIT_S)
        for _ in range(30):
            await publisher.publish("text.delta", text="x" * 500_000)
        yield


async def test_a_reader_that_does_not_read_is_given_up(
    small: InProcess, js: JetStreamContext, publisher: EventPublisher
) -> None:
    async with stuck_reader(small.url, js, publisher):

        async def given_up() -> bool:
            return await readers_of(js) == 0

        await eventually(given_up, WAIT_S)


async def test_a_stopping_gateway_does_not_wait_for_who_does_not_read(
    gateway: ServiceProcess, js: JetStreamContext, publisher: EventPublisher
) -> None:
    async with stuck_reader(gateway.health_url, js, publisher):
        began = time.monotonic()
        assert await gateway.stop() == 0
        assert time.monotonic() - began < health.STOP_TIMEOUT_S + 10
