"""Child processes: bounded in time and output, and always ended."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from agent_worker.workspace.processes import HEAD_BYTES, TAIL_BYTES, Output, run
from tests.support.wait import eventually

PATH = {"PATH": "/usr/bin:/bin"}


def sh(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "sh", *arguments]


async def test_it_says_what_happened() -> None:
    finished = await run(sh("cat; echo 你好 >&2; exit 3"), PATH, 30, b"in ")
    assert finished == ("in 你好\n", 3)


async def test_nothing_of_our_environment_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hidden")
    finished = await run([sys.executable, "-c", "import os; print(os.environ)"], PATH, 30)
    assert "PATH" in finished.output
    assert "hidden" not in finished.output


async def test_what_cannot_be_started_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await run(["/nonexistent/program"], PATH, 30)


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_the_whole_group_is_killed(how: str, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = 'sh -c "echo \\$\\$ > $1.new; mv $1.new $1; exec sleep 300" & wait'
    task = asyncio.create_task(run(sh(script, str(file)), PATH, 1 if how == "timeout" else 60))
    await eventually(file.exists, 30)
    grandchild = int(file.read_text())
    if how == "cancel":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert (await task).code is None
    await eventually(lambda: not _lives(grandchild), 30)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_endless_output_is_cut_and_does_not_hold_up_the_end() -> None:
    async with asyncio.timeout(30):
        finished = await run(sh("yes 长长的一行"), PATH, 1)
    assert finished.code is None
    assert "bytes left out" in finished.output
    assert len(finished.output.encode()) < HEAD_BYTES + TAIL_BYTES + 200


def test_head_and_tail_are_kept() -> None:
    output = Output()
    for number in range(100_000):
        output.add(f"{number}\n".encode())
    text = output.text()
    assert text.startswith("0\n1\n2\n")
    assert text.endswith("99998\n99999\n")
    assert "bytes left out" in text


def test_a_character_on_the_border_is_whole() -> None:
    output = Output()
    said = "x" + "长" * (HEAD_BYTES // 3)
    output.add(said.encode())
    assert output.text() == said
