"""NeighbourVotes and LocalVotes: votes from the distances to the training descriptors of a class.

A bank in memory is normalised and indexed once, when it is first searched. One that is in a file is searched part by
part (`in_parts`), by brute force or with the search "pca", within a budget of memory.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...errors import ModelError, PatchvoteError
from ...utils.arrays import to_float32
from ...utils.onnx_graph import GraphBuilder
from ...utils.row_file import RowFile
from ...utils.schema import either, flag, one_of
from ..onnx_nodes import Exported
from ..power import raise_in_place
from ..scorer import FLOATS, WHOLE, DescriptorScorer, Schema, check_boxes, check_every_class
from ..settings import AT_LEAST_ONE, CONFIDENCE, NONE, PART, POWER, SEED, SHARE, WEIGHT
from ..votes import width_of, with_positions
from .approximate import APPROXIMATE, Rotation, make_bank, recall
from .bounds import EvenRotation, Floats, Indices, squares
from .exact import FEWEST_TO_BOUND, Bank, on_all_cores
from .in_parts import DEFAULT_MEMORY, IN_PARTS, BankInParts, Limits, limits

_PCA_FEATURES = 128  # leading features that the search "pca" uses
_SAMPLE = 20_000  # descriptors from which a rotation is learned
_CANDIDATES = 128  # descriptors per query of `LocalNBNN` whose full distances are computed by the search "pca"
_QUERIES = 1024  # descriptors of a photo whose neighbours are searched at once
_CACHED = 128  # descriptors that are normalised at once: few enough to stay in the processor's cache

_ARRAYS = {
    "values": (2, FLOATS),
    "class": (1, WHOLE),
    "image": (1, WHOLE),
    "boxes": (2, FLOATS),
    "mean": (1, FLOATS),
}
_SETTINGS = {
    "n_neighbors": AT_LEAST_ONE,
    "normalise": flag,
    "position_weight": WEIGHT,
    "confidence": CONFIDENCE,
    "power": POWER,
    "search": one_of("exact", *APPROXIMATE),
    "dtype": one_of("float32", "float16"),
    "calibration": PART,
    "rejection": SHARE,
}
_UNSTORED = ("memory",)


def comparable(
    values: npt.NDArray[Any], mean: npt.NDArray[Any] | None, position_weight: float | None, power: float = 1.0
) -> npt.NDArray[np.float32]:
    """Normalise and weight descriptors for comparison.

    Parameters
    ----------
    values : array of shape (n, features)
        Descriptors, with positions unless `position_weight` is None.
    mean : array of shape (features without positions,) or None
        Mean that is subtracted before descriptors are scaled to length 1; None for no normalisation.
    position_weight : float or None
        Weight of the last two features, the position; None if there are no positions.
    power : float, default 1
        Exponent of the power normalisation of the features, which comes first.
    """
    values = to_float32(values) if values.dtype == np.float16 else values.astype(np.float32)
    make_comparable(values, mean, position_weight, power)
    return values


def make_comparable(values: Floats, mean: npt.NDArray[Any] | None, position_weight: float | None, power: float) -> None:
    """Normalise and weight descriptors in place; see `comparable`."""
    features = values if position_weight is None else values[:, :-2]
    raise_in_place(features, power)
    if mean is not None:
        features -= mean
        features /= np.maximum(np.sqrt(squares(features)), 1e-12)[:, None]
    if position_weight is not None:
        values[:, -2:] *= position_weight


class BankVotes(DescriptorScorer):
    """What the votes of `NBNN` and `LocalNBNN` share: a bank of descriptors, indexed when it is first searched.

    Attributes
    ----------
    memory : float
        Megabytes that the search of a bank in a file may take; whatever they are, the votes are the same.
    """

    remembers = True
    row_by_row = ("values",)
    memory: float = DEFAULT_MEMORY

    @property
    def features(self) -> int:
        """Number of features per descriptor, without positions."""
        return int(self.arrays["values"].shape[-1]) - 2 * self.positions

    @functools.cached_property
    def recall(self) -> float:
        """Share of the neighbours that the search finds: 1 if it is exact."""
        return 1.0 if self.search == "exact" else self._measured_recall()

    @abc.abstractmethod
    def _measured_recall(self) -> float:
        """Measure the share of the neighbours that an approximate search finds."""

    @property
    def power(self) -> float:
        """Exponent of the power normalisation of features."""
        return float(self.settings.get("power", 1.0))

    @property
    def search(self) -> str:
        """Name of the search."""
        return str(self.settings.get("search", "exact"))

    @property
    def condensed(self) -> bool:
        """Whether the bank holds centres of descriptors, which come from no single image."""
        return self.settings.get("condense") is not None

    def __getstate__(self) -> dict[str, Any]:
        made_again = ("_bank", "_banks", "_rotation")  # indexes: some hold what cannot be pickled
        return {name: value for name, value in vars(self).items() if name not in made_again}

    @property
    def in_file(self) -> bool:
        """Whether the bank is searched part by part, in its file."""
        return isinstance(self.arrays.get("values"), RowFile) and self.search in IN_PARTS

    @property
    def limits(self) -> Limits:
        """How many descriptors of a bank in a file may be in memory."""
        rows, width = self.arrays["values"].shape
        return limits(
            self.memory,
            rows=rows,
            width=width,
            classes=self.classes,
            n_neighbors=self._neighbours(),
            search=self.search,
        )

    @property
    def width(self) -> int:
        """Numbers held in memory per descriptor while votes are computed."""
        return max(self.classes, width_of(self.limits.queries)) if self.in_file else self.classes

    def _neighbours(self) -> int:
        return int(self.settings.get("n_neighbors", 1))

    def _normalisation(self) -> tuple[npt.NDArray[Any] | None, float | None, float]:
        """Return mean, weight of positions and power, as `comparable` takes them."""
        weight = float(self.settings.get("position_weight", 0.0)) if self.positions else None
        return self.arrays["mean"] if self.settings.get("normalise", True) else None, weight, self.power

    def _comparable(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        return comparable(values, *self._normalisation())

    def _normalised(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return descriptors of the bank normalised and weighted for comparison, as centres are already."""
        return np.asarray(values, np.float32) if self.condensed else self._comparable(values)

    def _rows(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return rows of the bank, normalised and weighted for comparison."""
        return self._normalised(self.arrays["values"][rows])

    def _bank_of(self, rows: npt.NDArray[Any], rotation: EvenRotation | Rotation | None, candidates: int = 16) -> Any:
        """Return the bank of some rows, a mask or numbers: in memory, or read part by part."""
        if not self.in_file:
            return make_bank(self._rows(rows).astype(self._dtype), rotation, self.search, candidates)
        numbers = np.flatnonzero(rows) if rows.dtype == bool else rows

        def searched(part: npt.NDArray[Any]) -> Any:
            return make_bank(part, rotation, self.search, candidates)

        return BankInParts(len(numbers), lambda: self._parts(numbers), searched, Bank)

    def _parts(self, numbers: Indices) -> Iterator[npt.NDArray[Any]]:
        """Read rows of the bank part by part, normalised and weighted for comparison."""
        size = self.limits.rows
        for start in range(0, len(numbers), size):
            yield self._part(numbers[start : start + size])

    def _part(self, numbers: Indices) -> npt.NDArray[Any]:
        """Read and normalise rows of the bank, on all cores; the values are those of `_rows`."""
        values = self.arrays["values"][numbers]
        part: npt.NDArray[Any] = np.empty(values.shape, self._dtype)

        in_place, normalisation = self._dtype == "float32" and not self.condensed, self._normalisation()

        def normalise(start: int) -> None:
            rows = slice(start, start + _CACHED)
            if in_place:  # saves a copy; what is stored in a bank is known to be finite
                make_comparable(to_float32(values[rows], part[rows]), *normalisation)
            else:
                part[rows] = self._normalised(values[rows])

        on_all_cores(normalise, range(0, len(values), _CACHED))
        return part

    def _learned_rotation(self) -> EvenRotation | Rotation | None:
        """Learn the rotation that the search needs; None if it needs none."""
        bank, exact = self.arrays["values"], self.search == "exact"
        small = bank.shape[1] <= _PCA_FEATURES
        brute_force = exact and (self._dtype != "float32" or self.in_file)  # bounds take more memory than the bank
        if small or self.search not in IN_PARTS or brute_force:
            return None
        rng = np.random.default_rng(0)
        most = min(_SAMPLE, self.limits.rows) if self.in_file else _SAMPLE
        chosen = rng.choice(len(bank), size=min(most, len(bank)), replace=False)
        sample = self._rows(np.sort(chosen))
        return EvenRotation(sample) if exact else Rotation(sample, _PCA_FEATURES)

    @property
    def _dtype(self) -> str:
        return str(self.settings.get("dtype", "float32"))

    def check(self, images: int | None = None) -> None:
        """Refuse arrays that are inconsistent, and numbers of images that are not there."""
        arrays, rows = self.arrays, len(self.arrays["values"])
        if any(len(arrays[name]) != rows for name in ("class", "image", "boxes")):
            raise ModelError("its bank has arrays of different lengths.")
        if self.features < 1:
            raise ModelError("its descriptors have no features.")
        if arrays["mean"].shape != (self.features,):
            raise ModelError("mean and bank have different numbers of features.")
        check_boxes(arrays["boxes"])
        self._check_fewest(check_every_class(arrays["class"], self.classes))
        image = arrays["image"]
        if (image != -1).any() if self.condensed else image.min() < 0:  # centres come from no image
            raise ModelError("its bank names images that are not there.")
        if images is not None and image.max() >= images:
            raise ModelError("its bank has descriptors of more images than it names.")

    def _check_fewest(self, fewest: int) -> None:
        """Refuse a bank whose rarest class has too few descriptors."""

    def to_onnx(
        self, graph: GraphBuilder, maps: list[str], whole: bool, temperature: float, threshold: float
    ) -> Exported:
        """Refuse: a search cannot be written as a graph."""
        raise PatchvoteError(
            f"a model of {self.kind} searches among remembered descriptors, which cannot be written as a graph. Fit it "
            "with another voter, such as the default."
        )


class NeighbourVotes(BankVotes):
    """Votes of `NBNN`: minus the squared distance to the nearest descriptor of each class."""

    kind = "nbnn"
    schema = Schema(
        arrays=_ARRAYS,
        settings={**_SETTINGS, "condense": either(NONE, AT_LEAST_ONE), "random_state": SEED},
        unstored=_UNSTORED,
    )

    @functools.cached_property
    def _rotation(self) -> EvenRotation | Rotation | None:
        large = self.search == "pca" or np.bincount(self.arrays["class"]).max() >= FEWEST_TO_BOUND
        return self._learned_rotation() if large else None

    @functools.cached_property
    def _banks(self) -> list[Any]:
        owners = (self.arrays["class"] == number for number in range(self.classes))
        return [self._bank_of(own, self._rotation) for own in owners]

    def vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return minus the mean squared distance to the nearest descriptors of each class."""
        return -np.stack([distances.mean(axis=1) for distances, _ in self.nearest(values, self._neighbours())], axis=1)

    def nearest(self, values: npt.NDArray[Any], k: int) -> list[tuple[Floats, Indices]]:
        """Find the `k` nearest descriptors of each class for descriptors, or all of a class that has fewer.

        Returns
        -------
        list of pairs of arrays of shape (descriptors, k)
            For each class, squared distances in ascending order, and places among the descriptors of the class.
        """
        queries: Any = self._comparable(values)
        if self._rotation is not None:
            queries = self._rotation(queries)  # once for the banks of all classes
        return [bank.nearest(queries, min(k, len(bank))) for bank in self._banks]

    def matches(self, bags: Bags, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Return the nearest training descriptor of a class for each descriptor; None for a condensed bank."""
        if self.condensed:
            return None
        values = self._comparable(with_positions(bags, slice(0, len(bags.values)), self.positions))
        distances, nearest = self._banks[number].nearest(values)
        rows = np.flatnonzero(self.arrays["class"] == number)[nearest[:, 0]]
        return self.arrays["image"][rows], self.arrays["boxes"][rows], distances[:, 0]

    def _check_fewest(self, fewest: int) -> None:
        if fewest < self._neighbours():
            raise ModelError(f"a class has {fewest} descriptors, fewer than {self._neighbours()} neighbours.")

    def _measured_recall(self) -> float:
        rng, numbers = np.random.default_rng(0), self.arrays["class"]
        shares = []
        for number in rng.permutation(self.classes)[:5]:
            others = np.flatnonzero(numbers != number)
            chosen = rng.choice(others, size=min(100, len(others)), replace=False)
            shares.append(recall(self._banks[number], self._rows(chosen)))
        return float(np.mean(shares))


class LocalVotes(BankVotes):
    """Votes of `LocalNBNN`: how much nearer the nearest descriptor of a class is than the background."""

    kind = "local-nbnn"
    schema = Schema(
        arrays=_ARRAYS,
        settings={**_SETTINGS, "random_state": SEED},
        unstored=_UNSTORED,
    )
    remembers = False
    traces = True

    @functools.cached_property
    def _rotation(self) -> EvenRotation | Rotation | None:
        return self._learned_rotation()

    @functools.cached_property
    def _bank(self) -> Any:
        return self._bank_of(np.arange(len(self.arrays["values"])), self._rotation, _CANDIDATES)

    def _nearest(self, values: npt.NDArray[Any]) -> tuple[int, Floats, Indices]:
        """Return the number of neighbours that vote, and distances and rows of one more, the background."""
        count = min(self._neighbours(), len(self._bank) - 1)
        queries: Any = self._comparable(values)
        if self.in_file and self._rotation is not None:
            queries = self._rotation(queries)  # once for all parts
        return count, *self._bank.nearest(queries, count + 1)

    def pulls(self, bags: Bags, number: int) -> npt.NDArray[np.float64]:
        """Return the sum of the votes that each training image has given for a class."""
        added = np.zeros(int(self.arrays["image"].max()) + 1)
        for start in range(0, len(bags.values), _QUERIES):
            rows = slice(start, min(start + _QUERIES, len(bags.values)))
            count, distances, indices = self._nearest(with_positions(bags, rows, self.positions))
            of_class = self.arrays["class"][indices[:, :count]] == number
            voting = np.flatnonzero(of_class.any(axis=1))
            first = of_class[voting].argmax(axis=1)  # the nearest of the class, which has given the vote
            images = self.arrays["image"][indices[voting, first]]
            np.add.at(added, images, distances[voting, -1] - distances[voting, first])
        return added

    def vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return votes for the classes among the nearest descriptors; others get 0."""
        count, distances, indices = self._nearest(values)
        votes = np.zeros((len(values), self.classes), np.float32)
        background, rows = distances[:, -1], np.arange(len(values))
        for place in range(count - 1, -1, -1):  # the nearest of a class is written last
            votes[rows, self.arrays["class"][indices[:, place]]] = background - distances[:, place]
        return votes

    def _neighbours(self) -> int:
        return int(self.settings.get("n_neighbors", 10))

    def _measured_recall(self) -> float:
        rng, bank = np.random.default_rng(0), self.arrays["values"]
        chosen = rng.choice(len(bank), size=min(500, len(bank)), replace=False)
        return recall(self._bank, self._rows(chosen), min(self._neighbours() + 1, len(bank)))
