"""NeighbourVotes and LocalVotes: votes from the distances to the training descriptors of a class.

A bank in memory is normalised and indexed once, when it is first searched. One in a file stays there as it came: every
search reads, normalises and compares it part by part, within a budget of memory.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import ModelError, PatchvoteError
from ..utils.arrays import to_float32
from ..utils.onnx_graph import GraphBuilder
from ..utils.row_file import RowFile
from ..utils.schema import flag, one_of
from .export import Exported
from .scorer import FLOATS, WHOLE, DescriptorScorer, Schema, check_boxes, check_every_class
from .search import (
    FEWEST_TO_BOUND,
    Bank,
    BankInParts,
    EvenRotation,
    Floats,
    Indices,
    PcaBank,
    Rotation,
    on_all_cores,
    recall,
    squares,
)
from .settings import AT_LEAST_ONE, CONFIDENCE, POWER, SEED, WEIGHT
from .votes import raise_in_place, width_of, with_positions

DEFAULT_MEMORY = 1500.0  # megabytes
_PCA_FEATURES = 128  # leading features that the search "pca" uses
_SAMPLE = 20_000  # descriptors from which a rotation is learned
_CANDIDATES = 128  # descriptors per query of `LocalNBNN` whose full distances are computed by the search "pca"
_QUERIES = 1024  # descriptors of a photo whose neighbours are searched at once
_CACHED = 128  # descriptors that are normalised at once: few enough to stay in the processor's cache

# Copies of all descriptors in float32 that a bank in memory takes: the bags, the bank as it came and normalised, the
# rotated one of the exact search, and temporary ones.
_COPIES = 5
_BESIDE = 16 + 3 * 8  # bytes per descriptor beside its values: box, class, image, row
_PER_PAIR = 48  # bytes per pair of features that learning the rotation of the search "pca" takes
_RESERVE = 64 << 20  # bytes for buffers of libraries and threads, and what freeing leaves behind
_MOST_QUERIES, _MOST_ROWS = 16_384, 65_536  # more at once would not be faster
_FEWEST_QUERIES, _FEWEST_ROWS = 256, 1024  # fewer would read the file too often, or in parts that are too small

_SCHEMA = Schema(
    arrays={"values": (2, FLOATS), "class": (1, WHOLE), "image": (1, WHOLE), "boxes": (2, FLOATS), "mean": (1, FLOATS)},
    settings={
        "n_neighbors": AT_LEAST_ONE,
        "normalise": flag,
        "position_weight": WEIGHT,
        "confidence": CONFIDENCE,
        "power": POWER,
        "search": one_of("exact", "pca"),
        "dtype": one_of("float32", "float16"),
        "random_state": SEED,
    },
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Most descriptors of a part of a bank in a file, and of queries at once; most features of all mean descriptors."""

    rows: int
    queries: int
    features: int


def needed(rows: int, width: int) -> float:
    """Return the megabytes that a bank of `rows` descriptors of `width` features takes in memory."""
    return (_RESERVE + rows * (4 * _COPIES * width + _BESIDE)) / 1e6


def limits(memory: float, *, rows: int, width: int, classes: int, n_neighbors: int, search: str) -> Limits:
    """Return the limits that keep a search within `memory` megabytes: half is for the bank, half for the queries."""
    fixed = _RESERVE + rows * _BESIDE + (_PER_PAIR * width * width if search == "pca" else 0)
    per_row = 4 * 3 * width  # as it came, normalised, and rounded to float16 and back
    per_query = 4 * 4 * width + 24 * classes + 48 * n_neighbors  # as it came, normalised, compared again; votes
    least = fixed + 2 * max(_FEWEST_ROWS * per_row, _FEWEST_QUERIES * per_query)
    if memory * 1e6 < least:
        raise ValueError(
            f"memory must be at least {math.ceil(least / 1e6):,} megabytes for a bank of {rows:,} descriptors of "
            f"{width:,} features, got {memory:g}."
        )
    half = (memory * 1e6 - fixed) / 2
    features = int(half / 8)  # copies of means are searched in four arrays of float32
    return Limits(min(_MOST_ROWS, int(half / per_row)), min(_MOST_QUERIES, int(half / per_query)), features)


def comparable(
    values: npt.NDArray[Any], mean: npt.NDArray[Any] | None, position_weight: float | None, power: float = 1.0
) -> npt.NDArray[np.float32]:
    """Return descriptors normalised and weighted for comparison; see `make_comparable`."""
    values = to_float32(values) if values.dtype == np.float16 else values.astype(np.float32)
    make_comparable(values, mean, position_weight, power)
    return values


def make_comparable(values: Floats, mean: npt.NDArray[Any] | None, position_weight: float | None, power: float) -> None:
    """Raise features to a power, subtract `mean` and scale to length 1, and weight positions, in place.

    Without `mean` nothing is subtracted or scaled; without `position_weight` there are no positions.
    """
    features = values if position_weight is None else values[:, :-2]
    raise_in_place(features, power)
    if mean is not None:
        features -= mean
        features /= np.maximum(np.sqrt(squares(features)), 1e-12)[:, None]
    if position_weight is not None:
        values[:, -2:] *= position_weight


class BankVotes(DescriptorScorer):
    """What the votes of `NBNN` and `LocalNBNN` share: a bank of descriptors, indexed when it is first searched."""

    schema = _SCHEMA
    row_by_row = ("values",)
    memory: float = DEFAULT_MEMORY  # megabytes that the search of a bank in a file may take

    @property
    def features(self) -> int:
        """Number of features per descriptor, without positions."""
        return int(self.arrays["values"].shape[-1]) - 2 * self.positions

    @functools.cached_property
    def recall(self) -> float:
        """Share of the neighbours that the search finds: 1 if it is exact, otherwise measured."""
        return 1.0 if self.search == "exact" else self._measured_recall()

    @abc.abstractmethod
    def _measured_recall(self) -> float: ...

    @property
    def power(self) -> float:
        """Exponent of the power normalisation of features."""
        return float(self.settings.get("power", 1.0))

    @property
    def search(self) -> str:
        """Name of the search."""
        return str(self.settings.get("search", "exact"))

    def __getstate__(self) -> dict[str, Any]:
        indexes = ("_bank", "_banks", "_rotation")  # made again: some hold what cannot be pickled
        return {name: value for name, value in vars(self).items() if name not in indexes}

    @property
    def in_file(self) -> bool:
        """Whether the bank is searched part by part, in its file."""
        return isinstance(self.arrays.get("values"), RowFile)

    @property
    def limits(self) -> Limits:
        """How many descriptors of a bank in a file may be in memory."""
        (rows, width), k = self.arrays["values"].shape, self._neighbours()
        return limits(self.memory, rows=rows, width=width, classes=self.classes, n_neighbors=k, search=self.search)

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

    def _rows(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return rows of the bank, normalised and weighted for comparison."""
        return self._comparable(self.arrays["values"][rows])

    def _bank_of(self, rows: Indices, candidates: int = 16, *, search: str | None = None) -> Any:
        """Return the bank of some rows, in memory or read part by part; the search is that of the settings."""
        search = self.search if search is None else search

        def searched(values: npt.NDArray[Any]) -> Bank | PcaBank:
            if search == "pca" and isinstance(self._rotation, Rotation):
                return PcaBank(values.astype(np.float32, copy=False), self._rotation, candidates)
            return Bank(values, self._rotation if isinstance(self._rotation, EvenRotation) else None)

        if self.in_file:
            return BankInParts(len(rows), lambda: self._parts(rows), searched)
        return searched(self._rows(rows).astype(self._dtype))

    def _parts(self, numbers: Indices) -> Iterator[npt.NDArray[Any]]:
        """Read rows of the bank part by part, normalised and weighted for comparison, on all cores."""
        size = self.limits.rows
        for start in range(0, len(numbers), size):
            yield self._part(numbers[start : start + size])

    def _part(self, numbers: Indices) -> npt.NDArray[Any]:
        values = self.arrays["values"][numbers]
        part: npt.NDArray[Any] = np.empty(values.shape, self._dtype)
        in_place, normalisation = self._dtype == "float32", self._normalisation()

        def normalise(start: int) -> None:
            rows = slice(start, start + _CACHED)
            if in_place:  # saves a copy; what is stored in a bank is known to be finite
                make_comparable(to_float32(values[rows], part[rows]), *normalisation)
            else:
                part[rows] = self._comparable(values[rows])

        on_all_cores(normalise, range(0, len(values), _CACHED))
        return part

    @functools.cached_property
    def _rotation(self) -> EvenRotation | Rotation | None:
        """The rotation that the search needs; None if it needs none."""
        bank, exact = self.arrays["values"], self.search == "exact"
        # Bounds take more memory than the bank.
        if bank.shape[1] <= _PCA_FEATURES or (exact and (self._dtype != "float32" or self.in_file)):
            return None
        most = min(_SAMPLE, self.limits.rows) if self.in_file else _SAMPLE
        chosen = np.random.default_rng(0).choice(len(bank), size=min(most, len(bank)), replace=False)
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
        if arrays["image"].min() < 0 or (images is not None and arrays["image"].max() >= images):
            raise ModelError("its bank names images that are not there.")

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
    remembers = True

    @functools.cached_property
    def _rotation(self) -> EvenRotation | Rotation | None:
        large = self.search == "pca" or np.bincount(self.arrays["class"]).max() >= FEWEST_TO_BOUND
        return super()._rotation if large else None

    @functools.cached_property
    def _banks(self) -> list[Any]:
        return [self._bank_of(self._class_rows(number)) for number in range(self.classes)]

    def _class_rows(self, number: int) -> Indices:
        return np.flatnonzero(self.arrays["class"] == number)

    def vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return minus the mean squared distance to the nearest descriptors of each class."""
        return -np.stack([distances.mean(axis=1) for distances, _ in self.nearest(values, self._neighbours())], axis=1)

    def nearest(self, values: npt.NDArray[Any], k: int) -> list[tuple[Floats, Indices]]:
        """Return, per class, the squared distances of the `k` nearest descriptors, ascending, and their places in it.

        Of a class that has fewer, all are returned.
        """
        queries: Any = self._comparable(values)
        if self._rotation is not None:
            queries = self._rotation(queries)  # once for the banks of all classes
        return [bank.nearest(queries, min(k, len(bank))) for bank in self._banks]

    def matches(self, bags: Bags, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Return the nearest training descriptor of a class for each descriptor."""
        values = self._comparable(with_positions(bags, slice(0, len(bags.values)), self.positions))
        distances, nearest = self._banks[number].nearest(values)
        rows = self._class_rows(number)[nearest[:, 0]]
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
            exact = self._bank_of(self._class_rows(number), search="exact")
            shares.append(recall(self._banks[number], exact, self._rows(chosen)))
        return float(np.mean(shares))


class LocalVotes(BankVotes):
    """Votes of `LocalNBNN`: how much nearer the nearest descriptor of a class is than the background."""

    kind = "local-nbnn"
    traces = True

    @functools.cached_property
    def _bank(self) -> Any:
        return self._bank_of(np.arange(len(self.arrays["values"])), _CANDIDATES)

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
        rng, rows = np.random.default_rng(0), len(self.arrays["values"])
        chosen = rng.choice(rows, size=min(500, rows), replace=False)
        exact = self._bank_of(np.arange(rows), search="exact")
        return recall(self._bank, exact, self._rows(chosen), min(self._neighbours() + 1, rows))
