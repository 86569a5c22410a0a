"""The one way out to addresses that somebody else chose: what may be called, and who calls it.

A private address must not be reached by naming it: not as a literal in any spelling, not by a name
that resolves to it, and not by a name that resolves to it only after it was checked.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Protocol

import httpx

from gateway.settings import EGRESS_TIMEOUT_S, MAX_RETRY_AFTER_S
from posthouse.errors import PermanentError

IPAddress = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
# Beside what ``is_global`` of every Python 3.11 knows: protocol assignments, relays and tunnels
# (6to4, Teredo) that lead to addresses nobody has checked, and documentation.
_NOT_PUBLIC: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("2001::/23"),
    IPv6Network("2002::/16"),
    IPv6Network("3fff::/20"),
)


class Refused(PermanentError):
    """The target must not be called; ``private`` in the details: unless private ones may be."""

    code = "egress_refused"


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be called, and how long its server may take to answer."""

    url: httpx.URL
    allow_private: bool = False
    timeout_s: float = EGRESS_TIMEOUT_S

    @classmethod
    def parse(
        cls, text: str, *, allow_private: bool = False, timeout_s: float = EGRESS_TIMEOUT_S
    ) -> "Target":
        """Check all that can be checked without asking for addresses. Raises Refused."""
        try:
            url = httpx.URL(text)
        except httpx.InvalidURL as error:
            raise Refused(f"no URL: {error}") from error
        if url.scheme not in ("https", "http") or not url.host:
            raise Refused("the URL must begin with https:// and name a host")
        if url.scheme == "http" and not allow_private:
            raise Refused("the URL must begin with https://", private=True)
        if url.userinfo:
            raise Refused("the URL must not hold a user or a password")
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
        if not self.allow_private and not is_public(address):
            raise Refused(
                f"{self.host} is the private address {address}; such targets are refused",
                private=True,
            )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said, with the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

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


class Egress(Protocol):
    """Calls targets. Redirects are answers like others: nobody follows them."""

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        """Post a body.

        Raises Refused for a private address, Unavailable when nothing was sent, and
        OutcomeUnknown when the server may have got it.
        """
        ...


def read_address(text: str) -> IPAddress:
    """Read an address as the resolver gives it; the zone of a link-local one is left out."""
    return ip_address(text.partition("%")[0])


def is_public(address: IPAddress) -> bool:
    """True for an address of the public Internet; one inside another counts as itself."""
    if isinstance(address, IPv6Address):
        if address in _MAPPED or address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _GLOBAL_UNICAST:
            return False
    if any(address.version == net.version and address in net for net in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
