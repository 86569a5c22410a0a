"""Tool results as text that can be stored, sent and afforded."""

HEAD_SHARE = 0.7
_MARKER = "\n\n[… {cut} of {total} characters left out …]\n\n"
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def clean(text: str) -> str:
    """The text without NUL, which Postgres cannot store, and lone surrogates, which UTF-8 lacks."""
    if text.isascii():
        return text.replace("\0", "") if "\0" in text else text
    return text.replace("\0", "").translate(_SURROGATES)


def cap(text: str, limit: int) -> str:
    """At most ``limit`` characters: 70 % head, 30 % tail and a marker between, or the text."""
    if len(text) <= limit:
        return text
    room = limit - len(_MARKER.format(cut=len(text), total=len(text)))
    if room <= 0:
        return text[:limit]
    head = int(room * HEAD_SHARE)
    tail = room - head
    marker = _MARKER.format(cut=len(text) - room, total=len(text))
    return text[:head] + marker + text[len(text) - tail :]
