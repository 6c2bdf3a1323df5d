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


def none_readable(count: int) -> str:
    """Say that no photo can be read.

    Examples
    --------
    >>> none_readable(1), none_readable(12)
    ('the only photo cannot be read.', 'not one of the 12 photos can be read.')
    """
    return "the only photo cannot be read." if count == 1 else f"not one of the {count:,} photos can be read."
