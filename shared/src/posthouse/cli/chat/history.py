"""What was typed in earlier chats, for the arrow keys: a file that only its owner may read."""

import os
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

OWNER_ONLY = 0o600


def state_file() -> Path:
    """Where it lies: ``$XDG_STATE_HOME/posthouse/chat_history``."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "posthouse" / "chat_history"


def input_history(file: Path) -> History:
    """The history in ``file``, or one for this session where no file can be."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
        try:
            os.fchmod(descriptor, OWNER_ONLY)
        finally:
            os.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return _SafeFileHistory(str(file))


class _SafeFileHistory(FileHistory):
    """A chat goes on when a line cannot be kept."""

    def store_string(self, string: str) -> None:
        """Keep a line, unless the disk is full; bytes that are no UTF-8 become '?'."""
        try:
            super().store_string(string.encode(errors="replace").decode())
        except OSError:
            return
