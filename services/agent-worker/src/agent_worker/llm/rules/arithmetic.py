"""Finds the expression in "what is 2+3?", "12 加 30 等于多少" and their like."""

import re
import unicodedata

MAX_CHARACTERS = 300

_WORDS = (
    (r"\bplus\b|加上|加", "+"),
    (r"\bminus\b|减去|减|−|–", "-"),
    (r"\b(?:times|multiplied by)\b|乘以|乘上|乘|×|·", "*"),
    (r"\b(?:divided by|over)\b|除以|÷", "/"),
    (r"\bto the power of\b|\^", "**"),
    (r"\bsquared\b|的?平方", "**2"),
    (r"\bcubed\b|的?立方", "**3"),
    (r"的?\s*(\d+)\s*次方", r"**\1"),
    (r"(?<=\d)\s*x\s*(?=\d)", "*"),
)
_POLITE = r"(?:please|请问|请|帮我|麻烦)?\s*"
_ASK = (
    r"(?:what(?:'s|’s| is| are)|how much (?:is|are)|calculate|compute|evaluate|work out"
    r"|计算一下|计算|算一下|算算|算)?"
)
_LEAD = re.compile(rf"^{_POLITE}{_ASK}[:\s]*")
_TAIL = re.compile(
    r"(?:\s*(?:等于|是|得|equals?|=)\s*(?:多少|几|what)?|\s*多少)?\s*[?。.!呢啊吗\s]*$"
)
_EXPRESSION = re.compile(r"[\d\s.+\-*/%(),]+")
_OPERATION = re.compile(r"[\d)]\s*[-+*/%]+\s*[-+(]*\s*[\d.]")
_DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}")


def expression_in(text: str) -> str | None:
    """The expression that a text asks for, in ASCII; None if the text is anything else."""
    # Runs of spaces and digits cost the patterns their square or cube: one space, and no novels.
    plain = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    if len(plain) > MAX_CHARACTERS:
        return None
    plain = _TAIL.sub("", _LEAD.sub("", plain))
    for pattern, operator in _WORDS:
        plain = re.sub(pattern, operator, plain)
    plain = plain.strip()
    if _DATE.fullmatch(plain) or not _EXPRESSION.fullmatch(plain):
        return None
    return plain if _OPERATION.search(plain) else None
