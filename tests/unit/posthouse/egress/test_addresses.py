"""What is public, and what is private."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.egress.addresses import is_public

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "223.5.5.5",
    "2606:4700:4700::1111",
    "240e::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]
PRIVATE = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.1",
    "192.0.0.9",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808",
    "100::1",
    "2001:0:4136:e378::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", PRIVATE)
def test_private(address: str) -> None:
    assert not is_public(ip_address(address))


INNER = st.sampled_from(["10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "169.254.0.0/16"]).flatmap(
    lambda net: st.ip_addresses(v=4, network=net)
)


@given(INNER)
def test_a_private_address_stays_private_in_any_dress(address: IPv4Address) -> None:
    number = int(address)
    dresses = [
        number | int(IPv6Address("::ffff:0:0")),
        number | int(IPv6Address("64:ff9b::")),
        number << 80 | int(IPv6Address("2002::")),
        number,
    ]
    assert not is_public(address)
    assert not any(is_public(IPv6Address(dress)) for dress in dresses)


@given(st.ip_addresses())
def test_what_is_not_global_is_never_public(address: IPv4Address | IPv6Address) -> None:
    inside = address.version == 6 and any(
        address in ip_network(net) for net in ("::ffff:0:0/96", "64:ff9b::/96")
    )
    if not inside and (not address.is_global or address.is_multicast):
        assert not is_public(address)
