"""Child processes: logs, ends, and what happens when their parent is killed."""

import asyncio
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from posthouse.embedded import process as process_module
from posthouse.embedded.process import Program, StartError
from posthouse.embedded.spawn import Command
from tests.support.stack import alive
from tests.support.wait import eventually

PARENT = """
import asyncio, sys
from pathlib import Path
from posthouse.embedded.process import Program
from posthouse.embedded.spawn import Command

program = Program("p", Command(("sleep", "60")), Path(sys.argv[1]))
program.spawn()
print(program.pid, flush=True)
program._process.wait()
"""


def python(code: str, stdin: bytes = b"") -> Command:
    return Command((sys.executable, "-SE", "-c", code), stdin=stdin)


async def test_a_program_runs_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "p.log"
    await Program("p", python("import sys; print(sys.stdin.read())", b"hello"), log).run(10)
    assert log.read_text() == "hello\n"


async def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    log = tmp_path / "p.log"
    log.write_text("an older line\n")
    with pytest.raises(StartError) as failure:
        await Program("p", python("import sys; sys.exit('because')"), log).run(10)
    assert failure.value.message.endswith(f"p ended with exit code 1. The end of {log}:\nbecause")
    assert failure.value.details == {"process": "p", "exit_code": 1}


async def test_a_program_that_hangs_is_killed(tmp_path: Path) -> None:
    program = Program("p", python("import signal; signal.pause()"), tmp_path / "p.log")
    with pytest.raises(StartError, match=r"did not end in 0\.1 s"):
        await program.run(0.1)
    assert await program.ended(5)


async def test_only_the_end_of_a_long_log_is_shown(tmp_path: Path) -> None:
    code = "print(*range(3000), sep='\\n'); raise SystemExit(1)"
    with pytest.raises(StartError) as failure:
        await Program("p", python(code), tmp_path / "p.log").run(10)
    assert failure.value.message.split("\n")[1:] == [str(n) for n in range(2988, 3000)]


async def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(free=2048))
    with pytest.raises(StartError, match="only 2 kB of disk space are left"):
        await Program("p", python("raise SystemExit(1)"), tmp_path / "p.log").run(10)


async def test_a_large_log_is_rotated_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "MAX_LOG_BYTES", 10)
    log = tmp_path / "p.log"
    log.write_text("x" * 11)
    await Program("p", python("print('new')"), log).run(10)
    assert log.read_text() == "new\n"
    assert (tmp_path / "p.log.1").read_text() == "x" * 11


async def test_a_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "p.log"
    await Program("p", python("import os; print(os.getsid(0) == os.getpid())"), log).run(10)
    assert log.read_text() == "True\n"


async def test_a_child_ends_with_its_killed_parent(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path / "p.log"), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await eventually(lambda: not alive([child]))
