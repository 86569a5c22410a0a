"""Answers of web servers as text: HTML becomes Markdown, text stays as it is."""

import html
import re
from typing import NamedTuple
from urllib.parse import urljoin

import html_to_markdown
from html_to_markdown import ConversionError, ConversionOptions

from agent_worker.tool import ToolError
from agent_worker.web.charsets import decode

# The converter took up to 15 s for 1.6 million characters made to be slow, 4 s for half a million.
MAX_HTML_CHARACTERS = 800_000

_OPTIONS = ConversionOptions(
    # The title is read here, for it stands in no body.
    extract_metadata=False,
    skip_images=True,
    inline_data_media="drop_element",
    # What a reader would not see may be there for the model alone.
    hidden_content="drop",
    compact_tables=True,
)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/.+|.+[/+](json|xml|yaml)|application/(json5|x-ndjson|jsonl|javascript|x-yaml|toml|x-sh)"
)
_LOOKS_LIKE_HTML = re.compile(r"\s*<(!doctype html|html|head|body)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^>]{0,200}>([^<]{0,500})", re.IGNORECASE)
# Its first word, which is what decides; with spaces or parentheses it is in angle brackets.
_LINK = re.compile(r"(?<=\]\()(<?)([^\s()<>]+)")
_BLANK_LINES = re.compile(r"\n{3,}")


class Page(NamedTuple):
    """What a page says; ``title`` is empty for all but HTML, ``whole`` False for the beginning."""

    title: str
    text: str
    whole: bool = True


def read_page(body: bytes, content_type: str, url: str) -> Page:
    """Read the body of an answer; links are made absolute by its URL.

    May take seconds for a large page: call it in a thread. Raises ToolError for what is no text.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind and kind not in _HTML and _TEXT.fullmatch(kind) is None:
        raise ToolError(f"this is {kind[:80]}. Only web pages, JSON and plain text can be read.")
    text = decode(body, content_type)
    if "\0" in text:
        raise ToolError("this is a binary file. Only web pages, JSON and plain text can be read.")
    if kind in _HTML or (not kind and _LOOKS_LIKE_HTML.match(text)):
        page = _from_html(text[:MAX_HTML_CHARACTERS], url)
        return page._replace(whole=len(text) <= MAX_HTML_CHARACTERS)
    return Page("", text)


def _from_html(source: str, url: str) -> Page:
    try:
        content = html_to_markdown.convert(source, _OPTIONS).content or ""
    except ConversionError as error:
        raise ToolError(f"the page cannot be read: {error}") from error
    found = _TITLE.search(source)
    title = " ".join(html.unescape(found[1]).split()) if found else ""
    return Page(title, _BLANK_LINES.sub("\n\n", _absolute(content, url)))


def _absolute(markdown: str, url: str) -> str:
    """The links in full, so that they can be followed."""

    def full(link: re.Match[str]) -> str:
        bracket, address = link.groups()
        try:
            return f"{bracket}{urljoin(url, address)}"
        except ValueError:
            return f"{bracket}{address}"

    return _LINK.sub(full, markdown)
