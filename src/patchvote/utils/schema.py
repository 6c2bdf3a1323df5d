"""Schemas for JSON values that were read from a file, with types and bounds.

A check takes a value and returns a description of the problem, or None. Checks of containers prepend the position of
the wrong value, so that a message reads ``.images['cat'] must be a whole number from 0 to 9, got 'many'``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], str | None]

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60
_repr.maxdict = _repr.maxlist = _repr.maxtuple = 4
_repr.maxlevel = 2


def brief(value: Any) -> str:
    """Return the `repr` of a value, shortened where it is long; control characters become escapes."""
    return _repr.repr(value)


def _check(is_right: Callable[[Any], bool], expected: str) -> Check:
    return lambda value: None if is_right(value) else f" must be {expected}, got {brief(value)}"


def _is_number(value: Any, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def text(longest: int) -> Check:
    """Accept text of at most `longest` characters."""
    expected = f"text of at most {longest:,} characters"
    return _check(lambda value: isinstance(value, str) and len(value) <= longest, expected)


def whole(least: int, most: int) -> Check:
    """Accept a whole number from `least` to `most`, both included."""
    expected = f"a whole number from {least:,} to {most:,}"
    return _check(lambda value: _is_number(value, int) and least <= value <= most, expected)


def number(least: float, most: float) -> Check:
    """Accept a number from `least` to `most`, both included; never NaN."""
    kinds, expected = (int, float), f"a number from {least:g} to {most:g}"
    return _check(lambda value: _is_number(value, kinds) and least <= value <= most, expected)


def flag(value: Any) -> str | None:
    """Accept true or false."""
    return None if isinstance(value, bool) else f" must be true or false, got {brief(value)}"


def one_of(*allowed: Any) -> Check:
    """Accept a value that equals one of `allowed` and has its type."""
    known = [(type(value), value) for value in allowed]
    return _check(lambda value: (type(value), value) in known, f"one of {', '.join(map(brief, allowed))}")


def either(*checks: Check) -> Check:
    """Accept what any of several checks accepts; otherwise, the message is that of the last check."""

    def check(value: Any) -> str | None:
        problems = [alternative(value) for alternative in checks]
        return None if None in problems else problems[-1]

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
    """Accept a table whose values pass the check `each` and whose keys pass the check `key`."""

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
    """Accept a table with these keys; others are not looked at."""
    known = {**required, **(optional or {})}

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f" must be a table, got {brief(value)}"
        for name in required:
            if name not in value:
                return f".{name} is missing"
        problems = ((name, known[name](item)) for name, item in value.items() if name in known)
        return next((f".{name}{problem}" for name, problem in problems if problem is not None), None)

    return check
