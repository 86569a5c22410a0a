"""The examination of a nats-server that was not set up for Posthouse."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from posthouse.doctor import Finding, Target
from posthouse.doctor.bus import examine
from posthouse.embedded.nats import find_program
from posthouse.embedded.ports import free_port
from posthouse.settings import Settings
from tests.support.wait import eventually

Starter = Callable[[str], Awaitable[str]]


@pytest.fixture
async def configured(tmp_path: Path) -> AsyncIterator[Starter]:
    """Starts a server with this configuration; its URL."""
    started: list[asyncio.subprocess.Process] = []

    async def start(config: str) -> str:
        port = free_port()
        file = tmp_path / f"{port}.conf"
        file.write_text(f"listen: 127.0.0.1:{port}\n{config}\n")
        process = await asyncio.create_subprocess_exec(
            find_program(), "--config", file, stderr=asyncio.subprocess.DEVNULL
        )
        started.append(process)

        async def listens() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
            return True

        await eventually(listens)
        return f"nats://127.0.0.1:{port}"

    yield start
    for process in started:
        process.terminate()
        await process.wait()


async def look(url: str) -> dict[str, Finding]:
    return {finding.name: finding for finding in await examine(Target(Settings(nats_url=url)))}


async def test_jetstream_is_off_and_messages_must_be_small(configured: Starter) -> None:
    found = await look(await configured("max_payload: 65536"))
    assert [(f.name, f.state) for f in found.values()] == [
        ("nats", "ok"),
        ("nats max_payload", "failed"),
        ("nats jetstream", "failed"),
    ]
    assert "max_payload is 65536 bytes" in found["nats max_payload"].text
    assert "`max_payload: 1MB`" in found["nats max_payload"].remedy
    assert "-js" in found["nats jetstream"].remedy


async def test_with_the_remedies_only_the_streams_are_missing(
    configured: Starter, tmp_path: Path
) -> None:
    store = json.dumps(str(tmp_path / "js"))
    found = await look(await configured(f"max_payload: 1MB\njetstream {{ store_dir: {store} }}"))
    assert found["nats"].state == "ok"
    assert not [name for name in found if name.startswith("nats ")]
    assert found["stream INBOUND"].text == "it is missing"


async def test_a_wrong_password_is_told_and_not_shown(configured: Starter) -> None:
    url = await configured("authorization { user: ph, password: right }")
    (finding,) = (await look(url.replace("//", "//ph:wrong-1@"))).values()
    assert finding.state == "failed"
    assert "authorization violation" in finding.text.lower()
    assert "wrong-1" not in str(finding)


@pytest.mark.parametrize("url", ["nats://127.0.0.1:port", "nats://[", ""])
async def test_an_address_that_is_none(url: str) -> None:
    (finding,) = (await look(url)).values()
    assert (finding.name, finding.state) == ("nats", "failed")
    assert "POSTHOUSE_NATS_URL" in finding.remedy
