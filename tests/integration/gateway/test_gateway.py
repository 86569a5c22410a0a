"""The gateway process on a real NATS server; memory is played by the test."""

import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from nats.aio.msg import Msg

from posthouse import rpc, streams, subjects
from posthouse.bootstrap import bootstrap
from posthouse.bus import MSG_ID
from posthouse.embedded.nats import NatsServer
from posthouse.messages import InboundMessage
from posthouse.turns import RecallRequest, RecallResult
from tests.integration.gateway.post_office import PostOffice, message, open_office
from tests.support.processes import ServiceProcess
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


def process(nats_url: str, folder: Path) -> ServiceProcess:
    environment = {"POSTHOUSE_NATS_URL": nats_url, "POSTHOUSE_ADMIN_TOKEN": TOKEN}
    return ServiceProcess("gateway", environment, folder)


@pytest.fixture
async def gateway(bus: Nats, office: PostOffice, tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    service = process(bus.url, tmp_path)
    await service.start()
    yield service
    assert await service.stop() == 0


def client(gateway: ServiceProcess) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(base_url=gateway.health_url, headers=headers, timeout=8)


async def wrong(gateway: ServiceProcess) -> dict[str, str]:
    """The failed checks of ``/readyz`` and what they say."""
    async with httpx.AsyncClient(timeout=8) as http:
        answer = (await http.get(f"{gateway.health_url}/readyz")).json()
    failed = {name: text for name, text in answer["checks"].items() if text != "ok"}
    assert answer["ready"] == (not failed)
    return failed


async def test_a_message_is_stored_once_before_202(
    gateway: ServiceProcess, office: PostOffice
) -> None:
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
    gateway: ServiceProcess, office: PostOffice
) -> None:
    config = (await office.js.stream_info(streams.INBOUND)).config
    config.max_msgs_per_subject = 2
    await office.js.update_stream(config)
    async with client(gateway) as http:
        codes = [(await http.post(URL, json={"content": "hi"})).status_code for _ in range(3)]
        assert codes == [202, 202, 429]
        other = await http.post("/api/conversations/c2/messages", json={"content": "hi"})
        assert other.status_code == 202


async def test_history_comes_from_memory(gateway: ServiceProcess) -> None:
    async with client(gateway) as http:
        answer = await http.get(URL)
    assert (answer.status_code, answer.json()) == (200, {"messages": []})


async def test_outbound_of_the_web_is_recorded(gateway: ServiceProcess, office: PostOffice) -> None:
    for seq in (1, 2):
        await office.publish(message("c1", seq))

    async def delivered() -> bool:
        return await office.last("c1") == 2 and await office.all_acknowledged()

    await eventually(delivered)


async def test_it_survives_a_restart_of_nats(
    gateway: ServiceProcess, office: PostOffice, own_nats: NatsServer
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

    async def ready() -> bool:
        return await wrong(gateway) == {}

    await eventually(ready, 15)


async def test_readiness_says_what_is_wrong(bus: Nats, tmp_path: Path) -> None:
    service = process(bus.url, tmp_path)
    await service.spawn()

    async def only_memory_is_missing() -> bool:
        return set(await wrong(service)) == {"memory"}

    await eventually(lambda: _listening(service), 20)
    await eventually(only_memory_is_missing, 20)
    assert "memory.history.recall" in (await wrong(service))["memory"]
    js = await bus.jetstream()
    await js.delete_consumer(streams.OUTBOUND, subjects.deliver_durable("web"))
    assert set(await wrong(service)) == {"memory", "deliver web"}
    await js.delete_stream(streams.INBOUND)
    assert "inbound" in await wrong(service)
    assert await service.stop() == 0


async def test_it_waits_for_nats(own_nats: NatsServer, tmp_path: Path) -> None:
    await own_nats.stop()
    service = process(own_nats.url, tmp_path)
    await service.spawn()
    await eventually(lambda: _listening(service), 20)
    assert set(await wrong(service)) == {"nats", "inbound", "deliver web", "memory"}
    async with client(service) as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.post(URL, json={"content": "hi"})).status_code == 503

        await own_nats.start()
        nats = Nats(own_nats)
        await bootstrap(await nats.jetstream(), ["web"])

        async def stored() -> bool:
            return (await http.post(URL, json={"content": "hi"})).status_code == 202

        await eventually(stored, 20)
    await nats.close()
    assert await service.stop() == 0


@pytest.mark.parametrize("with_nats", [True, False])
async def test_sigterm_ends_it_cleanly(
    own_nats: NatsServer, bus: Nats, tmp_path: Path, with_nats: bool
) -> None:
    service = process(bus.url if with_nats else "nats://127.0.0.1:9", tmp_path)
    await service.spawn()
    await eventually(lambda: _listening(service), 20)
    began = time.monotonic()
    service.signal(signal.SIGTERM)
    assert await service.ended() == 0
    assert time.monotonic() - began < 8


async def test_sigterm_ends_it_while_nats_is_away(
    gateway: ServiceProcess, own_nats: NatsServer
) -> None:
    await crash(own_nats)
    service_end = time.monotonic()
    gateway.signal(signal.SIGTERM)
    assert await gateway.ended() == 0
    assert time.monotonic() - service_end < 15
    await own_nats.start()


async def test_a_bus_without_streams_is_refused(nats: Nats, tmp_path: Path) -> None:
    service = process(nats.url, tmp_path)
    await service.spawn()
    assert await service.ended() == 2
    assert "posthouse bootstrap" in service.log.read_text()


async def _listening(service: ServiceProcess) -> bool:
    async with httpx.AsyncClient(timeout=3) as http:
        try:
            return (await http.get(f"{service.health_url}/healthz")).status_code == 200
        except httpx.TransportError:
            return False
