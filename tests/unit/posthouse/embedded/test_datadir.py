"""The data directory: one owner at a time, and clear words when it cannot be used."""

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from posthouse.embedded.datadir import DataDir, StackInfo, write_json
from posthouse.embedded.process import StartError

INFO = StackInfo("http://x", "nats://x", "postgresql://x", 7, {"nats": 1, "agent-worker": [2, 3]})
usage = namedtuple("usage", "free")


def test_it_has_one_owner(tmp_path: Path) -> None:
    mine, other = DataDir(tmp_path / "d"), DataDir(tmp_path / "d")
    in_use = rf"in use by another posthouse \(process {os.getpid()}\)"
    with mine.lock():
        with pytest.raises(StartError, match=in_use), other.lock():
            pass
        assert (tmp_path / "d" / "lock").read_text() == str(os.getpid())
    with other.lock():
        pass


def test_a_killed_owner_does_not_keep_it(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from posthouse.embedded.datadir import DataDir\n"
        "with DataDir(Path(sys.argv[1])).lock(): os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=30)
    assert done.returncode == -9
    with DataDir(tmp_path).lock():
        pass


def test_a_running_stack_is_found(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    assert data.running() is None
    with data.lock():
        assert data.running() is None
        data.publish(INFO)
        assert DataDir(tmp_path).running() == INFO
        data.withdraw()
        assert data.running() is None


def test_the_file_of_a_killed_stack_does_not_count(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    with data.lock():
        data.publish(INFO)
    assert data.running() is None


def test_who_has_it_is_told_before_it_is_ready(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    assert data.owner() == ""
    with data.lock():
        assert data.owner() == str(os.getpid())
    assert data.owner() == ""


@pytest.mark.parametrize("content", ["", "{}", "[]", "{"])
def test_a_broken_stack_file_does_not_count(tmp_path: Path, content: str) -> None:
    data = DataDir(tmp_path)
    with data.lock():
        (tmp_path / "stack.json").write_text(content)
        assert data.running() is None


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(StartError, match=r"cannot write to .*file/d: Not a directory; .*--data-dir"),
        DataDir(tmp_path / "file" / "d").lock(),
    ):
        pass


def test_a_disk_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(free=5 << 20))
    with (
        pytest.raises(StartError, match=r"only 5 MB are free .* 200 MB are needed"),
        DataDir(tmp_path).lock(),
    ):
        pass


def test_a_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StartError, match="No space left on device"), DataDir(tmp_path).lock():
        pass


def test_files_are_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_json(file, {"a": 1})
    write_json(file, {"a": 2})
    assert file.read_text() == '{\n  "a": 2\n}\n'
    assert list(tmp_path.iterdir()) == [file]
