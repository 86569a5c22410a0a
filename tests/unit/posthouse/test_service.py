"""How a service process starts and ends, seen from outside."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from posthouse import service
from posthouse.errors import Busy, Unavailable

TIMEOUT_S = 30
SERVE = """
import asyncio
from posthouse import errors, service

async def serve(settings, stop):
    print("serving", flush=True)
    {body}

service.run("tiny", serve)
"""


def start(body: str, **environment: str) -> "subprocess.Popen[str]":
    """A service whose ``serve`` does this."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVE.format(body=body)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def events(log: str) -> list[dict[str, object]]:
    """The log, which is JSON line by line."""
    return [json.loads(line) for line in log.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(number: signal.Signals) -> None:
    """G8."""
    with start("await stop.wait()") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        process.send_signal(number)
        _, log = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert [event["event"] for event in events(log)] == ["service.starting", "service.stopped"]
    assert {event["service"] for event in events(log)} == {"tiny"}


def test_a_bad_configuration_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "posthouse.yaml"
    file.write_text("slots: 1\nslotz: 2\n")
    with start("await stop.wait()", POSTHOUSE_CONFIG=str(file)) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (2, "")
    assert err == f"posthouse tiny: {file}:2: slotz: there is no such key\n"


@pytest.mark.parametrize(
    ("error", "code", "event"),
    [
        ("PermanentError", 2, "service.refused"),
        ("Unavailable", 1, "service.failed"),
    ],
)
def test_the_exit_code_tells_whether_an_operator_must_act(
    error: str, code: int, event: str
) -> None:
    with start(f'raise errors.{error}("stream X is missing")') as process:
        _, log = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code
    last = events(log)[-1]
    assert (last["event"], last["reason"]) == (event, "stream X is missing")


def test_what_nobody_foresaw_shows_where_it_happened() -> None:
    with start("1 / 0") as process:
        _, log = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "ZeroDivisionError" in log


class Server:
    """Comes up at the given try."""

    def __init__(self, up_at: int, error: Exception | None = None) -> None:
        self.tries = 0
        self._up_at = up_at
        self._error = error or Unavailable("not there")

    async def start(self) -> None:
        """One try."""
        self.tries += 1
        if self.tries < self._up_at:
            raise self._error


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(service, "RETRY_S", 0)


@pytest.mark.usefixtures("no_pause")
async def test_it_waits_for_a_server_that_is_not_there_yet() -> None:
    server = Server(up_at=4)
    await service.patiently(server.start, asyncio.Event())
    assert server.tries == 4


@pytest.mark.usefixtures("no_pause")
async def test_its_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "START_PATIENCE_S", 0)
    with pytest.raises(Unavailable, match="not there"):
        await service.patiently(Server(up_at=1000).start, asyncio.Event())


async def test_a_stop_ends_the_waiting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RETRY_S", TIMEOUT_S * 10)
    stop, server = asyncio.Event(), Server(up_at=1000)
    waiting = asyncio.create_task(service.patiently(server.start, stop))
    await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(waiting, TIMEOUT_S)
    assert server.tries == 1


@pytest.mark.parametrize("error", [Busy("full"), RuntimeError("broken")])
async def test_only_a_missing_server_is_waited_for(error: Exception) -> None:
    server = Server(up_at=2, error=error)
    with pytest.raises(type(error)):
        await service.patiently(server.start, asyncio.Event())
    assert server.tries == 1


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    swallowed: list[int] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed:
                    raise
                swallowed.append(1)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await service.end(task, asyncio.create_task(asyncio.sleep(0)))
    assert task.cancelled()
    assert swallowed == [1]
