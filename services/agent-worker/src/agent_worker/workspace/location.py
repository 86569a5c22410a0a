"""Where the files of a conversation lie."""

import hashlib
from pathlib import Path

from posthouse import subjects
from posthouse.address import Address

# A name has at most 255 bytes. Keys are shorter, but for deep agent paths and long domains.
MAX_NAME = 200


def root_of(workspace_dir: str, conversation: Address) -> str:
    """``<workspace_dir>/<key>``, absolute; '' without a ``workspace_dir``."""
    if not workspace_dir:
        return ""
    name = subjects.key(conversation)
    if len(name) > MAX_NAME:
        name = "=h" + hashlib.sha256(name.encode()).hexdigest()
    return str(Path(workspace_dir).resolve() / name)
