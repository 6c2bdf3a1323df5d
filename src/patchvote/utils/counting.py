"""Counts in words."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as "1 photo".

    Examples
    --------
    >>> counted(1, "photo"), counted(1500, "photo"), counted(2, "class", "classes")
    ('1 photo', '1,500 photos', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
