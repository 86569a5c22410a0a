"""What is called, what answers, and how calling fails."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import httpx

from posthouse.egress.addresses import IPAddress, is_public, read_address
from posthouse.errors import PermanentError, TransientError

# For a server to begin its answer.
TIMEOUT_S = 20.0
# A server that asks for a longer pause is asked again all the same.
MAX_RETRY_AFTER_S = 3600.0


class Refused(PermanentError):
    """The target must not be called; ``private`` in the details: unless private ones may be."""

    code = "egress_refused"


class Unanswered(TransientError):
    """The request was sent, and no answer came: the server may have acted on it or not."""

    code = "egress_unanswered"


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be called, and how long its server may take to answer."""

    url: httpx.URL
    allow_private: bool = False
    timeout_s: float = TIMEOUT_S

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        allow_private: bool = False,
        allow_http: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> "Target":
        """Check all that can be checked without asking for addresses. Raises Refused."""
        try:
            url = httpx.URL(text)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise Refused(f"no URL: {error}") from error
        if url.scheme not in ("https", "http") or not url.host:
            either = "https:// or http://" if allow_http else "https://"
            raise Refused(f"the URL must begin with {either} and name a host")
        if url.scheme == "http" and not (allow_private or allow_http):
            raise Refused("the URL must begin with https://", private=True)
        if url.userinfo:
            raise Refused("the URL must not hold a user or a password")
        if url.port is not None and not 0 < url.port < 65536:
            raise Refused(f"no URL: {url.port} is no port")
        target = cls(url.copy_with(fragment=None), allow_private, timeout_s)
        if (literal := target.literal) is not None:
            target.check(literal)
        return target

    @property
    def host(self) -> str:
        """The name or address that the URL holds, without brackets."""
        return self.url.raw_host.decode("ascii")

    @property
    def literal(self) -> IPAddress | None:
        """The address, when the host is one in any spelling that the system takes."""
        try:
            found = socket.getaddrinfo(self.host, None, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return None
        return read_address(str(found[0][4][0]))

    def check(self, address: IPAddress) -> None:
        """Raises Refused when the address is private and the target may not be."""
        if self.allow_private or is_public(address):
            return
        what = (
            "a private address" if self.host == str(address) else f"the private address {address}"
        )
        raise Refused(f"{self.host} is {what}; such targets are refused", private=True)


@dataclass(frozen=True, slots=True)
class Request:
    """What a server is asked."""

    target: Target
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said. ``whole`` is False where the body was longer than wanted."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    whole: bool = True

    def retry_after_s(self, now_s: float) -> float | None:
        """Seconds to wait by the header Retry-After, at most an hour; None without a usable one."""
        value = self.headers.get("retry-after", "").strip()
        if value.isascii() and value.isdigit():
            seconds = float(value)
        else:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - now_s
            except (ValueError, OverflowError):
                return None
        return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
