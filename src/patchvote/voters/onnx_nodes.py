"""Nodes of an ONNX graph that the votes of all scorers share; each function returns the name of its value."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from ..utils.onnx_graph import GraphBuilder
from .power import ROOT, power_nodes


@dataclasses.dataclass(frozen=True)
class Exported:
    """Names of the values that a scorer adds to a graph.

    Parameters
    ----------
    votes : list of str
        Votes of shape (classes, rows, columns), one per scale.
    scores, probability : str
        Scores and probabilities of the classes, of shape (classes,).
    unadapted : str, optional
        Probabilities before the voter was adapted, by which strangers are rejected.
    """

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
    grid = graph.node("Slice", graph.node("Shape", like), graph.ints(1), graph.ints(3))
    return graph.node("Reshape", flat, graph.node("Concat", graph.ints(-1), grid, axis=0))


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
    none = graph.node("Equal", root, graph.constant(0.0))
    return graph.node("Where", none, graph.constant(1.0), root)


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
    shape = graph.node("Shape", one)
    lines = []
    for axis in (1, 2):
        count = graph.node("Gather", shape, graph.constant(axis, np.int64))
        steps = graph.node("Range", graph.constant(0, np.int64), count, graph.constant(1, np.int64))
        middle = graph.node("Add", graph.cast(steps, "FLOAT"), graph.constant(0.5))
        lines.append(graph.node("Div", middle, graph.cast(count, "FLOAT")))
    grid = graph.node("Slice", shape, graph.ints(1), graph.ints(3))
    down = graph.node("Expand", graph.node("Unsqueeze", lines[0], graph.ints(1)), grid)
    across = graph.node("Expand", graph.node("Unsqueeze", lines[1], graph.ints(0)), grid)
    return graph.node("Reshape", across, graph.ints(1, -1)), graph.node("Reshape", down, graph.ints(1, -1))
