"""Calls to the outside over HTTP, each pinned to an address that was checked."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

import httpx

from posthouse.egress.addresses import IPAddress, read_address
from posthouse.egress.bodies import ACCEPT_ENCODING, read_body
from posthouse.egress.targets import Answer, Request, Target, Unanswered
from posthouse.errors import PermanentError, Unavailable

# To find a server, and then to connect to each of its addresses.
CONNECT_TIMEOUT_S = 5.0
# Of the beginning of an answer, by which nobody decides.
START_TIMEOUT_S = 2.0
MAX_START_BYTES = 4096
MAX_TRIED_ADDRESSES = 3

Resolve = Callable[[str], Awaitable[Sequence[str]]]

_Read = Callable[[httpx.Response], Awaitable[Answer]]
_NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


async def resolve(host: str) -> Sequence[str]:
    """The addresses of a name, best first. Raises OSError and UnicodeError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class HttpEgress:
    """Calls targets. Redirects are answers like others.

    To make one takes about 50 ms, for the certificates of the system, unless ``trust`` is given.
    Between calls it keeps no connection, so one that is not used as ``async with`` leaks none.
    """

    def __init__(self, resolve: Resolve = resolve, trust: ssl.SSLContext | None = None) -> None:
        self._resolve = resolve
        # The client of httpx above it keeps cookies, and fails on redirects to what is no URL.
        self._transport = httpx.AsyncHTTPTransport(
            verify=trust or httpx.create_ssl_context(),
            # No proxy from the environment.
            trust_env=False,
            # A kept connection is known by its address; its certificate was checked for one name.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def __aenter__(self) -> "HttpEgress":
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def send(self, request: Request) -> Answer:
        """The answer with the beginning of its body, as it came: the status says how it went.

        Raises Refused for a private address, Unavailable when nothing was sent, Unanswered when
        the server may have got it, and PermanentError for what cannot be written as a request.
        """
        return await self._exchange(request, _answer_with_start)

    async def ask(self, request: Request, max_bytes: int) -> Answer:
        """The answer with its body, decompressed, and cut after ``max_bytes``.

        All of it comes within ``timeout_s`` of the target. Raises as ``send``, and Unreadable.
        """

        async def read(response: httpx.Response) -> Answer:
            body, whole = await read_body(response, max_bytes)
            return Answer(response.status_code, response.headers, body, whole)

        headers = {"accept-encoding": ACCEPT_ENCODING, **request.headers}
        return await self._exchange(
            Request(request.target, headers, request.method, request.body), read
        )

    async def _exchange(self, request: Request, read: _Read) -> Answer:
        """Addresses are tried in turn while none can be connected to."""
        failure = "it has no address"
        for address in (await self._addresses(request.target))[:MAX_TRIED_ADDRESSES]:
            try:
                return await self._send(request, address, read)
            except _NOTHING_SENT as error:
                failure = _text(error)
        raise Unavailable(f"{request.target.host} cannot be reached: {failure}")

    async def _addresses(self, target: Target) -> list[IPAddress]:
        """All of them are public, or the target may be private."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                found = [read_address(text) for text in await self._resolve(target.host)]
        except (OSError, UnicodeError) as error:
            raise Unavailable(f"{target.host} has no address now: {_text(error)}") from error
        for address in found:
            target.check(address)
        return found

    async def _send(self, request: Request, address: IPAddress, read: _Read) -> Answer:
        host = request.target.host
        # Connecting, first TCP and then TLS, ends by limits of its own.
        longest_s = 2 * CONNECT_TIMEOUT_S + request.target.timeout_s
        try:
            pinned = _pinned(request, address)
            async with asyncio.timeout(longest_s):
                response = await self._transport.handle_async_request(pinned)
                try:
                    return await read(response)
                finally:
                    await response.aclose()
        except _NOTHING_SENT:
            raise
        except (httpx.LocalProtocolError, UnicodeEncodeError):
            # Their text quotes headers, which may be secret.
            raise PermanentError(
                "the request cannot be written: a header holds what HTTP does not allow"
            ) from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unanswered(f"no answer from {host}: {_text(error)}") from error


def _pinned(request: Request, address: IPAddress) -> httpx.Request:
    """A request to the address, in which server and certificate still go by the name."""
    target = request.target
    timeout = httpx.Timeout(target.timeout_s, connect=CONNECT_TIMEOUT_S, pool=None)
    return httpx.Request(
        request.method,
        target.url.copy_with(host=str(address)),
        headers={**request.headers, "host": target.url.netloc.decode("ascii")},
        content=request.body,
        extensions={"sni_hostname": target.host, "timeout": timeout.as_dict()},
    )


async def _answer_with_start(response: httpx.Response) -> Answer:
    start = bytearray()
    # What of it came is enough.
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(START_TIMEOUT_S):
            async for chunk in response.aiter_raw():
                start += chunk
                if len(start) >= MAX_START_BYTES:
                    break
    return Answer(response.status_code, response.headers, bytes(start[:MAX_START_BYTES]))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
