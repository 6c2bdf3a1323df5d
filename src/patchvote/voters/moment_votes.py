"""MomentVotes: a linear score of a bag's moments, which is a vote of every part (`bags.moments`)."""

from __future__ import annotations

import functools
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.moments import (
    PLACES,
    KeptMoments,
    MomentBags,
    lengths,
    moment_count,
    moments,
    parts_of,
    places,
    signed_root,
    symmetric,
    unit,
)
from ..errors import ModelError
from ..networks.bases import Basis
from ..utils.machine import blas_threads_for
from ..utils.onnx_graph import GraphBuilder
from .onnx_nodes import Exported, added, as_map, cells, centres_of, length, mean_cell, power_nodes, size, softmax_of
from .scorer import (
    AUTO_STRENGTH,
    BYTES,
    CLASS_WEIGHT,
    FLOATS,
    SHARE,
    WEIGHT,
    WHOLE,
    Schema,
    Scorer,
    check_training_images,
)
from .votes import ROOT, softmax

_CHUNK = 4096  # descriptors whose votes are computed at once


class MomentVotes(Scorer):
    """Votes of `MomentRidge`."""

    kind = "moment-ridge"
    schema = Schema(
        arrays={
            "linear": ("class moment", FLOATS),
            "bias": ("class", FLOATS),
            "directions": ("feature direction", FLOATS),
            "offset": ("feature", FLOATS),
        },
        kept={
            "moments": ("photo moment", BYTES),
            "scale": ("photo 3", FLOATS),
            "class": ("photo", WHOLE),
            "dual": ("photo class", FLOATS),
            "factor": ("3", FLOATS),
            "mean": ("moment", FLOATS),
            "weight": ("photo", FLOATS),
            "unadapted_linear": ("class moment", FLOATS),
            "unadapted_bias": ("class", FLOATS),
        },
        together=(
            ("moments", "scale", "class"),
            ("dual", "factor", "mean"),
            ("unadapted_linear", "unadapted_bias"),
        ),
        settings={"alpha": AUTO_STRENGTH, "layout": WEIGHT, "class_weight": CLASS_WEIGHT, "rejection": SHARE},
    )

    @property
    def features(self) -> int:
        """Number of features per descriptor."""
        return int(self.arrays["directions"].shape[0])

    @property
    def adapts(self) -> bool:
        """Whether it holds what adapting takes."""
        return "moments" in self.arrays

    @property
    def traces(self) -> bool:
        """Whether it can tell how much each training image counts for a score."""
        return "dual" in self.arrays

    @functools.cached_property
    def basis(self) -> Basis:
        """Basis of the products."""
        return Basis(self.arrays["offset"], self.arrays["directions"])

    @functools.cached_property
    def learned(self) -> MomentBags:
        """Moments of the training images."""
        return MomentBags.of_packed(self.arrays["moments"], self.arrays["scale"], self.basis)

    # --- voting -----------------------------------------------------------------------------------------------------

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the score of each bag, which is the mean of its descriptors' votes."""
        return self._linear(bags, self.arrays["linear"], self.arrays["bias"])

    def unadapted(self, bags: Bags) -> npt.NDArray[np.float64] | None:
        """Return the probabilities before the voter was adapted, which decide on rejection; None if it was not."""
        if "unadapted_linear" not in self.arrays:
            return None
        scores = self._linear(bags, self.arrays["unadapted_linear"], self.arrays["unadapted_bias"])
        return np.asarray(softmax(scores))

    def _linear(self, bags: Bags, linear: npt.NDArray[Any], bias: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        vectors = bags.vectors() if isinstance(bags, MomentBags) else unit(moments(bags, self.basis), self.features)
        return np.asarray(vectors.astype(np.float64) @ linear.T + bias, np.float64)

    def votes(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the vote of every descriptor; it depends on the bag only by the lengths of its moments."""
        votes = np.empty((len(bags.values), self.classes))
        with blas_threads_for(votes.size * (self.features + self.basis.directions.shape[1] ** 2)):
            size = lengths(moments(bags, self.basis), self.features)
            for start in range(0, len(votes), _CHUNK):
                rows = slice(start, min(start + _CHUNK, len(votes)))
                first, second = self._parts(bags, rows)
                own = size[bags.owner[rows]]
                votes[rows] = first / own[:, :1] + second / own[:, 1:]
        return votes + self.arrays["bias"]

    def _parts(self, bags: Bags, rows: slice) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return what some descriptors add to the scores by their features and by the products of these."""
        dim, k = self.basis.directions.shape
        r, linear = signed_root(bags.values[rows]), self.arrays["linear"]
        weights = linear[:, : PLACES * dim].reshape(-1, dim).astype(np.float32)
        by_place = (r @ weights.T).reshape(len(r), self.classes, PLACES)
        first = np.einsum("ncp,np->nc", by_place, places(bags.boxes[rows]))
        second = np.zeros_like(first)
        projected = self.basis.project(r)
        for number, matrix in enumerate(symmetric(linear[:, PLACES * dim :], k)):
            second[:, number] = np.einsum("nk,nk->n", projected @ matrix, projected)
        return first, second

    @classmethod
    def learns_from(cls, basis: Basis) -> KeptMoments:
        """Return what of a bag its voter learns from, given the basis of the network."""
        return KeptMoments(basis)

    def without_memory(self) -> Self:
        """Return the scorer without the moments of its photos."""
        kept = (*self.schema.arrays, "unadapted_linear", "unadapted_bias")
        arrays = {name: array for name, array in self.arrays.items() if name in kept}
        return type(self)(arrays, self.settings, self.classes, self.positions)

    def needs(self) -> KeptMoments:
        """Return what of a bag its scores need."""
        return KeptMoments(self.basis)

    # --- where a score comes from -----------------------------------------------------------------------------------

    def pulls(self, bags: Bags, number: int) -> npt.NDArray[np.float64]:
        """Return what each training image of a class adds to the score of a bag, beside the average photo.

        Image i adds a_i k(x_i - m, x - m), with its coefficient a_i and the mean m: all of them sum to the score.
        """
        own = np.flatnonzero(self.arrays["class"] == number)
        photo = unit(moments(bags, self.basis), self.features)[0]
        mean = self.arrays["mean"]
        photo = photo - mean
        for factor, part in zip(self.arrays["factor"], parts_of(self.features), strict=True):
            photo[part] *= factor**2
        added = np.zeros(len(self.arrays["class"]))
        for rows, block in self.learned.rows(own).blocks_of_vectors():
            added[own[rows]] = self.arrays["dual"][own[rows], number] * ((block - mean) @ photo)
        return added

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self, images: int | None = None) -> None:
        """Refuse arrays that are inconsistent."""
        arrays, count = self.arrays, moment_count(self.basis)
        if self.features < 1 or arrays["linear"].shape[1] != count:
            raise ModelError(f"weights for {count:,} moments are expected.")
        if "class" in arrays:
            if (arrays["scale"] < 0).any():
                raise ModelError("the scales of its photos are negative.")
            check_training_images(arrays, self.classes, images)
        elif {"dual", "weight"} & set(arrays):
            raise ModelError("the moments of its photos are missing.")

    # --- export -----------------------------------------------------------------------------------------------------

    def to_onnx(self, graph: GraphBuilder, maps: list[str], whole: bool, temperature: float) -> Exported:
        """Add the votes of all cells, and their mean."""
        parts = [(power_nodes(graph, cells(graph, one), ROOT), _place_nodes(graph, one)) for one in maps]
        every = list(parts)
        if whole:
            middle = graph.constant(np.array([[1.0], [0.0], [-1.0], [0.0]]))
            every.insert(0, (power_nodes(graph, mean_cell(graph, cells(graph, maps[0])), ROOT), middle))
        vote = _VoteNodes(graph, self.basis, every)
        votes, scores = vote(self.arrays["linear"], self.arrays["bias"])
        by_map = [as_map(graph, votes[r], one) for (r, _), one in zip(parts, maps, strict=True)]
        before = None
        if "unadapted_linear" in self.arrays:
            before = softmax_of(graph, vote(self.arrays["unadapted_linear"], self.arrays["unadapted_bias"])[1], 1.0)
        return Exported(by_map, scores, softmax_of(graph, scores, temperature), before)


class _VoteNodes:
    """Adds the votes of parts of a bag to a graph, for any linear function of the bag's moments.

    A part is the names of its rooted features ``(features, cells)`` and of its places ``(4, cells)``.
    """

    def __init__(self, graph: GraphBuilder, basis: Basis, every: list[tuple[str, str]]) -> None:
        self.graph, self.every = graph, every
        self.dim, self.k = basis.directions.shape
        self.count = added(graph, [size(graph, r) for r, _ in every])
        mean = graph.node("Div", added(graph, [graph.sum(r, 1) for r, _ in every]), self.count)
        self.what = length(graph, mean)
        across = graph.constant(basis.directions.T.astype(np.float32))
        offset = graph.constant(basis.offset[:, None].astype(np.float32))
        self.projected = {r: graph.node("MatMul", across, graph.node("Sub", r, offset)) for r, _ in every}
        products = [
            graph.node("MatMul", one, graph.node("Transpose", one, perm=[1, 0])) for one in self.projected.values()
        ]
        self.together = length(graph, graph.node("Div", added(graph, products), self.count))

    def __call__(self, linear: npt.NDArray[Any], bias: npt.NDArray[Any]) -> tuple[dict[str, str], str]:
        """Return the votes ``(classes, cells)`` of every part, and the mean vote ``(classes,)`` of the bag."""
        graph, places_end = self.graph, PLACES * self.dim
        weights = graph.constant(linear[:, :places_end].reshape(-1, self.dim))
        matrices = graph.constant(symmetric(linear[:, places_end:], self.k).reshape(-1, self.k))
        by_part = {}
        for r, place in self.every:
            by_place = self._split(graph.node("MatMul", weights, r), len(linear), PLACES)
            first = graph.sum(graph.node("Mul", by_place, place), 1, keep=False)
            turned = self._split(graph.node("MatMul", matrices, self.projected[r]), len(linear), self.k)
            second = graph.sum(graph.node("Mul", turned, self.projected[r]), 1, keep=False)
            both = graph.node("Add", graph.node("Div", first, self.what), graph.node("Div", second, self.together))
            by_part[r] = graph.node("Add", both, graph.constant(bias[:, None]))
        total = added(graph, [graph.sum(by_part[r], 1) for r, _ in self.every])
        return by_part, graph.node("Squeeze", graph.node("Div", total, self.count), graph.ints(1))

    def _split(self, rows: str, classes: int, each: int) -> str:
        """Return rows ``(classes * each, cells)`` as ``(classes, each, cells)``."""
        width = self.graph.node("Slice", self.graph.node("Shape", rows), self.graph.ints(1), self.graph.ints(2))
        return self.graph.node(
            "Reshape", rows, self.graph.node("Concat", self.graph.ints(classes, each), width, axis=0)
        )


def _place_nodes(graph: GraphBuilder, one: str) -> str:
    """Return the places ``(4, cells)`` of a map's cells."""
    x, y = centres_of(graph, one)
    unit = graph.constant(1.0)
    down = graph.node("Sub", graph.node("Mul", y, graph.constant(2.0)), unit)
    aside = graph.node("Abs", graph.node("Sub", x, graph.constant(0.5)))
    aside = graph.node("Sub", graph.node("Mul", aside, graph.constant(4.0)), unit)
    ones = graph.node("Add", graph.node("Mul", down, graph.constant(0.0)), unit)
    return graph.node("Concat", ones, down, aside, graph.node("Mul", down, aside), axis=0)
