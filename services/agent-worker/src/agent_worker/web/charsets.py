"""Bytes of web pages as text, whatever they say or do not say about their charset.

The order is that of browsers: byte order mark, header, meta tag, guess.
"""

import codecs
import re

# Where browsers look for a meta tag, and a little more: comments often come first.
_HEAD_BYTES = 4096
_META = re.compile(rb"<meta\b[^>]{0,300}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml\b[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})", re.IGNORECASE)
_HEADER = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Pages use more than what they declare; the larger set reads both.
_LARGER = {
    "gb2312": "gb18030",
    "gb_2312-80": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "chinese": "gb18030",
    "big5": "big5hkscs",
    "big5-hkscs": "big5hkscs",
    "x-x-big5": "big5hkscs",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "x-sjis": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-9": "cp1254",
}
# Python has codecs that are no charsets of the web, some of them slow on purpose-made bytes.
_KNOWN = re.compile(
    r"utf-?8|utf-?16(-?[bl]e)?|gb18030|euc-jp|iso-2022-jp|iso-8859-\d{1,2}|(windows-|cp)\d{3,4}"
    r"|koi8-[ru]|macintosh|tis-620|hz(-gb-2312)?"
)
_GUESSES = ("utf-8", "gb18030")
_LAST_GUESS = "cp1252"


def decode(body: bytes, content_type: str = "") -> str:
    """The text; what is no character of the charset becomes U+FFFD. Never raises."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace")
    charset = _from_header(content_type) or _from_page(body) or _guessed(body)
    return body.decode(charset, "replace")


def _from_header(content_type: str) -> str | None:
    found = _HEADER.search(content_type)
    return _codec(found[1]) if found else None


def _from_page(body: bytes) -> str | None:
    head = body[:_HEAD_BYTES]
    found = _XML.search(head) or _META.search(head)
    if found is None:
        return None
    charset = _codec(found[1].decode("ascii", "replace"))
    # Were it UTF-16, the tag could not have been read.
    return "utf-8" if charset and charset.startswith("utf-16") else charset


def _codec(label: str) -> str | None:
    """Python's name for a declared charset, None for an unknown one."""
    name = label.lower()
    if name in _LARGER:
        return _LARGER[name]
    if _KNOWN.fullmatch(name) is None:
        return None
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


def _guessed(body: bytes) -> str:
    return next((charset for charset in _GUESSES if _fits(body, charset)), _LAST_GUESS)


def _fits(body: bytes, charset: str) -> bool:
    """True if all of it reads so; the last character may be cut."""
    try:
        codecs.getincrementaldecoder(charset)("strict").decode(body)
    except UnicodeDecodeError:
        return False
    return True
