"""``posthouse up`` with everything real."""

import signal
import socket
from collections.abc import AsyncIterator

import httpx
import psutil
import pytest

from tests.support.stack import Up, alive, run_cli, stack
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
async def up() -> AsyncIterator[Up]:
    async with stack() as running:
        yield running


async def send(up: Up, text: str) -> str:
    result = await run_cli("send", text, "--data-dir", str(up.data_dir))
    assert result.code == 0, result
    return result.out


async def test_it_answers_stops_cleanly_and_remembers(up: Up) -> None:
    ready = await up.start()
    async with httpx.AsyncClient(base_url=ready["http_url"], timeout=5) as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/readyz")).status_code == 200
    assert "395" in await send(up, "17*23+4 等于多少")

    second = await run_cli("up", "--data-dir", str(up.data_dir))
    assert second.code == 1
    assert "in use by another posthouse" in second.err

    processes = up.processes()
    # nats, postgres, memory, gateway, scheduler and two workers
    assert len(processes) >= 7
    result = await up.stop(signal.SIGINT)
    assert result.code == 0, result
    assert alive(processes) == []

    await up.start()
    assert "17*23+4" in await send(up, "我上一条消息是什么")
    processes = up.processes()
    result = await up.stop(signal.SIGTERM)
    assert result.code == 0, result
    assert alive(processes) == []


async def test_killed_parts_come_back_and_a_killed_whole_does_too(up: Up) -> None:
    ready = await up.start()
    killed = [*flat(ready["pids"])]
    for pid in killed:
        psutil.Process(pid).kill()
    await eventually(lambda: not set(killed) & {*flat(up.ready()["pids"])}, 90)
    assert "12" in await send(up, "3*4")

    processes = up.processes()
    up.process.kill()
    await up.end()
    await up.start()
    assert alive(processes) == []
    assert "3*4" in await send(up, "what did I say last?")


async def test_a_port_in_use_is_named(up: Up) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        await up.spawn("--http-port", port)
        result = await up.end()
    assert result.code == 1
    assert f"port {port} cannot be used" in result.err
    assert "--http-port" in result.err


def flat(pids: dict[str, int | list[int]]) -> list[int]:
    return [
        pid for value in pids.values() for pid in (value if isinstance(value, list) else [value])
    ]
