"""PrototypeVotes: every class has a few prototypes; a descriptor's vote is phi of its products with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from ..utils.onnx_graph import GraphBuilder
from ..utils.schema import either, one_of
from .ml3 import phi
from .onnx_nodes import Exported, as_map, cells, centres_of, is_zero, mean_cell, power_nodes, size, softmax_of
from .scorer import (
    FLOATS,
    MAX_NUMBER,
    STRENGTH,
    WEIGHT,
    WHOLE,
    DescriptorScorer,
    Schema,
    check_boxes,
    check_numbers,
    checks,
)
from .votes import chunk_rows, raised

_ARRAYS = {"weights": ("prototype class input", FLOATS), "mean": ("input", FLOATS), "scale": ("input", FLOATS)}
_MEMORY = {
    "memory_values": ("descriptor feature", FLOATS),
    "memory_boxes": ("descriptor 4", FLOATS),
    "memory_class": ("descriptor", WHOLE),
}
_SETTINGS = ("n_prototypes", "q", "max_iter", "batch_size", "position_weight", "confidence", "power", "class_weight")
_SCALES = 1e-30, 1e30  # range of 1 / standard deviation of a feature, within what float32 can hold


class PrototypeVotes(DescriptorScorer):
    """Votes of `SNBNL` and `NBNL`."""

    @property
    def features(self) -> int:
        """Number of features per descriptor, without positions."""
        return int(self.arrays["weights"].shape[-1]) - 2 * self.positions

    @property
    def chunk(self) -> int:
        """Number of descriptors whose votes are computed at once: each has one product per prototype."""
        return chunk_rows(len(self.arrays["weights"]) * self.classes)

    @property
    def q(self) -> float:
        """Exponent of the norm that turns the products with a class's prototypes into one vote."""
        return float(self.settings["q"])  # also "inf"

    def vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the votes of descriptors, to which positions are appended if they are used."""
        if self.power != 1:
            values = np.hstack([raised(values[:, : self.features], self.power), values[:, self.features :]])
        flat, shift = self._folded()
        products = flat @ values.astype(flat.dtype, copy=False).T
        products -= shift[:, None]
        return np.asarray(phi(products.reshape(-1, self.classes, len(values)), self.q).T)

    def _folded(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return prototypes ``(prototypes * classes, features)`` into which standardisation is folded, and their shift.

        W (x - mean) * scale = (W * scale) x - (W * scale) mean.
        """
        weights = self.arrays["weights"]
        flat = (weights.reshape(-1, weights.shape[-1]) * self.arrays["scale"]).astype(weights.dtype)
        return flat, flat @ self.arrays["mean"].astype(flat.dtype)

    def check(self, images: int | None = None) -> None:
        """Refuse arrays that are inconsistent, and prototypes whose votes would overflow."""
        weights, scale = self.arrays["weights"], self.arrays["scale"]
        if len(weights) < 1 or not isinstance(self.settings.get("power", 1.0), (int, float)):
            raise ModelError("it has no prototypes, or its setting power is no number.")
        if "memory_values" in self.arrays:
            values, boxes, numbers = (self.arrays[name] for name in _MEMORY)
            if values.shape[1] != self.features:
                raise ModelError("the memory does not fit the prototypes.")
            check_numbers(numbers, self.classes)
            check_boxes(boxes)
        least, most = _SCALES
        if not (scale.min() >= least and scale.max() <= most):
            raise ModelError(f"the array 'scale' has numbers from {scale.min():.3g} to {scale.max():.3g}: no scales.")
        largest = np.maximum(weights.max(axis=(0, 1)), -weights.min(axis=(0, 1))).astype(np.float64) * scale
        if largest.max() > MAX_NUMBER:
            raise ModelError("the arrays 'weights' and 'scale' are so large that votes would overflow.")

    def to_onnx(self, graph: GraphBuilder, maps: list[str], whole: bool, temperature: float) -> Exported:
        """Add the votes of every cell, and their mean."""
        votes = [
            self._vote_nodes(graph, cells(graph, one), centres_of(graph, one) if self.positions else None)
            for one in maps
        ]
        every = list(votes)
        if whole:
            middle, first = graph.constant([[0.5]]), mean_cell(graph, cells(graph, maps[0]))
            every.append(self._vote_nodes(graph, first, (middle, middle) if self.positions else None))
        together = graph.node("Concat", *every, axis=1)
        count = size(graph, together)
        if self.confidence:
            mean = graph.node("Div", graph.sum(self._lead_nodes(graph, together), 1), count)
            none = is_zero(graph, mean)  # where no cell of the photo has a lead, all have the weight 1
            mean, every = graph.node("Add", mean, none), [*votes, together]
            leads = [graph.node("Add", self._lead_nodes(graph, some), none) for some in every]
            *votes, together = (
                graph.node("Mul", some, graph.node("Div", lead, mean)) for some, lead in zip(every, leads, strict=True)
            )
        scores = graph.node("Squeeze", graph.node("Div", graph.sum(together, 1), count), graph.ints(1))
        maps_of_votes = [as_map(graph, vote, one) for vote, one in zip(votes, maps, strict=True)]
        return Exported(maps_of_votes, scores, softmax_of(graph, scores, temperature))

    def _lead_nodes(self, graph: GraphBuilder, votes: str) -> str:
        """Add the unscaled weights of votes (`votes.part_weights`)."""
        first, second = graph.largest(votes, 2, axis=0)
        return graph.node("Pow", graph.node("Sub", first, second), graph.constant(self.confidence))

    def _vote_nodes(self, graph: GraphBuilder, flat: str, places: tuple[str, str] | None) -> str:
        """Add the votes ``(classes, cells)`` of cells ``(features, cells)``."""
        count, classes, _ = self.arrays["weights"].shape
        weights = self._folded()[0].astype(np.float32)
        shift = weights @ self.arrays["mean"].astype(np.float32)
        flat = power_nodes(graph, flat, self.power)
        z = graph.node("MatMul", graph.constant(weights[:, : self.features]), flat)
        z = graph.node("Sub", z, graph.constant(shift[:, None]))
        for column, place in enumerate(places or ()):
            column_weights = graph.constant(weights[:, self.features + column][:, None])
            z = graph.node("Add", z, graph.node("Mul", column_weights, place))
        z = graph.node("Reshape", graph.node("Relu", z), graph.ints(count, classes, -1))
        return self._norm_nodes(graph, z)

    def _norm_nodes(self, graph: GraphBuilder, z: str) -> str:
        """Add ``||z||_q`` over the first axis of ``(prototypes, classes, cells)``."""
        if self.q == np.inf:
            parts = graph.node("Transpose", z, perm=[1, 2, 0])
            top = graph.node("MaxPool", parts, kernel_shape=[len(self.arrays["weights"])])
            return graph.node("Squeeze", top, graph.ints(2))
        power = graph.sum(graph.node("Pow", z, graph.constant(self.q)), 0, keep=False)
        return graph.node("Pow", power, graph.constant(1 / self.q))


class SnbnlVotes(PrototypeVotes):
    """Votes of `SNBNL`."""

    kind = "snbnl"
    schema = Schema(
        arrays=_ARRAYS,
        kept=_MEMORY,
        together=(tuple(_MEMORY),),
        settings=checks(
            *_SETTINGS,
            "random_state",
            alpha=either(one_of("auto"), WEIGHT),
            curvature=STRENGTH,
            start=one_of("random", "data", "kmeans"),
        ),
        needed=("q",),
    )


class NbnlVotes(PrototypeVotes):
    """Votes of `NBNL`."""

    kind = "nbnl"
    schema = Schema(
        arrays=_ARRAYS,
        settings=checks(*_SETTINGS, "random_state", alpha=either(one_of(None), STRENGTH)),
        needed=("q",),
    )
