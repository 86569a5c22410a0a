"""The gateway on a real NATS server; memory is played by the test."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

import httpx
import pytest
from nats.aio.msg import Msg

from gateway.main import serve
from posthouse import rpc, streams, subjects
from posthouse.bus import MSG_ID
from posthouse.embedded.nats import NatsServer
from posthouse.messages import InboundMessage
from posthouse.settings import Settings
from posthouse.turns import RecallRequest, RecallResult
from tests.integration.gateway.post_office import PostOffice, message, open_office
from tests.support.processes import free_port
from tests.support.servers import Nats, crash
from tests.support.wait import eventually

TOKEN = "test-token"
URL = "/api/conversations/c1/messages"


async def answer_recall(request: Msg) -> None:
    """``memory.history.recall`` of an empty memory."""
    RecallRequest.model_validate_json(request.data)
    await request.respond(rpc.encode_result(RecallResult()))


@pytest.fixture
async def office(bus: Nats) -> PostOffice:
    office = await open_office(bus)
    await office.connection.subscribe("memory.history.recall", queue="memory", cb=answer_recall)
    await office.connection.flush()
    return office


class Gateway:
    """The gateway in this process; signals and exit codes are in ``test_gateway_process.py``."""

    def __init__(self, nats_url: str) -> None:
        self.health_url = f"http://127.0.0.1:{free_port()}"
        self.stop = asyncio.Event()
        port = int(self.health_url.rpartition(":")[2])
        settings = Settings(nats_url=nats_url, admin_token=TOKEN, http_port=port)
        self.task = asyncio.create_task(serve(settings, self.stop))

    async def end(self) -> None:
        self.stop.set()
        await self.task


@pytest.fixture
async def gateway(bus: Nats, office: PostOffice) -> AsyncIterator[Gateway]:
    gateway = Gateway(bus.url)
    await eventually(partial(nothing_wrong, gateway))
    yield gateway
    await gateway.end()


def client(gateway: Gateway) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(base_url=gateway.health_url, headers=headers, timeout=8)


async def wrong(gateway: Gateway) -> dict[str, str]:
    """The failed checks of ``/readyz`` and what they say."""
    async with httpx.AsyncClient(timeout=8) as http:
        answer = (await http.get(f"{gateway.health_url}/readyz")).json()
    failed = {name: text for name, text in answer["checks"].items() if text != "ok"}
    assert answer["ready"] == (not failed)
    return failed


async def nothing_wrong(gateway: Gateway) -> bool:
    try:
        return await wrong(gateway) == {}
    except httpx.TransportError:
        return False


async def test_a_message_is_stored_once_before_202(gateway: Gateway, office: PostOffice) -> None:
    async with client(gateway) as http:
        for _ in range(2):
            answer = await http.post(URL, json={"content": "hi"}, headers={"Idempotency-Key": "k1"})
            assert answer.status_code == 202
            assert answer.json() == {"message_id": "web::k1", "conversation": "im://web/c1"}
        await http.post(URL, json={"content": "/stop"}, headers={"Idempotency-Key": "k2"})
    assert (await office.js.stream_info(streams.INBOUND)).state.messages == 2
    first, second = [await office.js.get_msg(streams.INBOUND, seq) for seq in (1, 2)]
    assert first.subject == "inbound.im.web.c1"
    assert (first.headers or {})[MSG_ID] == "inbound.im.web.c1:web::k1"
    assert InboundMessage.model_validate_json(first.data or b"").content == "hi"
    assert second.subject == "command.im.web.c1"


async def test_a_full_conversation_is_429_and_others_go_on(
    gateway: Gateway, office: PostOffice
) -> None:
    config = (await office.js.stream_info(streams.INBOUND)).config
    config.max_msgs_per_subject = 2
    await office.js.update_stream(config)
    async with client(gateway) as http:
        codes = [(await http.post(URL, json={"content": "hi"})).status_code for _ in range(3)]
        assert codes == [202, 202, 429]
        other = await http.post("/api/conversations/c2/messages", json={"content": "hi"})
        assert other.status_code == 202
        config.max_bytes = 1
        await office.js.update_stream(config)
        other = await http.post("/api/conversations/c3/messages", json={"content": "hi"})
        assert (other.status_code, other.json()["error"]["code"]) == (503, "unavailable")


async def test_history_comes_from_memory(gateway: Gateway) -> None:
    async with client(gateway) as http:
        answer = await http.get(URL)
    assert (answer.status_code, answer.json()) == (200, {"messages": []})


async def test_outbound_of_the_web_is_recorded(gateway: Gateway, office: PostOffice) -> None:
    for seq in (1, 2):
        await office.publish(message("c1", seq))

    async def delivered() -> bool:
        return await office.last("c1") == 2 and await office.all_acknowledged()

    await eventually(delivered)


async def test_it_survives_a_restart_of_nats(
    gateway: Gateway, office: PostOffice, own_nats: NatsServer
) -> None:
    await crash(own_nats)
    async with client(gateway) as http:
        began = time.monotonic()
        answer = await http.post(URL, json={"content": "hi"})
        assert time.monotonic() - began < 4
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert "nats" in await wrong(gateway)

        await own_nats.start()

        async def stored() -> bool:
            return (await http.post(URL, json={"content": "hi"})).status_code == 202

        await eventually(stored, 15)
    await eventually(lambda: office.connection.is_connected, 15)
    await office.publish(message("c1", 1))

    async def delivered() -> bool:
        return await office.last("c1") == 1

    await eventually(delivered, 15)
    await eventually(partial(nothing_wrong, gateway), 15)


async def test_readiness_says_what_is_wrong(bus: Nats) -> None:
    gateway = Gateway(bus.url)
    await eventually(partial(listening, gateway))

    async def only_memory_is_missing() -> bool:
        return set(await wrong(gateway)) == {"memory"}

    await eventually(only_memory_is_missing)
    assert "memory.history.recall" in (await wrong(gateway))["memory"]
    js = await bus.jetstream()
    await js.delete_consumer(streams.OUTBOUND, subjects.deliver_durable("web"))
    assert set(await wrong(gateway)) == {"memory", "deliver web"}
    await js.delete_stream(streams.INBOUND)
    assert "inbound" in await wrong(gateway)
    gateway.stop.set()
    assert "process" in await wrong(gateway)
    await gateway.end()


async def test_it_waits_for_nats(bus: Nats, own_nats: NatsServer) -> None:
    await own_nats.stop()
    gateway = Gateway(own_nats.url)
    await eventually(partial(listening, gateway))
    assert set(await wrong(gateway)) == {"process", "nats", "inbound", "deliver web", "memory"}
    async with client(gateway) as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.post(URL, json={"content": "hi"})).status_code == 503
        await own_nats.start()

        async def stored() -> bool:
            return (await http.post(URL, json={"content": "hi"})).status_code == 202

        await eventually(stored, 20)
    await gateway.end()


async def listening(gateway: Gateway) -> bool:
    async with httpx.AsyncClient(timeout=3) as http:
        try:
            return (await http.get(f"{gateway.health_url}/healthz")).status_code == 200
        except httpx.TransportError:
            return False
