"""Checks of the settings of voters: one table per voter, used by the estimator and by the model file.

Settings are plain data here, because reading a model must not import the estimators, which need scikit-learn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..utils.schema import Check, brief, either, number, one_of, table, text, whole

MAX_NAME = 1_000  # characters in the name of a class; names of folders have at most 255


def _label(value: Any) -> str | None:
    """Accept a class: short text, or what is no text, which an estimator may know but no model can store."""
    return text(MAX_NAME)(value) if isinstance(value, str) else None


AT_LEAST_ONE = whole(1, 1 << 53)
SHARE = number(0, 1)
WEIGHT = number(0, 1e12)
CONFIDENCE = number(0, 10)  # exponent of a part's lead
STRENGTH = number(1e-12, 1e12)
NONE = one_of(None)
SEED = either(NONE, whole(0, (1 << 32) - 1))
CLASS_WEIGHT = either(NONE, one_of("balanced"), table(WEIGHT, _label))
Q = either(one_of("inf"), number(1, 1e30))  # the largest float32 is 3e38


def _power(value: Any) -> str | None:
    """Check the exponent of a power normalisation."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1
    return None if fits else f" must be 'auto' or a number above 0, up to 1, got {brief(value)}"


POWER = either(one_of("auto"), _power)
AUTO_STRENGTH = either(one_of("auto"), number(1e-9, 1e12))  # with less, rounding decides


def plain(value: Any) -> Any:
    """Return the value of a setting in a form that JSON can represent, if it has one.

    Examples
    --------
    >>> plain(np.float64(0.5)), plain(math.inf), plain({"sea": np.int64(2)})
    (0.5, 'inf', {'sea': 2})
    """
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, str) and value == "inf":
        raise ValueError("must be the number infinity (math.inf) instead of the text 'inf'")
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None  # no seed can restore its state
    if isinstance(value, np.generic):
        value = value.item()
    return "inf" if isinstance(value, float) and value == math.inf else value


def from_plain(value: Any) -> Any:
    """Return the value of a setting from the form that `plain` returns."""
    if isinstance(value, dict):
        return {key: from_plain(item) for key, item in value.items()}
    return math.inf if isinstance(value, str) and value == "inf" else value


def unstorable(settings: Mapping[str, Any]) -> str | None:
    """Return which setting a file cannot store so that it comes back the same, or None.

    Examples
    --------
    >>> unstorable({"C": 1.0, "class_weight": {"sea": 2}}) is None
    True
    >>> unstorable({"class_weight": {1: 2}})
    'class_weight must be a number, text, true, false, None, or a list or table of these (keys: text), got {1: 2}'
    """
    for name, value in settings.items():
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            return (
                f"{name} must be a number, text, true, false, None, or a list or table of these (keys: text), "
                f"got {brief(value)}"
            )
    return None


def fault_of(settings: Mapping[str, Any], known: Mapping[str, Check]) -> str | None:
    """Return which setting is wrong and what it must be, or None.

    Examples
    --------
    >>> fault_of({"q": 0.5}, {"q": Q})
    'q must be a number from 1 to 1e+30, got 0.5'
    """
    for name, value in settings.items():
        if name in known and (wrong := known[name](value)) is not None:
            return f"{name}{wrong}"
    return None
