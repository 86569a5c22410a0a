"""What others wrote, made harmless for a terminal.

A model or another user may send escape sequences, which move the cursor, rename the window or
type for the user, and bidi overrides, which make a text read as another one.
"""

import re

_LINE_ENDS = re.compile("\r\n?|[\u2028\u2029]")
# Control characters but tab and newline; ends of lines and paragraphs; bidi embeddings, overrides
# and isolates; lone surrogates.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PICTURES = 0x2400
_DELETE = "\x7f"


def printable(text: str) -> str:
    """The text with a visible sign in place of every character that a terminal would obey."""
    return _HARMFUL.sub(_sign, _LINE_ENDS.sub("\n", text))


def printable_json(text: str) -> str:
    """The same JSON value, with those characters written as escapes."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _sign(found: re.Match[str]) -> str:
    character = found[0]
    if character < " ":
        return chr(_PICTURES + ord(character))
    return "\u2421" if character == _DELETE else "\ufffd"
