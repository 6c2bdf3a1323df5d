"""MomentVotes: a linear score of a bag's moments, which is a vote of every part (`moment_features`)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.keep import Keep
from ..errors import ModelError
from ..utils.onnx_graph import GraphBuilder
from ..utils.threads import blas_threads_for
from .moment_features import (
    PLACES,
    MomentBags,
    lengths,
    moment_vectors,
    moments,
    pair_count,
    parts_of,
    places,
    rooted,
    scales,
    symmetric,
)
from .onnx_nodes import Exported, added, as_map, cells, centres_of, length, mean_cell, size, softmax_of
from .power import power_nodes
from .scorer import FLOATS, WHOLE, Schema, Scorer, check_training_images
from .settings import CLASS_WEIGHT, COUNT, PART, POWER, SEED, SHARE, STRENGTH, WEIGHT
from .support import added_by

_CHUNK = 4096  # descriptors whose votes are computed at once
_AT_ONCE = 512  # training images whose vectors are in memory at once, 100 kB each
_LAYOUT = 0.36  # weight of the places in models that do not say it; the default of `MomentSVM`


class MomentVotes(Scorer):
    """Votes of `MomentSVM`."""

    kind = "moment-svm"
    adapts = True
    traces = True
    schema = Schema(
        arrays={
            "linear": (2, FLOATS),
            "bias": (1, FLOATS),
            "directions": (2, FLOATS),
            "offset": (1, FLOATS),
            "vectors": (2, FLOATS),
            "class": (1, WHOLE),
        },
        kept={"means": (2, FLOATS), "weight": (1, FLOATS)},
        settings={
            "C": STRENGTH,
            "power": POWER,
            "layout": WEIGHT,
            "pairs": COUNT,
            "class_weight": CLASS_WEIGHT,
            "calibration": PART,
            "rejection": SHARE,
            "random_state": SEED,
        },
        needed=("power",),
    )

    @property
    def features(self) -> int:
        """Number of features per descriptor."""
        return int(self.arrays["directions"].shape[0])

    @property
    def power(self) -> float:
        """Exponent of the power normalisation of features."""
        return float(self.settings["power"])

    @property
    def _moments(self) -> int:
        """Number of moments of a bag."""
        return PLACES * self.features + pair_count(self.arrays["directions"].shape[1])

    # --- voting -----------------------------------------------------------------------------------------------------

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the score of each bag, which is the mean of its descriptors' votes."""
        return np.asarray(moment_vectors(self._stats(bags), self.features) @ self._linear.T + self.arrays["bias"])

    def votes(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the vote of every descriptor; it depends on the bag only by the lengths of its moments."""
        votes = np.empty((len(bags.values), self.classes))
        with blas_threads_for(votes.size * (self.features + self.arrays["directions"].shape[1] ** 2)):
            size = lengths(self._stats(bags), self.features)
            for start in range(0, len(votes), _CHUNK):
                rows = slice(start, min(start + _CHUNK, len(votes)))
                first, second = self._parts(bags, rows)
                own = size[bags.owner[rows]]
                votes[rows] = first / own[:, :1] + second / own[:, 1:]
        return votes + self.arrays["bias"]

    def _parts(self, bags: Bags, rows: slice) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return what some descriptors add to the scores by their features and by the products of these."""
        dim, k = self.features, self.arrays["directions"].shape[1]
        r = rooted(bags, rows, self.power)
        weights = self._linear[:, : PLACES * dim].reshape(-1, dim).astype(np.float32)
        by_place = (r @ weights.T).reshape(len(r), self.classes, PLACES)
        first = np.einsum("ncp,np->nc", by_place, places(bags, rows))
        second = np.zeros_like(first)
        if k:
            directions = self.arrays["directions"].astype(np.float32)
            projected = (r - self.arrays["offset"].astype(np.float32)) @ directions
            for number, matrix in enumerate(symmetric(self._linear[:, PLACES * dim :], k)):
                second[:, number] = np.einsum("nk,nk->n", projected @ matrix, projected)
        return first, second

    def needs(self) -> Keep:
        """Return what of a bag its scores need: the moments along its directions."""
        from .moment_keep import KeptMoments

        directions, offset = self.arrays["directions"], self.arrays["offset"]
        pairs = self.settings["pairs"] if "pairs" in self.settings else directions.shape[1]
        return KeptMoments(self.power, directions, offset, int(pairs), self.arrays["vectors"].dtype.name)

    def _stats(self, bags: Bags) -> npt.NDArray[np.float32]:
        if isinstance(bags, MomentBags):
            return bags.stats
        return moments(bags, self.power, self.arrays["directions"], self.arrays["offset"])

    @functools.cached_property
    def _linear(self) -> npt.NDArray[np.float64]:
        return self.arrays["linear"].astype(np.float64)

    # --- where a score comes from -----------------------------------------------------------------------------------

    def pulls(self, bags: Bags, number: int) -> npt.NDArray[np.float64]:
        """Return what each training image adds to the score of a bag for a class (see `support`)."""
        arrays = self.arrays
        own = np.flatnonzero(arrays["class"] == number)
        centre, scale = self._scaling
        vectors = moment_vectors(arrays["vectors"][own], self.features)
        photo = (moment_vectors(self._stats(bags), self.features)[0] - centre) * scale
        scores = vectors @ self._linear[number] + arrays["bias"][number]
        weight = arrays["weight"][own] if "weight" in arrays else np.ones(len(own))
        vectors -= centre
        vectors *= scale
        added = np.zeros(len(arrays["class"]))
        added[own] = added_by(vectors, scores, weight, photo, two=self.classes == 2)
        return added

    @functools.cached_property
    def _scaling(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Centre of the training vectors, and the factors by which `MomentSVM` scales them."""
        stored = self.arrays["vectors"]
        weight = self.arrays.get("weight", np.ones(len(stored)))
        mean, squares = np.zeros(self._moments), np.zeros(self._moments)
        for start in range(0, len(stored), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            mean += weight[rows] @ moment_vectors(stored[rows], self.features)
        mean /= weight.sum()
        for start in range(0, len(stored), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            squares += weight[rows] @ np.square(moment_vectors(stored[rows], self.features) - mean)
        sizes = [float(np.sqrt(squares[part].sum() / weight.sum())) for part in parts_of(self.features)]
        return mean, scales(sizes, self._moments, self.features, float(self.settings.get("layout", _LAYOUT)))

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self, images: int | None = None) -> None:
        """Refuse arrays that are inconsistent."""
        arrays, classes = self.arrays, self.classes
        if not isinstance(self.settings["power"], (int, float)):
            raise ModelError("settings.power must be a number.")
        if self.features < 1:
            raise ModelError("its descriptors have no features.")
        if arrays["offset"].shape != (self.features,):
            raise ModelError("the array 'offset' does not fit its features.")
        if arrays["linear"].shape != (classes, self._moments) or arrays["bias"].shape != (classes,):
            raise ModelError(
                f"weights of the shape {arrays['linear'].shape} do not fit {classes} classes and its moments."
            )
        if arrays["vectors"].shape != (len(arrays["class"]), self._moments):
            raise ModelError("the moments of its photos do not fit its weights.")
        if "means" in arrays and arrays["means"].shape != (len(arrays["class"]), self.features):
            raise ModelError("the means of its photos do not fit its features.")
        check_training_images(arrays, classes, images)

    # --- export -----------------------------------------------------------------------------------------------------

    def to_onnx(
        self, graph: GraphBuilder, maps: list[str], whole: bool, temperature: float, threshold: float
    ) -> Exported:
        """Add the votes of all cells, and their mean."""
        parts = [(power_nodes(graph, cells(graph, one), self.power), _place_nodes(graph, one)) for one in maps]
        every = list(parts)
        if whole:
            middle = graph.constant(np.array([[1.0], [0.0], [-1.0], [0.0]]))
            every.insert(0, (power_nodes(graph, mean_cell(graph, cells(graph, maps[0])), self.power), middle))
        votes, scores = self._vote_nodes(graph, parts, every)
        probability = softmax_of(graph, scores, temperature)
        return Exported([as_map(graph, vote, one) for vote, one in zip(votes, maps, strict=True)], scores, probability)

    def _vote_nodes(
        self, graph: GraphBuilder, parts: list[tuple[str, str]], every: list[tuple[str, str]]
    ) -> tuple[list[str], str]:
        """Add the votes ``(classes, cells)`` of `parts`, and the mean vote ``(classes,)`` of `every` part of the bag.

        A part is the names of its rooted features ``(features, cells)`` and of its places ``(4, cells)``.
        """
        dim, k = self.features, self.arrays["directions"].shape[1]
        count = added(graph, [size(graph, r) for r, _ in every])
        mean = graph.node("Div", added(graph, [graph.sum(r, 1) for r, _ in every]), count)
        what = length(graph, mean)
        projected, together = {}, ""
        if k:
            across = graph.constant(self.arrays["directions"].T)
            offset = graph.constant(self.arrays["offset"][:, None])
            for r, _ in every:
                projected[r] = graph.node("MatMul", across, graph.node("Sub", r, offset))
            products = [
                graph.node("MatMul", one, graph.node("Transpose", one, perm=[1, 0])) for one in projected.values()
            ]
            together = length(graph, graph.node("Div", added(graph, products), count))
        weights = graph.constant(self.arrays["linear"][:, : PLACES * dim].reshape(-1, dim))
        matrices = graph.constant(symmetric(self._linear[:, PLACES * dim :], k).reshape(-1, k)) if k else ""
        bias = graph.constant(self.arrays["bias"][:, None])
        by_part = {}
        for r, place in every:
            by_place = self._split(graph, graph.node("MatMul", weights, r), PLACES)
            vote = graph.sum(graph.node("Mul", by_place, place), 1, keep=False)
            vote = graph.node("Div", vote, what)
            if k:
                turned = self._split(graph, graph.node("MatMul", matrices, projected[r]), k)
                quadratic = graph.sum(graph.node("Mul", turned, projected[r]), 1, keep=False)
                vote = graph.node("Add", vote, graph.node("Div", quadratic, together))
            by_part[r] = graph.node("Add", vote, bias)
        total = added(graph, [graph.sum(by_part[r], 1) for r, _ in every])
        scores = graph.node("Squeeze", graph.node("Div", total, count), graph.ints(1))
        return [by_part[r] for r, _ in parts], scores

    def _split(self, graph: GraphBuilder, rows: str, each: int) -> str:
        """Return rows ``(classes * each, cells)`` as ``(classes, each, cells)``."""
        width = graph.node("Slice", graph.node("Shape", rows), graph.ints(1), graph.ints(2))
        shape = graph.node("Concat", graph.ints(self.classes, each), width, axis=0)
        return graph.node("Reshape", rows, shape)


def _place_nodes(graph: GraphBuilder, one: str) -> str:
    """Return the places ``(4, cells)`` of a map's cells."""
    x, y = centres_of(graph, one)
    unit = graph.constant(1.0)
    down = graph.node("Sub", graph.node("Mul", y, graph.constant(2.0)), unit)
    aside = graph.node("Abs", graph.node("Sub", x, graph.constant(0.5)))
    aside = graph.node("Sub", graph.node("Mul", aside, graph.constant(4.0)), unit)
    ones = graph.node("Add", graph.node("Mul", down, graph.constant(0.0)), unit)
    return graph.node("Concat", ones, down, aside, graph.node("Mul", down, aside), axis=0)
