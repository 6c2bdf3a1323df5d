"""Text in columns of a terminal: its width there, padding, shortening, and wrapping at words.

Chinese, Japanese and Korean characters and emoji are two columns wide, combining accents take none. `len` would
misalign every table with such a name.
"""

from __future__ import annotations

import re
import unicodedata

_WIDE = "WF"  # classes of `unicodedata.east_asian_width` with two columns
# A command in backquotes is one word, since it is copied as a whole; so is a number with its unit.
_WORD = re.compile(r"[^\s`]*`[^`]*`\S*|[^\s`]*\d (?:%|[kMG]B\b)[^\s`]*|\S+")


def width(text: str) -> int:
    """Return the number of columns that a text takes.

    Examples
    --------
    >>> width("cat"), width("桜"), width("e\N{COMBINING ACUTE ACCENT}")
    (3, 2, 1)
    """
    if text.isascii():
        return len(text)
    return sum(
        1 + (unicodedata.east_asian_width(character) in _WIDE)
        for character in text
        if unicodedata.category(character) not in ("Mn", "Me", "Cf")
    )


def padded(text: str, columns: int) -> str:
    """Return a text with spaces behind it up to a number of columns."""
    return text + " " * (columns - width(text))


def shortened(text: str, columns: int, *, keep_start: bool = False) -> str:
    """Return the end of a text that is too long, where paths are most informative, or its start.

    Examples
    --------
    >>> shortened("holidays/2024/beach.jpg", 12), shortened("beach.jpg", 12)
    ('…4/beach.jpg', 'beach.jpg')
    >>> shortened("none of these (dog?)", 12, keep_start=True)
    'none of the…'
    """
    if width(text) <= columns:
        return text
    while text and width(text) >= columns:
        text = text[:-1] if keep_start else text[1:]
    return text + "…" if keep_start else "…" + text


def wrapped(text: str, columns: int, indent: int = 0) -> list[str]:
    """Return the lines of a text, broken between words; a word that is longer than a line has a line of its own.

    Parameters
    ----------
    text : str
        Text on one line.
    columns : int
        Columns of the terminal.
    indent : int
        Columns that all lines but the first are indented by.

    Examples
    --------
    >>> wrapped("what is kept, and where", 14)
    ['what is kept,', 'and where']
    >>> wrapped("run `patchvote fit photos` again", 12)
    ['run', '`patchvote fit photos`', 'again']
    >>> wrapped("accuracy: 96.8 % of 5.0 GB.", 16)
    ['accuracy: 96.8 %', 'of 5.0 GB.']
    """
    if width(text) <= columns:
        return [text]
    lines, line, end = [], "", 0
    for match in _WORD.finditer(text):
        spaces, word, end = text[end : match.start()], match[0], match.end()
        if line.strip() and width(line) + len(spaces) + width(word) > columns:
            lines.append(line)
            line = " " * indent + word
        else:
            line += spaces + word
    return [*lines, line]
