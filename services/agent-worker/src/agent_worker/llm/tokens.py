"""Counts tokens without a network and without a vocabulary.

A rule fitted on English, Chinese, code and JSON; mean error -9 to +1 % against o200k.
"""

import re
from functools import lru_cache

_PARTS = re.compile(
    "(?P<opaque>[A-Za-z0-9+/=_-]{24,})"
    "|(?P<cjk>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef])"
    r"|(?P<word>[^\W\d_\u3040-\u9fff\uac00-\ud7af]+)"
    r"|(?P<digits>\d+)"
    r"|(?P<newlines>[\r\n]+)"
    r"|(?P<mark>[^\w\s]|_)"
)
MAX_CACHED_CHARACTERS = 4096
_PER_OPAQUE_CHARACTER = 1 / 1.7
_PER_CJK = 0.9
_PER_DIGIT = 1 / 2.2
_PER_NEWLINES = 0.45
_PER_MARK = 0.6


def estimate(text: str) -> int:
    """Tokens of a text, about; 0 for ''."""
    return _cached(text) if len(text) <= MAX_CACHED_CHARACTERS else _count(text)


def _count(text: str) -> int:
    total = 0.0
    for match in _PARTS.finditer(text):
        total += _weight(match.lastgroup or "", len(match[0]))
    return round(total) or int(bool(text))


# The same history is counted at each call.
_cached = lru_cache(maxsize=4096)(_count)


def _weight(kind: str, length: int) -> float:
    match kind:
        case "word":
            return 1 + max(0, -(-(length - 7) // 5))
        case "cjk":
            return _PER_CJK
        case "digits":
            return length * _PER_DIGIT
        case "opaque":
            return length * _PER_OPAQUE_CHARACTER
        case "newlines":
            return _PER_NEWLINES
        case _:
            return _PER_MARK
