"""How findings are printed."""

import json
import pty
import subprocess
import sys
from os import read
from pathlib import Path

import pytest

from posthouse.cli.doctor import summary
from posthouse.doctor import Finding, failed, ok, warning
from tests.support.stack import run_cli

GOOD, ODD, BAD = ok("a", "fine"), warning("b", "odd", "x"), failed("c", "broken", "y")


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ([GOOD, GOOD], "all 2 checks are ok"),
        ([GOOD, ODD], "1 warning, 1 ok"),
        ([GOOD, ODD, BAD, BAD], "2 failed, 1 warning, 1 ok"),
        ([BAD], "1 failed"),
    ],
)
def test_the_last_line_counts(findings: list[Finding], said: str) -> None:
    assert summary(findings) == said


async def test_lines_hold_state_name_text_and_remedy(tmp_path: Path) -> None:
    result = await run_cli("doctor", "--data-dir", str(tmp_path), cwd=tmp_path)
    assert (result.code, result.err) == (1, "")
    lines = result.out.splitlines()
    assert lines[0] == "ok       configuration: the configuration can be read"
    assert lines[1].startswith(f"failed   stack: nothing runs in {tmp_path}")
    assert lines[2] == f"         -> start it with `posthouse up --data-dir {tmp_path}`"


async def test_json_holds_the_same(tmp_path: Path) -> None:
    result = await run_cli("doctor", "--json", "--data-dir", str(tmp_path), cwd=tmp_path)
    report = json.loads(result.out)
    assert report["healthy"] is False
    assert report["findings"][0]["name"] == "configuration"


def test_a_terminal_gets_colours(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "posthouse", "doctor"],
        stdout=theirs,
        cwd=tmp_path,
        env={"TERM": "xterm", "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    shown = read(ours, 65536).decode()
    assert done.returncode == 1
    assert "\x1b[1;31mfailed" in shown
    assert "`posthouse up`" in shown
