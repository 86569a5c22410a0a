"""The command line itself: version, help, and errors in clear words."""

import subprocess
import sys
from pathlib import Path

import pytest

from posthouse import __version__
from posthouse.cli import main as cli
from tests.support.stack import run_cli

HEAVY = ("nats", "faststream", "pydantic", "asyncpg", "httpx", "psutil", "yaml", "prompt_toolkit")


async def test_version() -> None:
    result = await run_cli("--version")
    assert (result.code, result.out) == (0, f"posthouse {__version__}\n")


async def test_help_names_every_command() -> None:
    result = await run_cli("--help")
    assert result.code == 0
    for command in ("up", "chat", "send", "events", "bootstrap"):
        assert f" {command} " in result.out


def test_importing_the_command_line_is_cheap() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, posthouse.cli.main; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert not set(HEAVY) & set(done.stdout.split())


@pytest.mark.parametrize("command", ["chat", "send", "events", "bootstrap"])
async def test_without_a_stack_it_says_what_to_do(tmp_path: Path, command: str) -> None:
    arguments = ("hi",) if command == "send" else ()
    result = await run_cli(command, *arguments, cwd=tmp_path)
    assert (result.code, result.out) == (1, "")
    assert "no running posthouse in .posthouse" in result.err
    assert "`posthouse up`" in result.err
    assert "POSTHOUSE_NATS_URL" in result.err


@pytest.mark.parametrize("command", ["chat", "send", "events", "bootstrap"])
async def test_a_bus_that_does_not_answer_is_named(command: str) -> None:
    arguments = ("hi",) if command == "send" else ()
    result = await run_cli(
        command, *arguments, env={"POSTHOUSE_NATS_URL": "nats://user:secret@127.0.0.1:1"}
    )
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "posthouse: NATS does not answer at 127.0.0.1:1 (POSTHOUSE_NATS_URL): connection refused\n"
    )
    assert "secret" not in result.err


def test_an_error_of_the_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device", "/data/x")

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as ending:
        cli.main()
    assert ending.value.code == 1
    assert capsys.readouterr().err == "posthouse: /data/x: No space left on device\n"
