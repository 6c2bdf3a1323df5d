"""Familiarity as nodes of an ONNX graph: `Familiarity.of`, for one photo."""

from __future__ import annotations

import numpy as np

from ..utils.onnx_graph import GraphBuilder
from .familiarity import LEAST_ODDS, Familiarity
from .onnx_nodes import cells, vector_of_bag

_LEAST_GAP = 1e-6  # between two held-out photos: nearer ones are taken for equal, as float32 does


def familiarity_nodes(
    graph: GraphBuilder, familiarity: Familiarity, maps: list[str], whole: bool, probability: str
) -> str:
    """Add the familiarity of a photo, of shape (1,).

    Parameters
    ----------
    graph : GraphBuilder
        Graph to which the nodes are added.
    familiarity : Familiarity
        Familiarity of a model.
    maps : list of str
        Names of the feature maps of the photo, of shape (features, rows, columns), one per scale.
    whole : bool
        Whether the bag also holds the mean of the first map.
    probability : str
        Name of the probabilities, of shape (classes,).
    """
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
