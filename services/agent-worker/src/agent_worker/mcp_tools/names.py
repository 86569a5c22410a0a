"""Names of the tools of MCP servers, as models see them."""

import hashlib
import re

SEPARATOR = "__"
MAX_CHARACTERS = 64
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
_HASH_CHARACTERS = 8


def tool_name(server: str, tool: str) -> str:
    """``<server>__<tool>``, the same at every worker.

    A name that providers would not take is changed, and a hash of it added so that no two become
    one. ``server`` has at most 24 characters.
    """
    plain = f"{server}{SEPARATOR}{tool}"
    if tool and len(plain) <= MAX_CHARACTERS and not _FORBIDDEN.search(plain):
        return plain
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARACTERS]
    room = MAX_CHARACTERS - _HASH_CHARACTERS - 1
    return f"{_FORBIDDEN.sub('_', plain)[:room]}-{digest}"
