"""Bodies of answers, read and decompressed no further than wanted."""

import zlib
from collections.abc import Callable
from typing import Protocol

import httpx

from posthouse.errors import PermanentError

# Both can be undone with a limit on what comes out.
ACCEPT_ENCODING = "gzip, deflate"
_GZIP = 16 + zlib.MAX_WBITS


class Unreadable(PermanentError):
    """The body is compressed in a way that cannot be undone."""

    code = "egress_unreadable"


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


async def read_body(response: httpx.Response, max_bytes: int) -> tuple[bytes, bool]:
    """The decompressed body and True, or its first ``max_bytes`` bytes and False.

    A small body may decompress to a thousand times its size, so no piece is decompressed further
    than what is still wanted. Raises Unreadable.
    """
    undo = _decoder(response.headers.get("content-encoding", ""))
    body = bytearray()
    async for chunk in response.aiter_raw():
        # One byte too many tells a body that is longer from one that just fits.
        body += undo(chunk, max_bytes + 1 - len(body))
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]), False
    return bytes(body), True


def _decoder(encoding: str) -> Callable[[bytes, int], bytes]:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return lambda data, limit: data[:limit]
    if name in ("gzip", "x-gzip"):
        return _inflating(lambda start: zlib.decompressobj(_GZIP))
    if name == "deflate":
        return _inflating(_deflate)
    raise Unreadable(f"the body is encoded as {name[:40]!r}, which was not asked for")


def _deflate(start: bytes) -> _Inflater:
    """With the zlib header, as the standard says, or without, as some servers have it."""
    has_header = start[0] & 0x0F == zlib.DEFLATED
    return zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)


def _inflating(start: Callable[[bytes], _Inflater]) -> Callable[[bytes, int], bytes]:
    inflater: _Inflater | None = None

    def undo(data: bytes, limit: int) -> bytes:
        nonlocal inflater
        inflater = inflater or start(data)
        if inflater.eof:
            return b""
        try:
            # What the limit leaves undone is not needed: then the body is longer than wanted.
            return inflater.decompress(data, limit)
        except zlib.error as error:
            raise Unreadable("the body is not compressed as its header says") from error

    return undo
