"""Schemas for plain values that came from a file: what JSON can say, with types and bounds.

A check takes a value and returns what is wrong with it, or None. Checks of containers put the place of the wrong value
in front, so that a message reads ``.images['cat'] must be a whole number from 0 to 9, got 'many'``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], str | None]

_ENDLESS = 1 << 53  # a largest number that is there for safety, and that nobody needs to be told
_DEEPEST = 8  # levels of lists and tables inside a value that has no schema of its own
_MOST_UNKNOWN = 100  # such values in a record

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60
_repr.maxdict = _repr.maxlist = _repr.maxtuple = 4
_repr.maxlevel = 2


def brief(value: Any) -> str:
    r"""Return a value as it would be typed, cut where it is long; nothing in it can reach a terminal as a command.

    Examples
    --------
    >>> brief("red" + chr(27)), len(brief("x" * 10**6)) < 80
    ("'red\\x1b'", True)
    """
    return _repr.repr(value)


def text(longest: int) -> Check:
    """Accept text of at most so many characters."""
    return lambda value: (
        None
        if isinstance(value, str) and len(value) <= longest
        else f" must be text of at most {longest:,} characters, got {brief(value)}"
    )


def whole(least: int, most: int) -> Check:
    """Accept a whole number, both ends included."""
    bounds = f"of at least {least:,}" if most >= _ENDLESS else f"from {least:,} to {most:,}"
    return lambda value: (
        None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        else f" must be a whole number {bounds}, got {brief(value)}"
    )


def number(least: float, most: float) -> Check:
    """Accept a number, both ends included; never NaN.

    Examples
    --------
    >>> number(0, 1)(0.5), number(0, 1)(float("nan"))
    (None, ' must be a number from 0 to 1, got nan')
    """
    return lambda value: (
        None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
        else f" must be a number from {least:g} to {most:g}, got {brief(value)}"
    )


def flag(value: Any) -> str | None:
    """Accept true or false."""
    return None if isinstance(value, bool) else f" must be true or false, got {brief(value)}"


def one_of(*allowed: Any) -> Check:
    """Accept one of a few values, of the same type."""
    return lambda value: (
        None
        if any(type(value) is type(other) and value == other for other in allowed)
        else f" must be one of {', '.join(map(brief, allowed))}, got {brief(value)}"
    )


def either(*checks: Check) -> Check:
    """Accept what any of several checks accepts; the message is that of the last."""

    def check(value: Any) -> str | None:
        wrong = None
        for one in checks:
            wrong = one(value)
            if wrong is None:
                return None
        return wrong

    return check


def listed(each: Check, *, length: int | None = None) -> Check:
    """Accept a list of such values, of any length or of a given one."""

    def check(value: Any) -> str | None:
        if not isinstance(value, (list, tuple)) or (length is not None and len(value) != length):
            many = "" if length is None else f" of {length} values"
            return f" must be a list{many}, got {brief(value)}"
        for index, item in enumerate(value):
            if (wrong := each(item)) is not None:
                return f"[{index}]{wrong}"
        return None

    return check


def table(each: Check, key: Check) -> Check:
    """Accept a table of such values under any keys that fit.

    Examples
    --------
    >>> table(whole(0, 9), text(10))({"cat": "many"})
    "['cat'] must be a whole number from 0 to 9, got 'many'"
    """

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f" must be a table, got {brief(value)}"
        for name, item in value.items():
            if (wrong := key(name)) is not None:
                return f": a key{wrong}"
            if (wrong := each(item)) is not None:
                return f"[{brief(name)}]{wrong}"
        return None

    return check


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Accept a table with these keys; others may come from a later version, and pass unless they nest deeply."""
    known = {**required, **(optional or {})}

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f" must be a table, got {brief(value)}"
        for name in required:
            if name not in value:
                return f".{name} is missing"
        if len(value) > len(known) + _MOST_UNKNOWN:
            return f" has {len(value):,} keys, more than a later version can have added"
        for name, item in value.items():
            wrong = known.get(name, shallow)(item)
            if wrong is not None:
                return (f".{name}" if name in known else f"[{brief(name)}]") + wrong
        return None

    return check


def shallow(value: Any, levels: int = _DEEPEST) -> str | None:
    """Accept any value whose lists and tables nest to a few levels only."""
    if not isinstance(value, (list, tuple, dict)):
        return None
    if levels == 0:
        return f" nests deeper than {_DEEPEST} levels"
    for item in value.values() if isinstance(value, dict) else value:
        if (wrong := shallow(item, levels - 1)) is not None:
            return wrong
    return None
