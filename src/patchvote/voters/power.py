"""Power normalisation: signed powers of features, which keep a few strong features from dominating the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..utils.onnx_graph import GraphBuilder

ROOT = 0.5  # exponent of the square root


def raised(values: npt.NDArray[Any], power: float) -> npt.NDArray[Any]:
    """Return ``sign(x) |x|^power`` of every value; with the power 1, the array itself.

    Examples
    --------
    >>> raised(np.array([9.0, -16.0, 0.0]), 0.5)
    array([ 3., -4.,  0.])
    """
    if power == 1:
        return values
    size = np.abs(values)
    size = np.sqrt(size, out=size) if power == ROOT else size**power
    return np.asarray(np.copysign(size, values, out=size))


def raise_in_place(values: npt.NDArray[Any], power: float) -> None:
    """Replace every value by ``sign(x) |x|^power``."""
    if power != 1:
        values[...] = raised(values, power)


def has_negative(values: npt.NDArray[Any]) -> bool:
    """Whether any value is negative.

    Examples
    --------
    >>> has_negative(np.array([0.0, 1.0], np.float16)), has_negative(np.array([0.0, -1.0], np.float16))
    (False, True)
    """
    if values.dtype == np.float16 and (values.view(np.int16) >= 0).all():  # the sign bit; a hundred times as fast
        return False
    return bool((values < 0).any())


def resolved(power: float | str, negative: bool) -> float:
    """Return the exponent: "auto" is that of the square root, or 1 if features can be negative."""
    if power == "auto":
        return 1.0 if negative else ROOT
    return float(power)


def power_nodes(graph: GraphBuilder, values: str, power: float) -> str:
    """Add signed powers of values to a graph."""
    if power == 1:
        return values
    size = graph.node("Pow", graph.node("Abs", values), graph.constant(power))
    return graph.node("Mul", graph.node("Sign", values), size)
