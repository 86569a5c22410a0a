"""The supervisor, with small scripts as servers."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from posthouse.embedded.process import Server, StartError
from posthouse.embedded.spawn import Command
from posthouse.embedded.supervisor import Supervisor
from tests.support.wait import eventually

SERVE = """
import os, pathlib, signal, sys
here = pathlib.Path(sys.argv[1])
def leave(*_):
    with here.joinpath("trace").open("a") as trace:
        trace.write(sys.argv[2] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
here.joinpath(sys.argv[2]).write_text(str(os.getpid()))
while True:
    signal.pause()
"""
REFUSE = """
import pathlib, sys
with pathlib.Path(sys.argv[1], "attempts").open("a") as attempts:
    attempts.write("x")
print("this is why", flush=True)
sys.exit(%d)
"""
SUCCEED_LATER = f"""
import pathlib, sys
attempts = pathlib.Path(sys.argv[1], "attempts")
attempts.write_text((attempts.read_text() if attempts.exists() else "") + "x")
if attempts.read_text() == "x":
    sys.exit(1)
{SERVE}
"""
STUBBORN = SERVE.replace("signal.SIGTERM, leave", "signal.SIGTERM, signal.SIG_IGN")


class Script(Server):
    """A Python script; ready when it has written its process id into the file of its name."""

    grace_s = 0.3
    start_timeout_s = 10.0

    def __init__(self, directory: Path, name: str = "one", code: str = SERVE) -> None:
        super().__init__(name, directory / f"{name}.log")
        self._directory = directory
        self._code = code

    def command(self) -> Command:
        # -S -E: no site packages, which makes the start five times faster.
        return Command((sys.executable, "-SE", "-c", self._code, self._directory, self.name))

    async def is_ready(self) -> bool:
        file = self._directory / self.name
        return file.exists() and file.read_text() == str(self.pid)


class Changes:
    """Counts the calls of ``changed``."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
async def supervisor(changes: Changes) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(changes)
    yield supervisor
    supervisor.kill()
    await supervisor.stop([])


async def test_a_server_that_dies_is_started_again(
    tmp_path: Path, supervisor: Supervisor, changes: Changes
) -> None:
    server = Script(tmp_path)
    await supervisor.start(server)
    for round_ in (1, 2):
        before = server.pid
        os.kill(before, signal.SIGKILL)
        await eventually(lambda r=round_: changes.count == r)  # type: ignore[misc]
        assert server.pid != before
        assert server.running


async def test_a_server_that_refuses_is_not_tried_again(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    with pytest.raises(StartError, match="ended with exit code 2") as failure:
        await supervisor.start(Script(tmp_path, code=REFUSE % 2))
    assert "this is why" in failure.value.message
    assert (tmp_path / "attempts").read_text() == "x"


async def test_a_server_that_never_comes_up_is_given_up(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    with pytest.raises(StartError, match="this is why") as failure:
        await supervisor.start(Script(tmp_path, code=REFUSE % 1))
    assert (tmp_path / "attempts").read_text() == "xxx"
    assert failure.value.message.count("this is why") == 1


async def test_one_failed_start_is_forgiven(tmp_path: Path, supervisor: Supervisor) -> None:
    server = Script(tmp_path, code=SUCCEED_LATER)
    await supervisor.start(server)
    assert server.running


async def test_a_server_that_is_not_ready_in_time_is_killed(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    server = Script(tmp_path, code="import signal; signal.pause()")
    server.start_timeout_s = 0.1
    with pytest.raises(StartError, match=r"was not ready in 0\.1 s"):
        await server.start()
    assert await server.ended(5)


async def test_groups_stop_one_after_the_other(tmp_path: Path, supervisor: Supervisor) -> None:
    first, *second = (Script(tmp_path, name) for name in ("a", "b", "c"))
    await asyncio.gather(*(supervisor.start(server) for server in (first, *second)))
    await supervisor.stop([second, [first]])
    trace = (tmp_path / "trace").read_text().split()
    assert trace[-1] == "a"
    assert sorted(trace) == ["a", "b", "c"]
    assert [server.exit_code for server in (first, *second)] == [0, 0, 0]


async def test_what_stops_is_not_started_again(
    tmp_path: Path, supervisor: Supervisor, changes: Changes
) -> None:
    server = Script(tmp_path)
    await supervisor.start(server)
    await supervisor.stop([[server]])
    assert (server.running, changes.count) == (False, 0)


async def test_one_that_does_not_stop_is_killed_after_its_grace(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    server = Script(tmp_path, code=STUBBORN)
    await supervisor.start(server)
    started = time.monotonic()
    await supervisor.stop([[server]])
    assert server.exit_code == -signal.SIGKILL
    assert time.monotonic() - started >= server.grace_s


async def test_stopping_during_a_restart_leaves_nothing(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    server = Script(tmp_path)
    await supervisor.start(server)
    before = server.pid
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: server.pid != before)
    await supervisor.stop([[server]])
    assert not psutil.pid_exists(server.pid)
