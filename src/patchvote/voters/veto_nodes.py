"""The veto of an adapted model as nodes of an ONNX graph: `veto.limited`, for one photo."""

from __future__ import annotations

import numpy as np

from ..utils.onnx_graph import GraphBuilder
from .veto import ORDER, Arrays

_BELOW = 1 - 1e-6  # factor on the threshold: in float32, a number nearer to it may be rounded up to it


def limited_nodes(
    graph: GraphBuilder, probability: str, vector: str, arrays: Arrays, classes: int, threshold: float
) -> str:
    """Limit the probabilities of a photo that the unadapted model rejects, given the vector of its bag.

    The vector has the shape (features, 1); the other parameters are those of `limited_by`.
    """
    votes = graph.node("MatMul", graph.constant(arrays["unadapted_linear"]), vector)
    votes = graph.node("Add", votes, graph.constant(arrays["unadapted_bias"][:, None]))
    return limited_by(graph, probability, graph.node("Softmax", votes, axis=0), arrays, classes, threshold)


def limited_by(
    graph: GraphBuilder, probability: str, before: str, arrays: Arrays, classes: int, threshold: float
) -> str:
    """Limit the probabilities of a photo that the unadapted model rejects.

    Parameters
    ----------
    graph : GraphBuilder
        Graph to which the nodes are added.
    probability : str
        Name of the adapted model's probabilities, of shape (classes,).
    before : str
        Name of the unadapted model's probabilities, of shape (its classes, 1).
    arrays : mapping of arrays
        Arrays of the model.
    classes : int
        Number of classes that the adapted model knows.
    threshold : float
        Rejection threshold of the adapted model.
    """
    place = np.zeros((classes, len(arrays["unadapted_class"])))
    place[arrays["unadapted_class"], np.arange(place.shape[1])] = 1
    known = place.sum(axis=1)
    unadapted = graph.node("Squeeze", graph.node("MatMul", graph.constant(place), before), graph.ints(1))
    first = graph.node("ArgMax", probability, axis=0, keepdims=1)
    largest = graph.node("Gather", probability, first)
    equal = graph.constant([1 / classes])
    mean = graph.node("Mul", graph.node("Add", graph.node("Gather", unadapted, first), largest), graph.constant([0.5]))
    most = graph.node("Min", mean, graph.constant([_BELOW * threshold]))
    above = graph.node("Max", graph.node("Sub", largest, equal), graph.constant([1e-9]))
    share = graph.node("Div", graph.node("Sub", most, equal), above)
    share = graph.node("Clip", share, graph.constant(ORDER), graph.constant(1.0))
    limited = graph.node("Add", equal, graph.node("Mul", share, graph.node("Sub", probability, equal)))
    confidence = graph.node("ReduceMax", before, keepdims=0)
    rejected = graph.node("Less", confidence, graph.constant(float(arrays["unadapted_threshold"][0])))
    is_known = graph.node("Greater", graph.node("Gather", graph.constant(known), first), graph.constant(0.5))
    return graph.node("Where", graph.node("And", rejected, is_known), limited, probability)
