"""Who may use the HTTP interface: holders of the admin token, or this machine in embedded mode."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from fastapi import Request

from gateway.problems import Forbidden, Unauthorized
from posthouse.settings import Settings


class Door:
    """Checks requests against the settings."""

    def __init__(self, settings: Settings) -> None:
        self._token = settings.admin_token.encode()
        self._open_locally = settings.embedded

    async def __call__(self, request: Request) -> None:
        """Raises Unauthorized and Forbidden."""
        if self._token:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(given.strip().encode(), self._token)
            if scheme.lower() != "bearer" or not right:
                raise Unauthorized()
        elif not self._open_locally or not _is_local(request):
            raise Forbidden()


def _is_local(request: Request) -> bool:
    """True for a program on this machine, as opposed to a web page that a browser here shows.

    Such a page reaches this port under a name of its own (DNS rebinding) or from its origin.
    """
    peer = request.client.host if request.client is not None else ""
    origin = request.headers.get("origin")
    names = [peer, _host(f"//{request.headers.get('host', '')}")]
    if origin is not None:
        names.append(_host(origin))
    return all(_is_loopback(name) for name in names)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
