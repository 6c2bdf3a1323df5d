"""Checks of the settings of voters: one table per voter, used by the estimator and by the model file.

Settings are plain data here, because reading a model must not import the estimators, which need scikit-learn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..utils.schema import Check, brief, either, number, one_of, table, text, whole

MAX_NAME = 1_000  # characters in the name of a class; names of folders have at most 255

COUNT = whole(0, 1 << 53)
AT_LEAST_ONE = whole(1, 1 << 53)
SHARE = number(0, 1)
PART = number(0, 0.9)  # share of the images that is held out
WEIGHT = number(0, 1e12)
CONFIDENCE = number(0, 10)  # exponent of a part's lead
STRENGTH = number(1e-12, 1e12)
NONE = one_of(None)
SEED = either(NONE, whole(0, (1 << 32) - 1))
CLASS_WEIGHT = either(NONE, one_of("balanced"), table(WEIGHT, text(MAX_NAME)))
Q = either(one_of("inf"), number(1, 1e30))  # the largest float32 is 3e38


def _power(value: Any) -> str | None:
    """Check the exponent of a power normalisation."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1
    return None if fits else f" must be 'auto' or a number above 0, up to 1, got {brief(value)}"


POWER = either(one_of("auto"), _power)


def plain(value: Any) -> Any:
    """Return the value of a setting in a form that JSON can represent.

    Examples
    --------
    >>> plain(np.float64(0.5)), plain(math.inf), plain({np.int64(1): 2.0})
    (0.5, 'inf', {'1': 2.0})
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None  # no seed can restore its state
    if isinstance(value, np.generic):
        value = value.item()
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def from_plain(value: Any) -> Any:
    """Return the value of a setting from the form that `plain` returns."""
    return math.inf if isinstance(value, str) and value == "inf" else value


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
