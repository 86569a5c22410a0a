"""Text in a terminal of so many columns; Chinese characters take two."""

from prompt_toolkit.utils import get_cwidth

TAB = 4


def last_rows(text: str, columns: int, rows: int) -> list[str]:
    """The end of a text, folded to ``columns`` and cut to ``rows`` lines."""
    # What is before that cannot be seen: no need to fold a long text for each new word.
    end = text[-columns * rows :].expandtabs(TAB)
    folded = [row for line in end.split("\n") for row in _fold(line, columns)]
    return folded[-rows:]


def _fold(line: str, columns: int) -> list[str]:
    rows, width = [""], 0
    for character in line:
        taken = get_cwidth(character)
        if width + taken > columns:
            rows.append("")
            width = 0
        rows[-1] += character
        width += taken
    return rows
