"""``posthouse up`` with the real servers and stand-ins for the services."""

import json
import signal
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.stack import Result, Up, alive, run_cli, stack, standin_env
from tests.support.wait import eventually

SERVICES = ["agent-worker", "gateway", "memory", "nats", "postgres", "scheduler"]


@pytest.fixture
def steering(tmp_path: Path) -> Path:
    return tmp_path / "standins"


@pytest.fixture
async def up(steering: Path) -> AsyncIterator[Up]:
    async with stack(standin_env(steering)) as running:
        yield running


def trace(steering: Path) -> list[str]:
    return (steering / "trace").read_text().split("\n")[:-1]


def has_another(up: Up, name: str, pid: int) -> bool:
    return bool(up.ready()["pids"][name] != pid)


async def test_start_second_instance_and_stop(up: Up, steering: Path) -> None:
    ready = await up.start("--workers", "2")
    assert sorted(ready["pids"]) == SERVICES
    assert len(ready["pids"]["agent-worker"]) == 2
    assert workspaces(ready) == up.data_dir.resolve() / "workspaces"
    assert json.loads((up.data_dir / "stack.json").read_text()) == ready

    second = await run_cli("up", "--data-dir", str(up.data_dir))
    assert second.code == 1
    assert f"in use by another posthouse (process {up.process.pid})" in second.err

    processes = up.processes()
    result = await up.stop(signal.SIGINT)
    assert result.code == 0
    assert "Posthouse is ready" in result.out
    assert ready["http_url"] in result.out
    assert alive(processes) == []
    assert not up.ready_file.exists()
    assert not (up.data_dir / "stack.json").exists()
    events = trace(steering)
    assert events.index("migrate") < events.index("start memory")
    assert events[-5:] == [
        "stop gateway",
        "stop scheduler",
        "stop agent_worker",
        "stop agent_worker",
        "stop memory",
    ]


def workspaces(ready: dict[str, Any]) -> Path:
    """Where the workers were told to keep the files of conversations."""
    environment = psutil.Process(ready["pids"]["agent-worker"][0]).environ()
    return Path(environment["POSTHOUSE_WORKSPACE_DIR"])


async def test_files_of_conversations_lie_where_the_configuration_says(
    steering: Path, tmp_path: Path
) -> None:
    env = standin_env(steering) | {"POSTHOUSE_WORKSPACE_DIR": str(tmp_path / "files")}
    async with stack(env) as up:
        assert workspaces(await up.start("--workers", "1")) == tmp_path / "files"


async def test_whatever_dies_is_started_again(up: Up) -> None:
    ready = await up.start("--workers", "1")
    for name in ("gateway", "nats", "postgres"):
        before = up.ready()["pids"]
        psutil.Process(before[name]).kill()
        await eventually(partial(has_another, up, name, before[name]), 20)
    after = up.ready()
    assert after["pids"]["memory"] == ready["pids"]["memory"]
    assert after["http_url"] == ready["http_url"]
    assert (await up.stop(signal.SIGTERM)).code == 0


async def test_kill_9_takes_all_along_and_a_start_at_once_works(up: Up) -> None:
    before = await up.start("--workers", "1")
    processes = up.processes()
    up.process.kill()
    await up.end()
    after = await up.start("--workers", "1")
    assert after["pid"] != before["pid"]
    assert alive(processes) == []
    assert (await up.stop(signal.SIGTERM)).code == 0


async def test_a_service_that_refuses_to_start_stops_everything(up: Up, steering: Path) -> None:
    (steering / "scheduler.exit").write_text("2")
    await up.spawn("--workers", "0")
    result = await up.end()
    assert result.code == 1
    assert "scheduler ended with exit code 2" in result.err
    assert "scheduler: this is why" in result.err
    assert result.err.count("this is why") == 1
    assert not up.ready_file.exists()


async def test_a_service_that_never_comes_up_stops_everything(up: Up, steering: Path) -> None:
    (steering / "gateway.exit").write_text("1")
    await up.spawn("--workers", "0")
    result = await up.end()
    assert result.code == 1
    assert "gateway: this is why" in result.err


async def test_ctrl_c_while_it_starts(up: Up) -> None:
    await up.spawn("--workers", "0")
    await eventually(lambda: (up.data_dir / "postgres").exists(), 20)
    processes = up.processes()
    result = await up.stop(signal.SIGINT)
    assert result.code == 0
    assert alive(processes) == []


async def test_a_second_ctrl_c_ends_it_at_once(up: Up, steering: Path) -> None:
    (steering / "gateway.stubborn").touch()
    await up.start("--workers", "0")
    processes = up.processes()
    up.process.send_signal(signal.SIGINT)
    await eventually(lambda: not up.ready_file.exists())
    result = await up.stop(signal.SIGINT)
    assert result.code == 130
    await eventually(lambda: not alive(processes))


@pytest.mark.parametrize("option", ["--http-port", "--nats-port", "--postgres-port"])
async def test_a_port_in_use_is_named(up: Up, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        await up.spawn(option, port)
        result: Result = await up.end()
    assert result.code == 1
    assert f"port {port} cannot be used: address already in use" in result.err
    assert option in result.err


async def test_a_bad_configuration_file_is_named(up: Up, tmp_path: Path) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text("nats_url: nats://x\nnonsense: 1\n")
    await up.spawn("--config", str(config))
    result = await up.end()
    assert result.code == 2
    assert f"{config}:2: nonsense" in result.err
    assert not up.data_dir.exists()


async def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = await run_cli("up", "--data-dir", str(tmp_path / "file" / "data"))
    assert result.code == 1
    assert "cannot write to" in result.err
    assert "--data-dir" in result.err


async def test_a_ready_file_without_directory(tmp_path: Path) -> None:
    result = await run_cli(
        "up", "--ready-file", str(tmp_path / "none" / "ready.json"), cwd=tmp_path
    )
    assert result.code == 2
    assert "there is no directory" in result.err
