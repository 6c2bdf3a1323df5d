"""Nodes of an ONNX graph: what the votes of several scorers share, and the familiarity of a photo.

Every function adds nodes and returns the name of their value.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from ..utils.onnx_graph import GraphBuilder
from .familiarity import LEAST_ODDS, Familiarity
from .votes import ROOT

_LEAST_GAP = 1e-6  # between two held-out photos: nearer ones are taken for equal, as float32 does


@dataclasses.dataclass(frozen=True)
class Exported:
    """Names of the values that a scorer adds to a graph."""

    votes: list[str]
    scores: str
    probability: str
    unadapted: str | None = None


def cells(graph: GraphBuilder, one: str) -> str:
    """Return a map ``(d, rows, columns)`` as ``(d, cells)``."""
    return graph.node("Reshape", one, graph.ints(0, -1))


def size(graph: GraphBuilder, flat: str) -> str:
    """Return the number of cells of ``(d, cells)``."""
    return graph.cast(graph.node("Gather", graph.node("Shape", flat), graph.ints(1)), "FLOAT")


def as_map(graph: GraphBuilder, flat: str, like: str) -> str:
    """Return ``(classes, cells)`` in the rows and columns of a map."""
    return graph.node("Reshape", flat, graph.node("Concat", graph.ints(-1), _grid(graph, like), axis=0))


def _grid(graph: GraphBuilder, one: str) -> str:
    """Return the numbers of rows and columns of a map."""
    return graph.node("Slice", graph.node("Shape", one), graph.ints(1), graph.ints(3))


def mean_cell(graph: GraphBuilder, first: str) -> str:
    """Return the descriptor ``(d, 1)`` of the whole photo: the mean over the cells of the first scale."""
    return graph.node("Div", graph.sum(first, 1), size(graph, first))


def added(graph: GraphBuilder, values: list[str]) -> str:
    """Return the sum of values of the same shape."""
    return functools.reduce(lambda one, other: graph.node("Add", one, other), values)


def length(graph: GraphBuilder, array: str) -> str:
    """Return the length of an array with two axes, 1 if it is 0, with the shape (1, 1)."""
    square = graph.sum(graph.sum(graph.node("Mul", array, array), 0), 1)
    root = graph.node("Sqrt", square)
    return graph.node("Add", root, is_zero(graph, root))


def is_zero(graph: GraphBuilder, value: str) -> str:
    """Return 1 where a value is 0, and 0 elsewhere."""
    return graph.cast(graph.node("Equal", value, graph.constant(0.0)), "FLOAT")


def vector_of_bag(graph: GraphBuilder, flat: list[str], whole: bool) -> str:
    """Return the mean rooted descriptor ``(d, 1)`` of a bag, with length 1, as `bags.moments.photo_vectors` does.

    The bag has the cells ``(d, cells)`` of all scales, and that of the whole photo.
    """
    every = [mean_cell(graph, flat[0]), *flat] if whole else flat
    count = added(graph, [size(graph, one) for one in every])
    rooted = [power_nodes(graph, one, ROOT) for one in every]
    mean = graph.node("Div", added(graph, [graph.sum(one, 1) for one in rooted]), count)
    return graph.node("Div", mean, length(graph, mean))


def softmax_of(graph: GraphBuilder, scores: str, temperature: float) -> str:
    """Return the probabilities for scores."""
    return graph.node("Softmax", graph.node("Div", scores, graph.constant(temperature)), axis=0)


def centres_of(graph: GraphBuilder, one: str) -> tuple[str, str]:
    """Return the x and y of the centres of a map's cells in 0..1, each ``(1, cells)``."""
    ones = graph.node("Expand", graph.constant(1.0), _grid(graph, one))

    def centres(axis: int) -> str:
        middle = graph.node("Sub", graph.node("CumSum", ones, graph.constant(axis, np.int64)), graph.constant(0.5))
        return graph.node("Reshape", graph.node("Div", middle, graph.sum(ones, axis)), graph.ints(1, -1))

    return centres(1), centres(0)


def power_nodes(graph: GraphBuilder, values: str, power: float) -> str:
    """Add signed powers of values to a graph."""
    if power == 1:
        return values
    size = graph.node("Pow", graph.node("Abs", values), graph.constant(power))
    return graph.node("Mul", graph.node("Sign", values), size)


def familiarity_nodes(
    graph: GraphBuilder, familiarity: Familiarity, maps: list[str], whole: bool, probability: str
) -> str:
    """Add the familiarity of a photo, of shape (1,)."""
    signs = _doubt(graph, probability), _distance(graph, familiarity, maps, whole)
    first, second = (
        graph.node("Div", graph.node("Sub", sign, graph.constant([centre])), graph.constant([unit]))
        for sign, (centre, unit) in zip(signs, familiarity.scales, strict=True)
    )
    most, least = graph.node("Max", first, second), graph.node("Min", first, second)
    beyond = graph.node("Exp", graph.node("Sub", least, most))
    strangeness = graph.node("Add", most, graph.node("Log", graph.node("Add", beyond, graph.constant([1.0]))))
    held_out = familiarity.held_out.astype(np.float64)
    # The part of each gap between held-out photos that lies beyond this one; the sum of all is the interpolated rank.
    gaps = graph.node("Sub", graph.constant(held_out[1:]), strangeness)
    gaps = graph.node("Div", gaps, graph.constant(np.maximum(np.diff(held_out), _LEAST_GAP)))
    stranger = graph.sum(graph.node("Clip", gaps, graph.constant(0.0), graph.constant(1.0)), 0)
    share = graph.node("Add", stranger, graph.constant([1.0]))
    share = graph.node("Div", share, graph.constant([1.0 + len(held_out)]))
    excess = graph.node("Relu", graph.node("Sub", strangeness, graph.constant(held_out[-1:])))
    return graph.node("Mul", share, graph.node("Exp", graph.node("Neg", excess)))


def _doubt(graph: GraphBuilder, probability: str) -> str:
    """Add the log odds against the likeliest class; the others are added up, which is more exact than 1 less it."""
    first = graph.node("ArgMax", probability, axis=0, keepdims=1)
    largest = graph.node("Gather", probability, first)
    others = graph.sum(graph.node("ScatterElements", probability, first, graph.constant([0.0]), axis=0), 0)
    least = graph.constant([LEAST_ODDS])
    odds = graph.node("Div", graph.node("Max", others, least), graph.node("Max", largest, least))
    return graph.node("Log", odds)


def _distance(graph: GraphBuilder, familiarity: Familiarity, maps: list[str], whole: bool) -> str:
    """Add the distance of the photo's vector to the nearest class mean."""
    vector = vector_of_bag(graph, [cells(graph, one) for one in maps], whole)
    # As the sum of squared differences: in float32, a difference of squares would lose the small ones.
    difference = graph.node("Sub", graph.constant(familiarity.means), graph.node("Transpose", vector, perm=[1, 0]))
    squares = graph.sum(graph.node("Mul", difference, difference), 1, keep=False)
    squares = graph.node("Mul", squares, graph.constant(1 / (1 + 1 / familiarity.counts.astype(np.float64))))
    nearest = graph.node("ReduceMin", squares, keepdims=1)
    return graph.node("Sqrt", nearest)
