"""The scheduler on a real NATS server."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from posthouse import streams
from posthouse.embedded.nats import NatsServer
from posthouse.errors import Unavailable
from posthouse.rpc import RemotePermanentError, RpcClient
from posthouse.settings import Settings
from scheduler.handlers import LATER, AnyRequest, ListRequest, ListResult
from scheduler.main import serve
from tests.support.processes import ServiceProcess, free_port
from tests.support.servers import Nats, crash
from tests.support.wait import eventually


class Scheduler:
    """The scheduler in this process."""

    def __init__(self, nats_url: str) -> None:
        port = free_port()
        self.ready_url = f"http://127.0.0.1:{port}/readyz"
        self.stop = asyncio.Event()
        settings = Settings(nats_url=nats_url, health_port=port)
        self.task = asyncio.create_task(serve(settings, self.stop))

    async def checks(self) -> dict[str, str]:
        """What ``/readyz`` says; nothing while nobody listens."""
        async with httpx.AsyncClient(timeout=5) as http:
            try:
                return dict((await http.get(self.ready_url)).json()["checks"])
            except httpx.TransportError:
                return {}

    async def ready(self) -> bool:
        return set((await self.checks()).values()) == {"ok"}

    async def end(self) -> None:
        self.stop.set()
        await self.task


@pytest.fixture
async def scheduler(bus: Nats) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(bus.url)
    await eventually(scheduler.ready)
    yield scheduler
    await scheduler.end()


@pytest.fixture
async def rpc(bus: Nats, scheduler: Scheduler) -> RpcClient:
    return RpcClient(await bus.connect())


async def test_list_is_empty_at_first(rpc: RpcClient) -> None:
    assert (await rpc.call("scheduler.list", ListRequest(), ListResult)).schedules == []


async def test_list_answers_the_records_in_order(bus: Nats, rpc: RpcClient) -> None:
    bucket = await (await bus.jetstream()).key_value(streams.SCHEDULES_BUCKET)
    for id in ("b", "a", "gone"):
        await bucket.put(id, b'{"id": "%s"}' % id.encode())
    await bucket.put("broken", b"{")
    await bucket.delete("gone")
    found = await rpc.call("scheduler.list", ListRequest(), ListResult)
    assert [record["id"] for record in found.schedules] == ["a", "b"]


@pytest.mark.parametrize("verb", LATER)
async def test_other_verbs_say_that_they_come_later(rpc: RpcClient, verb: str) -> None:
    with pytest.raises(RemotePermanentError, match="later version") as caught:
        await rpc.call(f"scheduler.{verb}", AnyRequest(), ListResult)
    assert caught.value.details["code"] == "not_supported"


async def test_readiness_says_what_is_wrong(bus: Nats, scheduler: Scheduler) -> None:
    js = await bus.jetstream()
    await js.delete_consumer(streams.CRON, streams.FIRES)
    assert (await scheduler.checks())["fires"].startswith("the durable fires on CRON")
    await js.delete_key_value(streams.SCHEDULES_BUCKET)
    checks = await scheduler.checks()
    assert checks["schedules"].startswith("the bucket schedules")
    assert checks["nats"] == "ok"


async def test_it_survives_a_restart_of_nats(
    own_nats: NatsServer, scheduler: Scheduler, rpc: RpcClient
) -> None:
    await crash(own_nats)

    async def nats_is_away() -> bool:
        return (await scheduler.checks())["nats"] == f"NATS is not connected at {own_nats.url}"

    await eventually(nats_is_away)
    await own_nats.start()
    await eventually(scheduler.ready, 15)

    async def answers() -> bool:
        try:
            found = await rpc.call("scheduler.list", ListRequest(), ListResult)
        except Unavailable:
            return False
        return found.schedules == []

    await eventually(answers, 15)


async def test_it_waits_for_nats(bus: Nats, own_nats: NatsServer) -> None:
    await own_nats.stop()
    scheduler = Scheduler(own_nats.url)

    async def names_all_it_misses() -> bool:
        checks = await scheduler.checks()
        return len(checks) == 4 and "ok" not in checks.values()

    await eventually(names_all_it_misses)
    await own_nats.start()
    await eventually(scheduler.ready, 20)
    await scheduler.end()


async def test_sigterm_ends_the_process_cleanly(
    bus: Nats, own_nats: NatsServer, tmp_path: Path
) -> None:
    service = ServiceProcess("scheduler", {"POSTHOUSE_NATS_URL": bus.url}, tmp_path)
    await service.start()
    began = time.monotonic()
    assert await service.stop() == 0
    assert time.monotonic() - began < 8

    await service.spawn()
    await eventually(partial(_says, service, "service.ready", 2), 30)
    await crash(own_nats)
    service.signal(signal.SIGTERM)
    assert await service.ended() == 0
    await own_nats.start()


def _says(service: ServiceProcess, event: str, times: int) -> bool:
    return service.log.read_text().count(event) >= times
