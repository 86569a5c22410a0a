"""Characters that a server cut in two.

JSON may escape a character beyond U+FFFF as two halves, and servers that cut text by UTF-16 units
send one half in a delta and the other in the next. orjson refuses such a half.
"""

import json
import re
from typing import Any

import orjson

_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(data: bytes | str) -> Any:
    """Read JSON that may hold halves of characters. Raises orjson.JSONDecodeError."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "surrogate" not in str(error):
            raise
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise error from None


def joined(value: Any) -> Any:
    """A JSON value with the halves in its texts put together; U+FFFD for one left alone."""
    if isinstance(value, str):
        if _SURROGATE.search(value) is None:
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    return [joined(item) for item in value] if isinstance(value, list) else value


class Halves:
    """Text that comes in pieces: the first half of a character waits for the second."""

    def __init__(self) -> None:
        self._half = ""

    def add(self, piece: str) -> str:
        """The whole characters that are there now."""
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        whole: str = joined(text.removesuffix(self._half))
        return whole
