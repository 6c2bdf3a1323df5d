"""Schemas for JSON values that were read from a file, with types and bounds.

A check takes a value and returns a description of the problem, or None. Checks of containers prepend the position of
the wrong value, so that a message reads ``.images['cat'] must be a whole number from 0 to 9, got 'many'``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], str | None]

_UNBOUNDED = 1 << 53  # messages do not mention an upper bound from here on: it only guards against overflow
_MAX_DEPTH = 8  # levels of lists and tables inside a value that has no schema
_MAX_UNKNOWN = 100  # values without a schema in one record; a later version will hardly add as many

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60
_repr.maxdict = _repr.maxlist = _repr.maxtuple = 4
_repr.maxlevel = 2


def brief(value: Any) -> str:
    r"""Return the `repr` of a value, shortened where it is long and without control characters of a terminal.

    Examples
    --------
    >>> brief("red" + chr(27)), len(brief("x" * 10**6)) < 80
    ("'red\\x1b'", True)
    """
    return _repr.repr(value)


def text(longest: int) -> Check:
    """Accept text of at most `longest` characters."""
    return lambda value: (
        None
        if isinstance(value, str) and len(value) <= longest
        else f" must be text of at most {longest:,} characters, got {brief(value)}"
    )


def whole(least: int, most: int) -> Check:
    """Accept a whole number from `least` to `most`, both included."""
    bounds = f"of at least {least:,}" if most >= _UNBOUNDED else f"from {least:,} to {most:,}"
    return lambda value: (
        None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        else f" must be a whole number {bounds}, got {brief(value)}"
    )


def number(least: float, most: float) -> Check:
    """Accept a number from `least` to `most`, both included; never NaN.

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
    """Accept a value that equals one of `allowed` and has its type."""
    return lambda value: (
        None
        if any(type(value) is type(other) and value == other for other in allowed)
        else f" must be one of {', '.join(map(brief, allowed))}, got {brief(value)}"
    )


def either(*checks: Check) -> Check:
    """Accept what any of several checks accepts; otherwise, the message is that of the last check."""

    def check(value: Any) -> str | None:
        problem = None
        for alternative in checks:
            problem = alternative(value)
            if problem is None:
                return None
        return problem

    return check


def listed(each: Check, *, length: int | None = None) -> Check:
    """Accept a list whose values pass the check `each`, of any length or of the given one."""

    def check(value: Any) -> str | None:
        if not isinstance(value, (list, tuple)) or (length is not None and len(value) != length):
            size = "" if length is None else f" of {length} values"
            return f" must be a list{size}, got {brief(value)}"
        for index, item in enumerate(value):
            if (problem := each(item)) is not None:
                return f"[{index}]{problem}"
        return None

    return check


def table(each: Check, key: Check) -> Check:
    """Accept a table whose values pass the check `each` and whose keys pass the check `key`.

    Examples
    --------
    >>> table(whole(0, 9), text(10))({"cat": "many"})
    "['cat'] must be a whole number from 0 to 9, got 'many'"
    """

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f" must be a table, got {brief(value)}"
        for name, item in value.items():
            if (problem := key(name)) is not None:
                return f": a key{problem}"
            if (problem := each(item)) is not None:
                return f"[{brief(name)}]{problem}"
        return None

    return check


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Accept a table with these keys. Further keys may come from a later version; their values must not nest deeply."""
    known = {**required, **(optional or {})}

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f" must be a table, got {brief(value)}"
        for name in required:
            if name not in value:
                return f".{name} is missing"
        if len(value) > len(known) + _MAX_UNKNOWN:
            return f" has {len(value):,} keys, more than a later version can have added"
        for name, item in value.items():
            problem = known.get(name, shallow)(item)
            if problem is not None:
                return (f".{name}" if name in known else f"[{brief(name)}]") + problem
        return None

    return check


def shallow(value: Any, levels: int = _MAX_DEPTH) -> str | None:
    """Accept any value whose lists and tables nest to at most `levels` levels."""
    if not isinstance(value, (list, tuple, dict)):
        return None
    if levels == 0:
        return f" nests deeper than {_MAX_DEPTH} levels"
    for item in value.values() if isinstance(value, dict) else value:
        if (problem := shallow(item, levels - 1)) is not None:
            return problem
    return None
