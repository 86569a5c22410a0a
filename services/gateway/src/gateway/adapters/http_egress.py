"""Calls to the outside over HTTP, each pinned to an address that was checked."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType

import httpx

from gateway.egress import Answer, IPAddress, Target, read_address
from gateway.ports import OutcomeUnknown
from gateway.settings import EGRESS_BODY_TIMEOUT_S, EGRESS_CONNECT_TIMEOUT_S, MAX_ANSWER_BYTES
from posthouse.errors import PermanentError, Unavailable

MAX_TRIED_ADDRESSES = 3

Resolve = Callable[[str], Awaitable[Sequence[str]]]

NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


async def resolve(host: str) -> Sequence[str]:
    """The addresses of a name, best first. Raises OSError and UnicodeError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class HttpEgress:
    """Posts to targets; used as ``async with``."""

    def __init__(self, resolve: Resolve = resolve) -> None:
        self._resolve = resolve
        self._http = httpx.AsyncClient(
            verify=httpx.create_ssl_context(),
            # No proxy and no password from the environment.
            trust_env=False,
            follow_redirects=False,
            # A kept connection is known by its address; its certificate was checked for one name.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def __aenter__(self) -> "HttpEgress":
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        """See Egress. Addresses are tried in turn while none can be connected to."""
        failure = "it has no address"
        for address in (await self._addresses(target))[:MAX_TRIED_ADDRESSES]:
            try:
                return await self._post(target, address, headers, body)
            except NOTHING_SENT as error:
                failure = _text(error)
        raise Unavailable(f"{target.host} cannot be reached: {failure}")

    async def _addresses(self, target: Target) -> list[IPAddress]:
        """All of them are public, or the target may be private."""
        try:
            async with asyncio.timeout(EGRESS_CONNECT_TIMEOUT_S):
                found = [read_address(text) for text in await self._resolve(target.host)]
        except (OSError, UnicodeError) as error:
            raise Unavailable(f"{target.host} has no address now: {_text(error)}") from error
        for address in found:
            target.check(address)
        return found

    async def _post(
        self, target: Target, address: IPAddress, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        # Connecting, first TCP and then TLS, ends by limits of its own.
        longest_s = 2 * EGRESS_CONNECT_TIMEOUT_S + target.timeout_s
        try:
            request = _pinned(target, address, headers, body)
            async with asyncio.timeout(longest_s):
                response = await self._http.send(request, stream=True)
                try:
                    return Answer(response.status_code, response.headers, await _start(response))
                finally:
                    await response.aclose()
        except NOTHING_SENT:
            raise
        except (httpx.LocalProtocolError, UnicodeEncodeError) as error:
            raise PermanentError(f"the request cannot be written: {error}") from error
        except (httpx.HTTPError, TimeoutError) as error:
            raise OutcomeUnknown(f"no answer from {target.host}: {_text(error)}") from error


def _pinned(
    target: Target, address: IPAddress, headers: Mapping[str, str], body: bytes
) -> httpx.Request:
    """A request to the address, in which server and certificate still go by the name."""
    timeout = httpx.Timeout(target.timeout_s, connect=EGRESS_CONNECT_TIMEOUT_S, pool=None)
    return httpx.Request(
        "POST",
        target.url.copy_with(host=str(address)),
        headers={**headers, "host": target.url.netloc.decode("ascii")},
        content=body,
        extensions={"sni_hostname": target.host, "timeout": timeout.as_dict()},
    )


async def _start(response: httpx.Response) -> bytes:
    """The beginning of the body, or what of it came: the status alone says how it went."""
    start = bytearray()
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(EGRESS_BODY_TIMEOUT_S):
            async for chunk in response.aiter_raw():
                start += chunk
                if len(start) >= MAX_ANSWER_BYTES:
                    break
    return bytes(start[:MAX_ANSWER_BYTES])


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
