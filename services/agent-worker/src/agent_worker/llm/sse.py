"""Server-sent events, read from bytes as they come (WHATWG HTML, "Server-sent events").

Text libraries split lines at U+2028 and U+0085, which JSON may hold unescaped (httpx does,
measured), and a chunk may end inside a character. So lines are split on bytes.
"""

import re
from typing import NamedTuple

from agent_worker.llm.errors import IncompleteAnswer

MAX_EVENT_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class ServerEvent(NamedTuple):
    """One event: its type ('message' if it has none) and its data."""

    event: str
    data: str


class SseParser:
    """Bytes in, events out; any cutting of the same bytes gives the same events."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = False
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that these bytes complete. Raises IncompleteAnswer for one without end."""
        self._rest += chunk
        if not self._started:
            if _BOM.startswith(self._rest[:3]) and len(self._rest) < len(_BOM):
                return []
            self._rest = self._rest.removeprefix(_BOM)
            self._started = True
        found = []
        position = 0
        for end in _LINE_END.finditer(self._rest):
            if end.group() == b"\r" and end.end() == len(self._rest):
                break  # the rest of a CRLF may be in the next chunk
            if event := self._line(self._rest[position : end.start()]):
                found.append(event)
            position = end.end()
        self._rest = self._rest[position:]
        if len(self._rest) + self._size > MAX_EVENT_BYTES:
            raise IncompleteAnswer(f"the stream sent an event over {MAX_EVENT_BYTES} bytes")
        return found

    def close(self) -> list[ServerEvent]:
        """The events at the end of the stream, where servers forget the last empty line."""
        self._started = True
        return self.feed(b"\n\n")

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
        elif field == b"event":
            self._event = value.decode(errors="replace")
        return None  # comments (no field name), ids, retry times and unknown fields

    def _dispatch(self) -> ServerEvent | None:
        event, data = self._event, self._data
        self._event, self._data, self._size = "", [], 0
        if not data:
            return None
        return ServerEvent(event or "message", b"\n".join(data).decode(errors="replace"))
