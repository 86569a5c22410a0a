"""Postgres refuses to run as root: then it gets an account of its own."""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int


def unprivileged() -> Account | None:
    """The account to run as when we are root, else None.

    Raises LookupError when this machine has none.
    """
    if os.geteuid() != 0:
        return None
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise LookupError(f"Postgres cannot run as root, and no account {CANDIDATES} exists")


def give(directory: Path, account: Account) -> None:
    """Make the account the owner of a directory and all it holds. Raises OSError."""
    if directory.stat().st_uid == account.uid:
        return
    log.debug("account.gives_directory", directory=str(directory), account=account.name)
    os.chown(directory, account.uid, account.gid)
    for root, folders, files in os.walk(directory):
        for name in folders + files:
            os.chown(Path(root, name), account.uid, account.gid, follow_symlinks=False)


def open_path(target: Path, account: Account) -> None:
    """Let the account pass through every directory above ``target``. Raises OSError.

    Adds the one missing search bit, and only where it is missing.
    """
    for directory in target.resolve().parents:
        status = directory.stat()
        bit = _search_bit(status, account)
        if not status.st_mode & bit:
            log.warning("account.opens_directory", directory=str(directory), account=account.name)
            directory.chmod(stat.S_IMODE(status.st_mode) | bit)


def _search_bit(status: os.stat_result, account: Account) -> int:
    if status.st_uid == account.uid:
        return stat.S_IXUSR
    return stat.S_IXGRP if status.st_gid == account.gid else stat.S_IXOTH
