"""Pages in the charsets of the Chinese web, declared in every way or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.web.charsets import decode

SIMPLIFIED = "<title>中国驿站</title>：古代传递文书的人中途换马休息的地方。"
# Beyond GB2312, yet pages that declare it have it: 镕 and 堃.
BEYOND = "<title>朱镕基与堃</title>"
TRADITIONAL = "<title>驛站</title>：古代傳遞文書的人中途換馬休息的地方。"


def meta(charset: str) -> str:
    return f'<html><head><meta charset="{charset}">'


def http_equiv(charset: str) -> str:
    return f"<meta http-equiv=Content-Type content='text/html; charset={charset}'>"


@pytest.mark.parametrize(
    ("text", "charset", "declared"),
    [
        (SIMPLIFIED, "gb2312", "gb2312"),
        (SIMPLIFIED, "gbk", "GBK"),
        (BEYOND, "gbk", "gb2312"),
        (BEYOND, "gb18030", "gb18030"),
        (SIMPLIFIED, "gbk", "x-gbk"),
        (SIMPLIFIED, "hz", "hz-gb-2312"),
        (TRADITIONAL, "big5", "Big5"),
        (TRADITIONAL, "big5hkscs", "big5-hkscs"),
        (SIMPLIFIED, "utf-8", "utf8"),
        ("こんにちは", "shift_jis", "Shift_JIS"),
        ("こんにちは", "euc-jp", "euc-jp"),
        ("안녕하세요", "cp949", "euc-kr"),
        ("Привет", "koi8-r", "koi8-r"),
        ("Привет", "cp1251", "windows-1251"),
        ("€ café", "cp1252", "iso-8859-1"),
    ],
)
@pytest.mark.parametrize("form", [meta, http_equiv, None])
def test_declared(text: str, charset: str, declared: str, form: object) -> None:
    if form is None:
        assert decode(text.encode(charset), f"text/html; charset={declared}") == text
        assert decode(text.encode(charset), f'text/html;Charset="{declared}"; x=y') == text
        return
    assert callable(form)
    page = form(declared) + text
    assert decode(page.encode(charset), "text/html") == page


def test_an_xml_declaration_counts() -> None:
    page = f'<?xml version="1.0" encoding="GBK"?>{SIMPLIFIED}'
    assert decode(page.encode("gbk")) == page


def test_a_byte_order_mark_wins_over_the_header_and_the_header_over_the_page() -> None:
    for charset in ("utf-8-sig", "utf-16"):
        assert decode(SIMPLIFIED.encode(charset), "text/html; charset=big5") == SIMPLIFIED
    page = meta("big5") + SIMPLIFIED
    assert decode(page.encode("gbk"), "text/html; charset=gbk") == page


@pytest.mark.parametrize(
    ("text", "charset"),
    [(SIMPLIFIED, "utf-8"), (SIMPLIFIED, "gbk"), (BEYOND, "gb18030"), ("café, voilà", "cp1252")],
)
def test_undeclared(text: str, charset: str) -> None:
    assert decode(text.encode(charset)) == text


@pytest.mark.parametrize(
    "label", ["no-such-charset", "idna", "punycode", "zlib", "rot13", "unicode_escape", "utf-7"]
)
def test_what_is_no_charset_of_the_web_is_guessed(label: str) -> None:
    page = meta(label) + SIMPLIFIED
    assert decode(page.encode(), f"text/html; charset={label}") == page


def test_a_page_that_calls_itself_utf_16_is_not() -> None:
    page = meta("utf-16") + SIMPLIFIED
    assert decode(page.encode()) == page


@pytest.mark.parametrize("charset", ["utf-8", "gbk"])
def test_a_character_that_was_cut_spoils_no_other(charset: str) -> None:
    assert decode(SIMPLIFIED.encode(charset) + "驿".encode(charset)[:1]) == SIMPLIFIED + "�"


@given(st.binary(max_size=300), st.text(max_size=60))
def test_any_bytes_are_text(body: bytes, content_type: str) -> None:
    decode(body, content_type)
    decode(b"<meta charset=" + body, "text/html; charset=" + content_type)
