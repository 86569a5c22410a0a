"""The tool ``write``."""

from pathlib import Path

import pytest

from agent_worker.tool import runs_again
from agent_worker.tools.write import write_tool
from tests.unit.agent_worker.tools.workspace import LIMIT, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "workspaces" / "im.cli.local", write_tool(LIMIT))


async def test_a_file_and_its_folders_are_made(desk: Desk) -> None:
    said = await desk.call("write", path="报告/第一章.md", content="# 标题\n正文")
    assert said == "Created 报告/第一章.md: 15 bytes, lines: 2."
    assert (desk.root / "报告/第一章.md").read_text() == "# 标题\n正文"


async def test_a_file_is_replaced_whole(desk: Desk) -> None:
    file = desk.put("a", "something longer")
    assert await desk.call("write", path="a", content="") == "Replaced a: 0 bytes, lines: 0."
    assert file.read_bytes() == b""


async def test_line_ends_stay_as_they_are(desk: Desk) -> None:
    await desk.call("write", path="a", content="a\r\nb\n")
    assert (desk.root / "a").read_bytes() == b"a\r\nb\n"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../a", "outside of the working directory"),
        ("/etc/cron.d/x", "outside of the working directory"),
        ("..\\a", "separate folders with /"),
        ("", "is a folder"),
        ("a\n", "control characters"),
    ],
)
async def test_a_bad_path_is_told(desk: Desk, path: str, why: str) -> None:
    said = await desk.call("write", path=path, content="x")
    assert said.startswith("Error: ")
    assert why in said
    assert not desk.root.exists() or list(desk.root.iterdir()) == []


async def test_too_much_is_refused_and_nothing_is_lost(desk: Desk) -> None:
    desk.put("a", "before")
    said = await desk.call("write", path="a", content="x" * (LIMIT + 1))
    assert "of at most 65,536 bytes" in said
    assert (desk.root / "a").read_text() == "before"


def test_it_may_run_again_after_a_crash() -> None:
    assert runs_again(write_tool(LIMIT))
    assert write_tool(LIMIT).access == "write"
