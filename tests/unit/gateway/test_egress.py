"""What may be called, and what is private."""

from email.utils import formatdate
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress import Answer, Refused, Target, is_public
from gateway.settings import MAX_RETRY_AFTER_S

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


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com:8443/hook?key=1",
        "https://8.8.8.8/hook",
        "https://[2606:4700::1]:8443/",
        "https://例子.中国/回调",
    ],
)
def test_targets(url: str) -> None:
    assert Target.parse(url).url.scheme == "https"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "https"),
        ("example.com", "https"),
        ("https://", "host"),
        ("https:///hook", "host"),
        ("ftp://example.com", "https"),
        ("file:///etc/passwd", "https"),
        ("http://example.com", "https"),
        ("https://user@example.com", "password"),
        ("https://user:secret@example.com", "password"),
        ("https://example.com:port/", "URL"),
        ("https://[::1", "URL"),
        ("https://127.0.0.1/", "private"),
        ("https://127.1/", "private"),
        ("https://2130706433/", "private"),
        ("https://0x7f000001/", "private"),
        ("https://017700000001/", "private"),
        ("https://0/", "private"),
        ("https://[::1]/", "private"),
        ("https://[::ffff:10.0.0.1]/", "private"),
        ("https://[fe80::1]/", "private"),
        ("https://169.254.169.254/latest/meta-data", "private"),
        ("https://１２７.0.0.1/", "URL"),
    ],
)
def test_what_is_no_target(url: str, problem: str) -> None:
    with pytest.raises(Refused, match=problem) as error:
        Target.parse(url)
    assert "secret" not in error.value.message


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/hook", "https://[::1]/", "http://localhost"])
def test_private_targets_where_they_are_allowed(url: str) -> None:
    target = Target.parse(url, allow_private=True)
    target.check(ip_address("127.0.0.1"))


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    for url in (text, f"https://{text}"):
        try:
            Target.parse(url)
        except Refused:
            continue


def test_a_name_is_checked_with_its_address() -> None:
    target = Target.parse("https://example.com")
    target.check(ip_address("8.8.8.8"))
    with pytest.raises(Refused, match=r"example\.com is the private address 10\.0\.0\.1"):
        target.check(ip_address("10.0.0.1"))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        (formatdate(1_000_030, usegmt=True), 30.0),
        (formatdate(999_000, usegmt=True), 0.0),
        ("9" * 400, MAX_RETRY_AFTER_S),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("٣", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert Answer(429, {"retry-after": value}).retry_after_s(1_000_000) == seconds


@given(st.text(st.characters(max_codepoint=255)))
def test_any_retry_after_is_a_time_or_none(value: str) -> None:
    found = Answer(429, {"retry-after": value}).retry_after_s(1_000_000)
    assert found is None or 0 <= found <= MAX_RETRY_AFTER_S
