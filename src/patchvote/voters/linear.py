"""LinearVotes: a linear score of a bag's vector, distributed over its descriptors (`pooling`)."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.keep import Keep, Mean
from ..errors import ModelError
from ..utils.onnx_graph import GraphBuilder
from . import veto
from .onnx_nodes import Exported, as_map, cells, mean_of_bag, softmax_of, vector_of
from .pooling import bag_vectors, shared_votes
from .scorer import FLOATS, WHOLE, Schema, Scorer, check_training_images
from .settings import CLASS_WEIGHT, PART, POWER, SEED, SHARE, STRENGTH
from .support import added_by
from .veto_nodes import limited_nodes
from .votes import softmax


class LinearVotes(Scorer):
    """Votes of `BagSVM`; in an adapted model, limited by the veto of the unadapted one."""

    kind = "bag-svm"
    adapts = True
    traces = True
    schema = Schema(
        arrays={"linear": (2, FLOATS), "bias": (1, FLOATS), "vectors": (2, FLOATS), "class": (1, WHOLE)},
        kept={**veto.ARRAYS, "weight": (1, FLOATS)},
        settings={
            "C": STRENGTH,
            "power": POWER,
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
        return int(self.arrays["linear"].shape[1])

    @property
    def power(self) -> float:
        """Exponent of the power normalisation of a bag's mean."""
        return float(self.settings["power"])

    def needs(self) -> Keep:
        """Return what of a bag its scores need: the mean."""
        return Mean()

    def votes(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the vote of every descriptor; it depends on the bag that the descriptor is in."""
        return shared_votes(bags, self.arrays["linear"], self.arrays["bias"], self.power)

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the score of each bag, which is the mean of its descriptors' votes."""
        return np.asarray(bag_vectors(bags.means(), self.power) @ self.arrays["linear"].T + self.arrays["bias"])

    def probability(
        self, scores: npt.NDArray[np.float64], bags: Bags, temperature: float, threshold: float
    ) -> npt.NDArray[np.float64]:
        """Return the probabilities; those of bags that the unadapted model rejects stay below the threshold."""
        probability = softmax(scores / temperature)
        if not self.has_veto:
            return probability
        return veto.with_veto(probability, bags.means(), self.arrays, self.power, threshold)

    def with_veto(
        self, before: Scorer, temperature: float, threshold: float, columns: npt.NDArray[np.int64]
    ) -> LinearVotes:
        """Return the scorer with the veto of the unadapted one."""
        kept = veto.veto_of(before.arrays["linear"], before.arrays["bias"], temperature, threshold, columns)
        return LinearVotes({**self.arrays, **kept}, self.settings, self.classes)

    @property
    def has_veto(self) -> bool:
        """Whether it belongs to an adapted model."""
        return veto.is_there(self.arrays)

    def pulls(self, bags: Bags, number: int) -> npt.NDArray[np.float64]:
        """Return what each training image adds to the score of a bag for a class (see `support`)."""
        arrays = self.arrays
        own = np.flatnonzero(arrays["class"] == number)
        centre, size = self._scaling
        vectors = bag_vectors(arrays["vectors"][own].astype(np.float32), self.power)
        photo = bag_vectors(bags.means(), self.power)[0]
        scores = vectors @ arrays["linear"][number] + arrays["bias"][number]
        weight = arrays["weight"][own] if "weight" in arrays else np.ones(len(own))
        added = np.zeros(len(arrays["class"]))
        scaled = (vectors - centre) / size, (photo - centre) / size
        added[own] = added_by(scaled[0], scores, weight, scaled[1], two=self.classes == 2)
        return added

    @functools.cached_property
    def _scaling(self) -> tuple[npt.NDArray[np.float64], float]:
        """Centre and size of the training vectors, by which `BagSVM` scales them."""
        vectors = bag_vectors(self.arrays["vectors"].astype(np.float32), self.power)
        weight = self.arrays.get("weight")
        centre = np.average(vectors, axis=0, weights=weight)
        squares = np.square(vectors - centre).sum(axis=1)
        return np.asarray(centre), float(np.sqrt(np.average(squares, weights=weight))) or 1.0

    def check(self, images: int | None = None) -> None:
        """Refuse arrays that are inconsistent."""
        arrays, classes = self.arrays, self.classes
        if not isinstance(self.settings["power"], (int, float)):
            raise ModelError("settings.power must be a number.")
        if len(arrays["linear"]) != classes or arrays["bias"].shape != (classes,):
            raise ModelError(f"weights of the shape {arrays['linear'].shape} do not fit {classes} classes.")
        if self.features < 1:
            raise ModelError("its descriptors have no features.")
        if self.positions:
            raise ModelError("linear votes do not use positions.")
        if arrays["vectors"].shape != (len(arrays["class"]), self.features):
            raise ModelError("the vectors of its photos do not fit its weights.")
        check_training_images(arrays, classes, images)
        if (wrong := veto.fault(arrays, classes, self.features)) is not None:
            raise ModelError(wrong)

    def to_onnx(
        self, graph: GraphBuilder, maps: list[str], whole: bool, temperature: float, threshold: float
    ) -> Exported:
        """Add the vector of the bag, its score, and the share of the score of each cell."""
        flat = [cells(graph, one) for one in maps]
        mean = mean_of_bag(graph, flat, whole)
        vector = vector_of(graph, mean, self.power)
        weights, bias = graph.constant(self.arrays["linear"]), graph.constant(self.arrays["bias"][:, None])
        scores = graph.node("Add", graph.node("MatMul", weights, vector), bias)
        empty = graph.node("Equal", mean, graph.constant(0.0))
        share = graph.node("Div", vector, graph.node("Where", empty, graph.constant(1.0), mean))
        shared = graph.node("Mul", weights, graph.node("Transpose", share, perm=[1, 0]))
        votes = [graph.node("Add", graph.node("MatMul", shared, one), bias) for one in flat]
        scores = graph.node("Squeeze", scores, graph.ints(1))
        probability = softmax_of(graph, scores, temperature)
        if self.has_veto:
            probability = limited_nodes(graph, probability, vector, self.arrays, self.classes, threshold)
        return Exported([as_map(graph, vote, one) for vote, one in zip(votes, maps, strict=True)], scores, probability)
