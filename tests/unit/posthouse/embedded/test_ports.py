"""Ports: free ones differ, taken ones are refused with a reason."""

import socket

import pytest

from posthouse.embedded import ports


def test_free_ports_differ() -> None:
    found = ports.free_ports(50)
    assert len(set(found)) == 50


def test_a_free_port_is_not_refused() -> None:
    assert ports.refusal(ports.free_port()) == ""


def test_a_taken_port_is_refused() -> None:
    with socket.socket() as server:
        server.bind((ports.LOOPBACK, 0))
        server.listen()
        assert ports.refusal(server.getsockname()[1]) == "address already in use"


def test_an_address_of_another_machine_is_refused() -> None:
    # 192.0.2.0/24 is reserved for documentation.
    assert ports.refusal(ports.free_port(), "192.0.2.1") == "cannot assign requested address"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_a_wildcard_is_reached_on_loopback(host: str) -> None:
    assert ports.reachable(host) == "127.0.0.1"


def test_another_host_is_reached_by_its_name() -> None:
    assert ports.reachable("10.0.0.7") == "10.0.0.7"
