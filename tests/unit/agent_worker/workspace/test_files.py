"""Files of a workspace, against links, races, odd files and sudden death."""

import asyncio
import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from agent_worker.tool import ToolError
from agent_worker.workspace import files
from agent_worker.workspace.files import ENTRY_BYTES, LEFT_OVER_S, PART_PREFIX, Workspace
from tests.support.wait import eventually

MB = 1 << 20
AT_FDCWD, RENAME_EXCHANGE = -100, 2
SECRET = b"secret of another conversation"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace, with a secret."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "f").write_bytes(SECRET)
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with ``a/f``."""
    made = Workspace(tmp_path / "ws")
    made.replace(("a", "f"), b"mine", MB)
    return made


def contents(workspace: Workspace, path: str) -> bytes:
    return workspace.contents(workspace.parse(path), MB)


def write(workspace: Workspace, path: str, data: bytes = b"new", limit: int = MB) -> bool:
    return workspace.replace(workspace.parse(path), data, limit)


def found(workspace: Workspace) -> list[str]:
    return [file.path for file in workspace.walk()]


def test_folders_and_files_are_for_this_user_alone(tmp_path: Path) -> None:
    root = tmp_path / "workspaces" / "im.cli.local"
    assert write(Workspace(root), "a/b/c.txt", b"x")
    modes = [path.stat().st_mode & 0o777 for path in (root.parent, root, root / "a", root / "a/b")]
    assert modes == [0o700] * 4
    assert (root / "a/b/c.txt").stat().st_mode & 0o777 == 0o600


def test_nothing_is_made_by_reading(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "ws")
    assert found(workspace) == []
    assert workspace.used() == 0
    with pytest.raises(ToolError, match="there is no x"):
        contents(workspace, "x")
    assert not workspace.root.exists()


LINKS = {
    "a file": ("link", "f", "link"),
    "a folder": ("link", ".", "link/f"),
    "two folders up": ("a/link", "..", "a/link/outside/f"),
    "the whole machine": ("link", "/", "link/etc/passwd"),
    "itself": ("link", "link", "link"),
    "nothing": ("link", "missing", "link"),
    "a process": ("link", "/proc/self", "link/environ"),
}


@pytest.mark.parametrize(("link", "target", "path"), LINKS.values(), ids=LINKS)
def test_links_out_are_not_followed(
    workspace: Workspace, outside: Path, link: str, target: str, path: str
) -> None:
    (workspace.root / link).symlink_to(outside / target)

    with pytest.raises(ToolError, match="symbolic link"):
        contents(workspace, path)
    with pytest.raises(ToolError, match="symbolic link"):
        write(workspace, path)
    assert found(workspace) == ["a/f"]
    assert (outside / "f").read_bytes() == SECRET
    assert os.listdir(outside) == ["f"]


@pytest.mark.parametrize("target", ["a", "a/f"])
def test_links_that_stay_inside_are_not_followed_either(workspace: Workspace, target: str) -> None:
    (workspace.root / "link").symlink_to(target)
    path = "link" if target == "a/f" else "link/f"
    with pytest.raises(ToolError, match="name the file itself"):
        contents(workspace, path)


def test_a_root_that_is_a_link_is_refused(tmp_path: Path, outside: Path) -> None:
    workspace = Workspace(tmp_path / "ws")
    workspace.root.symlink_to(outside)
    for act in (lambda: contents(workspace, "f"), lambda: write(workspace, "f")):
        with pytest.raises(ToolError, match="symbolic link"):
            act()
    assert (outside / "f").read_bytes() == SECRET


@contextmanager
def swapping(path: Path, other: Path) -> Iterator[None]:
    """Exchanges two names as fast as it can; at no time is one of them missing."""
    stop = threading.Event()
    exchange = partial(
        ctypes.CDLL(None, use_errno=True).renameat2,
        *(AT_FDCWD, bytes(path), AT_FDCWD, bytes(other), RENAME_EXCHANGE),
    )
    failed: list[int] = []

    def swap() -> None:
        while not stop.is_set() and not failed:
            if exchange():
                failed.append(ctypes.get_errno())

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed


def test_a_race_with_links_gains_nothing(workspace: Workspace, outside: Path) -> None:
    (workspace.root / "a" / "b").mkdir()
    (workspace.root / "a" / "b" / "f").write_bytes(b"mine")
    (outside / "b").mkdir()
    (outside / "b" / "f").write_bytes(SECRET)
    (workspace.root / "link").symlink_to(outside)
    read = written = 0
    with swapping(workspace.root / "a", workspace.root / "link"):
        for _ in range(800):
            for path in ("a/f", "a/b/f"):
                with suppress(ToolError):
                    assert contents(workspace, path) in (b"mine", b"new")
                    read += 1
            with suppress(ToolError):
                write(workspace, "a/b/f")
                written += 1
            assert all(file.size <= len(b"mine") for file in workspace.walk())
    assert read
    assert written
    assert (outside / "f").read_bytes() == (outside / "b" / "f").read_bytes() == SECRET
    assert sorted(os.listdir(outside / "b")) == ["f"]


def test_odd_files_are_refused_at_once(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(workspace.root / "socket"))
        for name in ("fifo", "socket"):
            with pytest.raises(ToolError, match=f"{name} is no regular file"):
                contents(workspace, name)
            with pytest.raises(ToolError, match=f"{name} is no regular file"):
                write(workspace, name)
    assert found(workspace) == ["a/f"]


@pytest.mark.parametrize("path", ["a", "", "a/"])
def test_a_folder_is_no_file(workspace: Workspace, path: str) -> None:
    with pytest.raises(ToolError, match="is a folder"):
        contents(workspace, path)
    with pytest.raises(ToolError, match="is a folder"):
        write(workspace, path)


def test_a_file_is_no_folder(workspace: Workspace) -> None:
    with pytest.raises(ToolError, match="a file that is no folder"):
        write(workspace, "a/f/g")


def test_writing_never_changes_what_a_hard_link_shares(workspace: Workspace, outside: Path) -> None:
    (workspace.root / "hard").hardlink_to(outside / "f")
    assert not write(workspace, "hard")
    assert (outside / "f").read_bytes() == SECRET
    assert contents(workspace, "hard") == b"new"


def test_a_program_stays_one(workspace: Workspace) -> None:
    (workspace.root / "a" / "f").chmod(0o755)
    write(workspace, "a/f")
    assert (workspace.root / "a" / "f").stat().st_mode & 0o777 == 0o755


def test_names_that_are_no_text_are_passed_over(workspace: Workspace) -> None:
    for name in (b"\xff", b"a\nb", b"a\\b"):
        Path(os.fsdecode(bytes(workspace.root) + b"/" + name)).write_bytes(b"")
    assert found(workspace) == ["a/f"]


def test_the_total_is_limited(workspace: Workspace) -> None:
    room = 3 * ENTRY_BYTES
    write(workspace, "big", b"x" * (2 * ENTRY_BYTES), limit=room)
    with pytest.raises(ToolError, match=r"holds 12,288 of at most 12,288 bytes, and this adds"):
        write(workspace, "empty", b"", limit=room)
    with pytest.raises(ToolError, match="Write less"):
        write(workspace, "big", b"x" * (2 * ENTRY_BYTES + 1), limit=room)
    assert not write(workspace, "big", b"x", limit=room)
    assert write(workspace, "empty", b"", limit=room)


def test_a_walk_has_an_end(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 5)
    for number in range(5):
        (workspace.root / "a" / str(number)).touch()
    with pytest.raises(ToolError, match="more than 5 files; name a folder"):
        found(workspace)


def test_deep_folders_break_nothing(workspace: Workspace) -> None:
    here = os.open(workspace.root, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        assert found(workspace) == ["a/f"]
    finally:
        # Python removes folders by recursion, so pytest could not clean up behind us.
        subprocess.run(["rm", "-rf", str(workspace.root)], check=True, timeout=30)


WRITER = """
import sys
from pathlib import Path
from agent_worker.workspace.files import Workspace
workspace = Workspace(Path(sys.argv[1]))
while True:
    for letter in b"ab":
        workspace.replace(("f",), bytes([letter]) * 2_000_000, 1 << 30)
"""


async def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "ws")
    file = workspace.root / "f"
    for _ in range(5):
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(workspace.root)
        )
        before = file.stat().st_ino if file.exists() else 0
        await eventually(partial(replaced, file, before), 30)
        writer.kill()
        await writer.wait()
        data = file.read_bytes()
        assert len(data) == 2_000_000
        assert len(set(data)) == 1
        assert found(workspace) == ["f"]


def replaced(file: Path, inode: int) -> bool:
    return file.exists() and file.stat().st_ino != inode


def test_what_a_killed_writer_left_is_removed_when_it_is_old(workspace: Workspace) -> None:
    for name, age_s in {"old": LEFT_OVER_S + 60, "young": 60}.items():
        part = workspace.root / "a" / f"{PART_PREFIX}{name}"
        part.write_bytes(b"half")
        os.utime(part, (time.time() - age_s,) * 2)
    write(workspace, "a/f")
    assert sorted(os.listdir(workspace.root / "a")) == [f"{PART_PREFIX}young", "f"]
    assert found(workspace) == ["a/f"]


def test_writers_at_the_same_time_do_not_meet(workspace: Workspace) -> None:
    def fill(letter: str) -> None:
        for _ in range(50):
            write(workspace, "a/f", letter.encode() * 50_000)

    with ThreadPoolExecutor(4) as writers:
        for done in [writers.submit(fill, letter) for letter in "abcd"]:
            done.result()
    data = contents(workspace, "a/f")
    assert (len(data), len(set(data))) == (50_000, 1)
    assert os.listdir(workspace.root / "a") == ["f"]
