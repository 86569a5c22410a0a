"""Services that start before their servers wait; on a bus that does not fit they refuse."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.support.processes import ServiceProcess
from tests.support.servers import Nats, crash
from tests.support.wait import eventually

SERVICES = ("memory", "gateway", "scheduler", "agent_worker")


class Services:
    """Processes of all services, not waited for."""

    def __init__(self, nats: Nats, dsn: str, folder: Path) -> None:
        env = {
            "POSTHOUSE_NATS_URL": nats.url,
            "POSTHOUSE_POSTGRES_DSN": dsn,
            "POSTHOUSE_EMBEDDED": "true",
        }
        self.processes = {name: ServiceProcess(name, env, folder) for name in SERVICES}

    async def spawn(self, *names: str) -> list[ServiceProcess]:
        started = [self.processes[name] for name in names]
        await asyncio.gather(*(process.spawn() for process in started))
        return started


@pytest.fixture
async def services(bus: Nats, database: str, tmp_path: Path) -> AsyncIterator[Services]:
    services = Services(bus, database, tmp_path)
    yield services
    await asyncio.gather(*(process.stop() for process in services.processes.values()))


async def _says(process: ServiceProcess, words: str) -> bool:
    """Whether ``/readyz`` holds these words; nobody may listen yet."""
    async with httpx.AsyncClient(timeout=5) as http:
        try:
            return words in (await http.get(f"{process.health_url}/readyz")).text
        except httpx.TransportError:
            return False


async def test_they_wait_for_nats_and_say_so(bus: Nats, services: Services) -> None:
    await crash(bus.server)
    for process in await services.spawn(*SERVICES):
        missing = f"NATS is not connected at {bus.url}"
        await eventually(partial(_says, process, missing), 40, process.package)
    await bus.server.start()
    for process in services.processes.values():
        await eventually(partial(_says, process, '"ready":true'), 40, process.package)


async def test_they_refuse_a_bus_without_a_stream(bus: Nats, services: Services) -> None:
    await (await bus.jetstream()).delete_stream("DLQ")
    for process in await services.spawn("gateway", "scheduler", "agent_worker"):
        assert await process.ended() == 2
        assert "stream DLQ is missing; run `posthouse bootstrap`" in process.log.read_text()
