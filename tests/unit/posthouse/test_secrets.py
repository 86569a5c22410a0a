"""Secrets that the configuration names, and what is said when they are not there."""

from pathlib import Path

import pytest

from posthouse.errors import ConfigError
from posthouse.secrets import read_secret


def test_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A_KEY", " one\n")
    file = tmp_path / "key"
    file.write_text("two\n")
    assert read_secret("x.key", env="A_KEY", file="") == "one"
    assert read_secret("x.key", env="", file=str(file)) == "two"
    assert read_secret("x.key", env="", file="") == ""


def test_what_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BLANK", " ")
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.touch()
    binary.write_bytes(b"\xff\xfe")
    for env, file, problem in (
        ("NO_SUCH_KEY", "", "x.key_env: the environment variable NO_SUCH_KEY is not set"),
        ("BLANK", "", "x.key_env: the environment variable BLANK is not set or empty"),
        ("BLANK", str(empty), "x.key_env: leave out"),
        ("", str(empty), "x.key_file: .*empty is empty"),
        ("", str(binary), "x.key_file: .*not UTF-8"),
        ("", str(tmp_path / "gone"), "x.key_file: .*No such file"),
    ):
        with pytest.raises(ConfigError, match=problem):
            read_secret("x.key", env=env, file=file)
