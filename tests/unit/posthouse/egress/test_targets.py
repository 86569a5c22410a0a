"""What may be called, and when to call again."""

from email.utils import formatdate
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.egress.targets import MAX_RETRY_AFTER_S, Answer, Refused, Target


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
