"""The account Postgres runs as when we are root."""

import os
import pwd
import stat
from pathlib import Path

import pytest

from posthouse.embedded import account
from posthouse.embedded.account import Account

STRANGER = Account("stranger", 54321, 54321)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_root_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert account.unprivileged() is None


def test_the_first_that_exists_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_nobody(name: str) -> pwd.struct_passwd:
        if name != "nobody":
            raise KeyError(name)
        return pwd.struct_passwd(("nobody", "x", 65534, 65533, "", "/", "/bin/false"))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", only_nobody)
    assert account.unprivileged() == Account("nobody", 65534, 65533)


def test_none_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> pwd.struct_passwd:
        raise KeyError(name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", none)
    with pytest.raises(LookupError, match="cannot run as root"):
        account.unprivileged()


def test_a_path_is_opened_where_it_is_closed_and_nowhere_else(tmp_path: Path) -> None:
    closed, open_ = tmp_path / "closed", tmp_path / "closed" / "open"
    open_.mkdir(parents=True)
    closed.chmod(0o700)
    open_.chmod(0o755)
    account.open_path(open_ / "target", STRANGER)
    assert mode(closed) == 0o701
    assert mode(open_) == 0o755


def test_the_bit_of_the_own_group_is_the_one_that_counts(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    member = Account("member", 54321, closed.stat().st_gid)
    account.open_path(closed / "target", member)
    assert mode(closed) == 0o710
