"""Think blocks: kept in the history, taken out of what the user reads.

Models write reasoning as ``<think>…</think>`` (or ``<thinking>``, ``<reasoning>``), nested at
times, sometimes with the opening tag eaten by the server's template. Tags in code are text.
"""

import re

_NAME = "(?:think(?:ing)?|reasoning)"
_TAG = rf"<(?P<close>/?){_NAME}>"
_OPENING_TAGS = ("<think>", "<thinking>", "<reasoning>")
_MAX_TAG_CHARACTERS = len("</reasoning>")
_OPENING = re.compile(f"<{_NAME}>", re.IGNORECASE)
_TAGS = re.compile(_TAG, re.IGNORECASE)
_CODE_OR_TAG = re.compile(
    rf"(?P<code>```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`)|{_TAG}", re.IGNORECASE | re.DOTALL
)


def strip_thinking(text: str) -> str:
    """The text without think blocks; unchanged if it has none.

    A closing tag without an opening one ends reasoning that began with the text. A block that
    is never closed is reasoning to the end if the text begins with it, and text otherwise.
    """
    if _TAGS.search(text) is None:
        return text
    kept, seen, position = "", False, 0
    while match := _CODE_OR_TAG.search(text, position):
        before = text[position : match.start()]
        if match["code"] is not None:
            kept += before + match["code"]
            position = match.end()
        elif match["close"]:
            kept = kept + before if seen else ""
            seen, position = True, match.end()
        else:
            end = _end_of_block(text, match.end())
            if end is None and (kept + before).strip():
                break
            kept += before
            seen, position = True, len(text) if end is None else end
    kept += text[position:]
    return kept.strip() if seen else text


class VisibleText:
    """What of a streamed answer may be shown at once: all but the think blocks it begins with.

    What only the end can tell (a closing tag whose opening one was eaten, blocks further on) is
    shown; the whole answer, which went through ``strip_thinking``, replaces it in the end.
    """

    def __init__(self) -> None:
        self._held = ""
        self._depth = 0
        self._begun = False

    def add(self, piece: str) -> str:
        """The text that these characters make visible."""
        if self._begun:
            return piece
        self._held += piece
        while self._skipped():
            self._held = self._held.lstrip()
            opening = _OPENING.match(self._held)
            if opening is None:
                break
            self._held, self._depth = self._held[opening.end() :], 1
        if self._depth or any(tag.startswith(self._held.lower()) for tag in _OPENING_TAGS):
            return ""
        return self.rest()

    def rest(self) -> str:
        """At the end: what was held back because it might have become a tag."""
        held, self._held = self._held, ""
        self._begun = True
        return "" if self._depth else held

    def _skipped(self) -> bool:
        """Drop what is inside the open block; True when none is open.

        Blocks may be long and come in many pieces, so nothing is looked at twice.
        """
        position = 0
        for match in _TAGS.finditer(self._held):
            if self._depth == 0:
                break
            self._depth += -1 if match["close"] else 1
            position = match.end()
        self._held = self._held[position:]
        if self._depth:  # a tag may have begun
            self._held = self._held[-_MAX_TAG_CHARACTERS + 1 :]
        return self._depth == 0


def _end_of_block(text: str, position: int) -> int | None:
    """Where the block opened before ``position`` is closed; code in it protects nothing."""
    depth = 1
    for match in _TAGS.finditer(text, position):
        depth += -1 if match["close"] else 1
        if depth == 0:
            return match.end()
    return None
