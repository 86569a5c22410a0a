"""What is examined, and that one examiner cannot silence the others."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posthouse import discovery
from posthouse.doctor import Examiner, Finding, Target, checkup, ok
from posthouse.embedded.datadir import DataDir, StackInfo
from posthouse.errors import ConfigError
from posthouse.settings import Settings

SERVERS = {"POSTHOUSE_NATS_URL": "nats://127.0.0.1:1", "POSTHOUSE_POSTGRES_DSN": "postgresql://x"}
INFO = StackInfo("http://x", "nats://127.0.0.1:2", "postgresql://stack", 7, {})


class Examiners:
    """What is found in place of the installed ones."""

    def __init__(self) -> None:
        self.found: dict[str, Examiner] = {}
        self.seen: list[Target] = []

    def __call__(self, group: str) -> Iterator[tuple[str, Any]]:
        assert group == "posthouse.doctor"
        yield "mine", self.examine
        yield from self.found.items()

    async def examine(self, target: Target) -> list[Finding]:
        self.seen.append(target)
        return [ok("mine", "fine")]


@pytest.fixture
def examiners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Examiners:
    monkeypatch.chdir(tmp_path)
    examiners = Examiners()
    monkeypatch.setattr(discovery, "in_entry_points", examiners)
    return examiners


async def look(folder: Path) -> dict[str, Finding]:
    return {finding.name: finding for finding in await checkup.examine(folder / "data")}


async def test_without_stack_and_servers_it_says_how_to_start(
    examiners: Examiners, tmp_path: Path
) -> None:
    found = await look(tmp_path)
    assert (found["stack"].state, found["mine"].state) == ("failed", "ok")
    assert f"`posthouse up --data-dir {tmp_path / 'data'}`" in found["stack"].remedy
    assert "nats" not in found
    assert [target.servers for target in examiners.seen] == [False]


@pytest.mark.parametrize("named", SERVERS)
async def test_servers_that_are_named_are_examined(
    examiners: Examiners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv(named, SERVERS[named])
    found = await look(tmp_path)
    assert "nats" in found
    assert "stack" not in found
    assert [target.servers for target in examiners.seen] == [True]


async def test_a_running_stack_comes_first(
    examiners: Examiners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTHOUSE_NATS_URL", SERVERS["POSTHOUSE_NATS_URL"])
    data = DataDir(tmp_path / "data")
    with data.lock():
        data.publish(INFO)
        found = await look(tmp_path)
    assert INFO.nats_url in found["nats"].text
    assert "POSTHOUSE_NATS_URL is nats://127.0.0.1:1" in found["environment"].text
    assert "`unset POSTHOUSE_NATS_URL`" in found["environment"].remedy
    assert f"see {data.logs / 'nats.log'}" in found["nats"].remedy
    (target,) = examiners.seen
    assert target.settings.postgres_dsn == INFO.postgres_dsn
    assert target.command("migrate", "POSTHOUSE_POSTGRES_DSN") == (
        "`POSTHOUSE_POSTGRES_DSN=postgresql://stack migrate`"
    )


async def test_a_stack_that_starts_is_no_conflict(examiners: Examiners, tmp_path: Path) -> None:
    with DataDir(tmp_path / "data").lock():
        found = await look(tmp_path)
    assert f"process {os.getpid()}" in found["stack"].text
    assert not [name for name in found if name.startswith("port")]


async def test_a_service_that_does_not_answer(examiners: Examiners, tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    info = StackInfo(*vars(INFO).values())
    info.ready_urls["memory"] = "http://127.0.0.1:1/readyz"
    with data.lock():
        data.publish(info)
        found = await look(tmp_path)
    assert "does not answer: ConnectError" in found["memory"].text
    assert str(data.logs / "memory.log") in found["memory"].remedy


async def test_an_examiner_that_fails(
    examiners: Examiners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(_: Target) -> list[Finding]:
        raise ZeroDivisionError("oh")

    async def hang(_: Target) -> list[Finding]:
        await asyncio.Event().wait()
        return []

    examiners.found = {"crash": crash, "hang": hang}
    monkeypatch.setattr(checkup, "TIMEOUT_S", 0.2)
    found = await look(tmp_path)
    assert found["crash"].text == "the examination failed: ZeroDivisionError: oh"
    assert found["hang"].text == "the examination took longer than 0.2 s"
    assert found["mine"].state == "ok"


async def test_an_examiner_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(group: str) -> Iterator[tuple[str, Any]]:
        raise ConfigError(f"entry point x of {group}: ImportError: no y")

    monkeypatch.setattr(discovery, "in_entry_points", broken)
    monkeypatch.chdir(tmp_path)
    assert "ImportError" in (await look(tmp_path))["examiners"].text


def test_a_command_is_given_only_what_it_lacks() -> None:
    target = Target(Settings(), environment={"A": "x", "B": "z", "POSTHOUSE_CONFIG": "x y"})
    assert target.command("migrate", "A") == "`A=x POSTHOUSE_CONFIG='x y' migrate`"
    assert target.command("migrate", "C") == "`POSTHOUSE_CONFIG='x y' migrate`"
    assert Target(Settings()).command("migrate", "A") == "`migrate`"
