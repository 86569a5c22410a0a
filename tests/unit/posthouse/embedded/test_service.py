"""Our services as children: when they are ready, and what becomes of those left over."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from posthouse.embedded.datadir import DataDir
from posthouse.embedded.ports import free_port
from posthouse.embedded.process import StartError
from posthouse.embedded.service import (
    STACK_VARIABLE,
    Refused,
    Service,
    ServiceSpec,
    end_orphans,
)
from posthouse.errors import ConfigError
from tests.support.stack import alive

ANSWER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
answers = sys.argv[2:]
while True:
    client, _ = server.accept()
    client.recv(1000)
    client.sendall(answers[0].encode())
    client.close()
    answers = answers[1:] or answers
"""
READY = "HTTP/1.1 200 OK\r\n\r\n"
NOT_YET = "HTTP/1.1 503 Service Unavailable\r\n\r\n"


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    data = DataDir(tmp_path / "d")
    with data.lock():
        return data


def answering(data: DataDir, *answers: str) -> Service:
    port = free_port()
    args = ("-SE", "-c", ANSWER, str(port), *answers)
    return Service(ServiceSpec("answering", args, port), data)


@pytest.mark.parametrize("first", ["", "not http\r\n", NOT_YET])
async def test_it_is_ready_when_it_says_200(data: DataDir, first: str) -> None:
    service = answering(data, first or READY, READY)
    await service.start()
    assert service.running
    assert (data.run / "answering.pid").read_text() == str(service.pid)
    await service.stop()


async def test_one_that_answers_503_is_not_ready(data: DataDir) -> None:
    service = answering(data, NOT_YET)
    service.spawn()
    assert not await service.is_ready()
    await service.stop()


async def test_one_that_does_not_listen_is_not_ready(data: DataDir) -> None:
    service = Service(ServiceSpec("silent", (), free_port()), data)
    assert not await service.is_ready()


REFUSE = """
import json, sys
print("{}")
print(json.dumps({"event": "service.refused", "reason": "slots is odd"}))
sys.exit(%d)
"""


async def test_one_that_refuses_says_why_in_one_line(data: DataDir) -> None:
    service = Service(ServiceSpec("odd", ("-SE", "-c", REFUSE % 2), free_port()), data)
    with pytest.raises(Refused) as failure:
        await service.start()
    assert isinstance(failure.value, ConfigError)
    assert failure.value.message == "odd: slots is odd"


@pytest.mark.parametrize("code", [REFUSE % 1, "import sys; print('no json'); sys.exit(2)"])
async def test_one_that_fails_otherwise_shows_its_log(data: DataDir, code: str) -> None:
    service = Service(ServiceSpec("odd", ("-SE", "-c", code), free_port()), data)
    with pytest.raises(StartError, match=r"odd ended with exit code \d. The end of") as failure:
        await service.start()
    assert not isinstance(failure.value, ConfigError)


async def test_a_left_over_service_is_ended(data: DataDir) -> None:
    pause = (sys.executable, "-SE", "-c", "import signal; signal.pause()")
    ours = {**os.environ, STACK_VARIABLE: str(data.root)}
    left_over = await asyncio.create_subprocess_exec(*pause, env=ours)
    foreign = await asyncio.create_subprocess_exec(*pause)
    (data.run / "gateway.pid").write_text(str(left_over.pid))
    (data.run / "memory.pid").write_text(str(foreign.pid))
    (data.run / "scheduler.pid").write_text("no number")
    await end_orphans(data)
    assert alive([psutil.Process(foreign.pid)])
    assert await left_over.wait() == -9
    foreign.kill()
    await foreign.wait()
