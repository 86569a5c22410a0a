"""Bytes of files as text, and back: UTF-8, else GB18030, in which many Chinese files are."""

import codecs
from typing import NamedTuple

from agent_worker.tool import ToolError

# The engine cuts results of 20,000 characters in the middle; we stop at a line and say where.
RESULT_CHARACTERS = 18_000
# Larger files are searched, not read.
MAX_BYTES = 8 * 1024 * 1024
_LOOKED_AT = 8192
_MARKED = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Text(NamedTuple):
    """What a file says, and how to write it back: line ends are as they stand in the file."""

    content: str
    encoding: str

    def encode(self, content: str) -> bytes:
        """Other content in the same encoding. Raises ToolError for what it cannot hold."""
        try:
            return content.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise ToolError(f"the text has characters that {self.encoding} lacks.") from error


def decode(data: bytes, path: str) -> Text:
    """Read it. Raises ToolError for what is no text."""
    for encoding in _candidates(data):
        try:
            return Text(data.decode(encoding), encoding)
        except UnicodeDecodeError:
            continue
    raise ToolError(f"{path} is no text file ({len(data):,} bytes).")


def lines_of(content: str) -> list[str]:
    """Its lines, without their ends. Only line feeds count, as for every other program."""
    lines = [line.removesuffix("\r") for line in content.split("\n")]
    if not lines[-1]:
        lines.pop()
    return lines


def _candidates(data: bytes) -> tuple[str, ...]:
    for mark, encoding in _MARKED:
        if data.startswith(mark):
            return (encoding,)
    return () if b"\0" in data[:_LOOKED_AT] else ("utf-8", "gb18030")
