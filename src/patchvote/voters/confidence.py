"""Confidence: the vote of a part counts for what the part knows.

A part of the sky says much the same of every class that has a sky, and a part of a ground that the training photos did
not show says something of every class by chance. The lead of a part, the difference between its two largest votes, is
small for such parts. So every part gets the weight ``lead ** exponent``, and the score of a bag is the weighted mean of
its votes. With the exponent 0 all parts count the same, as in the paper.

The weights of a bag are scaled to a mean of 1. A vote times its weight is then the part's share of the score, and the
shares of all parts still have the score as their mean: evidence adds up as it does without weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..utils.onnx_graph import GraphBuilder


def part_weights(votes: npt.NDArray[Any], exponent: float) -> npt.NDArray[np.float64]:
    """Return the weight of each part, not yet scaled, from its votes ``(parts, classes)``.

    Examples
    --------
    >>> part_weights(np.array([[5.0, 1.0, 0.0], [2.0, 2.0, 0.0]]), 0.5)
    array([2., 0.])
    """
    if exponent == 0 or votes.shape[1] < 2:
        return np.ones(len(votes))
    largest = np.partition(votes, votes.shape[1] - 2, axis=1)[:, -2:].astype(np.float64)
    return np.asarray((largest[:, 1] - largest[:, 0]) ** exponent)


def scaled(weights: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Scale the weights of each bag to a mean of 1; a bag whose parts all have the weight 0 gets equal weights.

    Examples
    --------
    >>> scaled(np.array([3.0, 1.0, 0.0, 0.0]), np.array([0, 2, 4]))
    array([1.5, 0.5, 1. , 1. ])
    """
    sizes = np.diff(offsets)
    means = np.add.reduceat(weights, offsets[:-1]) / sizes
    known = np.repeat(means > 0, sizes)
    return np.where(known, weights / np.repeat(np.where(means > 0, means, 1), sizes), 1.0)


def weight_nodes(graph: GraphBuilder, votes: str, exponent: float) -> str:
    """Add the weights ``(1, cells)`` of cells, not yet scaled, from their votes ``(classes, cells)``."""
    first, second = graph.largest(votes, 2, axis=0)
    return graph.node("Pow", graph.node("Sub", first, second), graph.constant(exponent))
