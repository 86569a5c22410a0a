"""Ports to listen on."""

import socket
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"
WILDCARDS = ("", "0.0.0.0", "::")
NATS_PORT = 4222
POSTGRES_PORT = 5432


def free_ports(count: int) -> list[int]:
    """Different loopback ports nobody listens on right now."""
    with ExitStack() as stack:
        # All bound at once, so that none is given twice.
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def free_port() -> int:
    """A loopback port nobody listens on right now."""
    return free_ports(1)[0]


def refusal(port: int, host: str = LOOPBACK) -> str:
    """Why no server could listen on ``port`` now, '' when one could."""
    try:
        family, *_, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            # As servers do: connections of an earlier server that linger do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def reachable(host: str) -> str:
    """The host under which this machine reaches a server that listens on ``host``."""
    return LOOPBACK if host in WILDCARDS else host
