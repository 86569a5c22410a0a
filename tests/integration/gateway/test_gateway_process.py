"""``python -m gateway``: signals and exit codes."""

import signal
import time
from pathlib import Path

import httpx
import pytest

from posthouse.embedded.nats import NatsServer
from tests.support.processes import ServiceProcess
from tests.support.servers import Nats, crash
from tests.support.wait import eventually

NOWHERE = "nats://127.0.0.1:9"


async def started(nats_url: str, folder: Path) -> ServiceProcess:
    """The process, as soon as it listens."""
    service = ServiceProcess("gateway", {"POSTHOUSE_NATS_URL": nats_url}, folder)
    await service.spawn()

    async def listening() -> bool:
        async with httpx.AsyncClient(timeout=3) as http:
            try:
                return (await http.get(f"{service.health_url}/healthz")).status_code == 200
            except httpx.TransportError:
                return False

    await eventually(listening, 30)
    return service


@pytest.mark.parametrize("with_nats", [True, False])
async def test_sigterm_ends_it_cleanly(bus: Nats, tmp_path: Path, with_nats: bool) -> None:
    service = await started(bus.url if with_nats else NOWHERE, tmp_path)
    began = time.monotonic()
    service.signal(signal.SIGTERM)
    assert await service.ended() == 0
    assert time.monotonic() - began < 8


async def test_sigterm_ends_it_while_nats_is_away(
    bus: Nats, own_nats: NatsServer, tmp_path: Path
) -> None:
    service = await started(bus.url, tmp_path)
    await eventually(lambda: "service.ready" in service.log.read_text(), 10)
    await crash(own_nats)
    service.signal(signal.SIGTERM)
    assert await service.ended() == 0
    await own_nats.start()


async def test_a_bus_without_streams_is_refused(nats: Nats, tmp_path: Path) -> None:
    service = ServiceProcess("gateway", {"POSTHOUSE_NATS_URL": nats.url}, tmp_path)
    await service.spawn()
    assert await service.ended() == 2
    assert "posthouse bootstrap" in service.log.read_text()
