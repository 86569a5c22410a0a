"""The lines that were typed, kept for the arrow keys."""

import stat
from pathlib import Path

import pytest

from posthouse.cli.chat.history import input_history, state_file


def test_lines_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "posthouse" / "chat_history"
    input_history(file).store_string("你好\nsecond line")
    assert list(input_history(file).load_history_strings()) == ["你好\nsecond line"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_an_older_file_that_all_may_read_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "chat_history"
    file.touch(mode=0o644)
    input_history(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_bytes_that_are_no_text_do_not_end_the_chat(tmp_path: Path) -> None:
    file = tmp_path / "chat_history"
    input_history(file).store_string("caf\udce9")
    assert list(input_history(file).load_history_strings()) == ["caf?"]


def test_where_no_file_can_be_the_chat_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = input_history(tmp_path / "file" / "chat_history")
    history.append_string("hi")
    assert history.get_strings() == ["hi"]


def test_it_lies_with_the_state_of_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_file() == tmp_path / "posthouse" / "chat_history"
