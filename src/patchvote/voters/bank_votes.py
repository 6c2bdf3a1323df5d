"""NeighbourVotes and LocalVotes: votes from the distances to the training descriptors of a class.

A bank in memory is normalised and indexed once, when it is first searched. One that is larger than memory stays in its
store (`OnDisk`): every search reads, normalises and compares it part by part, within a budget of memory.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.store import Store
from ..errors import ModelError
from ..utils.arrays import to_float32
from ..utils.schema import flag, one_of
from .scorer import FLOATS, WHOLE, DescriptorScorer, Schema, check_boxes, check_every_class, checks
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
_RESERVE = 64 << 20  # bytes for buffers of libraries and threads, and what freeing leaves behind
_FEWEST, _MOST = 512, 16_384  # at once: fewer would read the store too often; more would not be faster

_SCHEMA = Schema(
    arrays={
        "values": ("descriptor feature", FLOATS),
        "class": ("descriptor", WHOLE),
        "image": ("descriptor", WHOLE),
        "boxes": ("descriptor 4", FLOATS),
        "mean": ("feature", FLOATS),
    },
    settings=checks("n_neighbors", "confidence", normalise=flag, search=one_of("exact", "pca")),
    needed=("n_neighbors", "normalise", "search"),
)


class OnDisk:
    """The descriptors of some images of a store, as a matrix that is read part by part."""

    ndim, dtype = 2, np.dtype(np.float32)

    def __init__(self, store: Store, images: Indices) -> None:
        self.store, self.images = store, images
        self.shape = int(store.sizes[images].sum()), store.dim
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def parts(self, images: Indices, rows: int) -> Iterator[npt.NDArray[Any]]:
        """Yield the descriptors of some images, at most `rows` at a time."""
        for bags, _ in self.store.blocks(rows, indices=images, dtype=self.store.dtype):
            yield to_float32(bags.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.concatenate(list(self.parts(self.images, _MOST))).astype(dtype or self.dtype, copy=False)


def needed(rows: int, width: int) -> float:
    """Return the megabytes that a bank of `rows` descriptors of `width` features takes in memory."""
    return (_RESERVE + rows * (4 * _COPIES * width + _BESIDE)) / 1e6


def most_at_once(memory: float, width: int) -> int:
    """Return how many descriptors of a bank on disk, and as many queries, are compared within `memory` megabytes."""
    each = 4 * 8 * width  # each as it came, normalised, and compared again, with votes and neighbours
    return min(_MOST, max(_FEWEST, int((memory * 1e6 - _RESERVE) / each)))


def comparable(values: npt.NDArray[Any], mean: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return descriptors less `mean` and of length 1, for comparison."""
    values = to_float32(values) - mean
    values /= np.maximum(np.sqrt(squares(values)), 1e-12)[:, None]
    return np.asarray(values, np.float32)


class BankVotes(DescriptorScorer):
    """What the votes of `NBNN` and `LocalNBNN` share: a bank of descriptors, indexed when it is first searched."""

    schema = _SCHEMA
    arrays: dict[str, Any]
    memory: float = DEFAULT_MEMORY  # megabytes that the search of a bank on disk may take

    @property
    def features(self) -> int:
        """Number of features per descriptor."""
        return int(self.arrays["values"].shape[-1])

    @functools.cached_property
    def recall(self) -> float:
        """Share of the neighbours that the search finds: 1 if it is exact, otherwise measured."""
        return 1.0 if self.search == "exact" else self._measured_recall()

    @abc.abstractmethod
    def _measured_recall(self) -> float: ...

    @property
    def search(self) -> str:
        """Name of the search; on disk, it is exact."""
        return "exact" if self.on_disk else str(self.settings["search"])

    @property
    def on_disk(self) -> bool:
        """Whether the bank is searched part by part, in its store."""
        return isinstance(self.arrays["values"], OnDisk)

    @property
    def at_once(self) -> int:
        """How many descriptors of a bank on disk may be in memory, and as many queries."""
        return most_at_once(self.memory, self.arrays["values"].shape[1])

    @property
    def chunk(self) -> int:
        """Descriptors whose votes are computed at once."""
        return min(super().chunk, self.at_once) if self.on_disk else super().chunk

    def __getstate__(self) -> dict[str, Any]:
        indexes = ("_bank", "_banks", "_rotation")  # made again: some hold what cannot be pickled
        return {name: value for name, value in vars(self).items() if name not in indexes}

    def _comparable(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return descriptors for comparison, normalised unless the settings say otherwise."""
        return comparable(values, self.arrays["mean"]) if self.settings["normalise"] else to_float32(values)

    def _bank_of(self, rows: Indices, candidates: int = 16, *, search: str | None = None) -> Any:
        """Return the bank of all rows of some images, in memory or on disk; the search is that of the settings."""
        if self.on_disk:
            return BankInParts(len(rows), lambda: self._parts(np.unique(self.arrays["image"][rows])))
        values = self._comparable(self.arrays["values"][rows])
        if isinstance(self._rotation, Rotation) and search != "exact":
            return PcaBank(values, self._rotation, candidates)
        return Bank(values, self._rotation if isinstance(self._rotation, EvenRotation) else None)

    def _parts(self, images: Indices) -> Iterator[npt.NDArray[Any]]:
        """Read images of a bank on disk part by part."""
        return map(self._on_all_cores, self.arrays["values"].parts(images, self.at_once))

    def _on_all_cores(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        part: npt.NDArray[Any] = np.empty(values.shape, np.float32)

        def normalise(start: int) -> None:
            part[start : start + _CACHED] = self._comparable(values[start : start + _CACHED])

        on_all_cores(normalise, range(0, len(values), _CACHED))
        return part

    def _sample(self, rows: Indices, count: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """Return some of these rows of the bank at random."""
        chosen = np.sort(rng.choice(rows, size=min(count, len(rows)), replace=False))
        return self._comparable(self.arrays["values"][chosen])

    @functools.cached_property
    def _rotation(self) -> EvenRotation | Rotation | None:
        """The rotation that the search needs; None if it needs none."""
        rows, width = self.arrays["values"].shape
        largest = np.bincount(self.arrays["class"]).max() if self.remembers else rows  # of the banks that are searched
        small = self.search == "exact" and largest < FEWEST_TO_BOUND
        if width <= _PCA_FEATURES or self.on_disk or small:
            return None
        sample = self._sample(np.arange(rows), _SAMPLE, np.random.default_rng(0))
        return EvenRotation(sample) if self.search == "exact" else Rotation(sample, _PCA_FEATURES)

    def check(self, images: int | None = None) -> None:
        """Refuse arrays that are inconsistent, and numbers of images that are not there."""
        arrays = self.arrays
        if self.positions:
            raise ModelError("a bank has no positions.")
        check_boxes(arrays["boxes"])
        fewest = check_every_class(arrays["class"], self.classes)
        if self.remembers and fewest < self.settings["n_neighbors"]:
            raise ModelError(f"a class has {fewest} descriptors, fewer than {self.settings['n_neighbors']} neighbours.")
        if arrays["image"].min() < 0 or (images is not None and arrays["image"].max() >= images):
            raise ModelError("its bank names images that are not there.")


class NeighbourVotes(BankVotes):
    """Votes of `NBNN`: minus the squared distance to the nearest descriptor of each class."""

    kind = "nbnn"
    remembers = True

    @functools.cached_property
    def _banks(self) -> list[Any]:
        return [self._bank_of(self._class_rows(number)) for number in range(self.classes)]

    def _class_rows(self, number: int) -> Indices:
        return np.flatnonzero(self.arrays["class"] == number)

    def vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return minus the mean squared distance to the nearest descriptors of each class."""
        queries: Any = self._comparable(values)
        if self._rotation is not None:
            queries = self._rotation(queries)  # once for the banks of all classes
        found = [bank.nearest(queries, self.settings["n_neighbors"])[0] for bank in self._banks]
        return -np.stack([distances.mean(axis=1) for distances in found], axis=1)

    def matches(self, bags: Bags, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Return the nearest training descriptor of a class for each descriptor."""
        values = self._comparable(bags.values)
        distances, nearest = self._banks[number].nearest(values)
        rows = self._class_rows(number)[nearest[:, 0]]
        return self.arrays["image"][rows], self.arrays["boxes"][rows], distances[:, 0]

    def _measured_recall(self) -> float:
        rng, numbers, shares = np.random.default_rng(0), self.arrays["class"], []
        for number in rng.permutation(self.classes)[:5]:
            queries = self._sample(np.flatnonzero(numbers != number), 100, rng)
            shares.append(recall(self._banks[number], self._bank_of(self._class_rows(number), search="exact"), queries))
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
        count = min(self.settings["n_neighbors"], len(self._bank) - 1)
        return count, *self._bank.nearest(self._comparable(values), count + 1)

    def vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return votes for the classes among the nearest descriptors; others get 0."""
        count, distances, indices = self._nearest(values)
        votes = np.zeros((len(values), self.classes), np.float32)
        background, rows = distances[:, -1], np.arange(len(values))
        for place in range(count - 1, -1, -1):  # the nearest of a class is written last
            votes[rows, self.arrays["class"][indices[:, place]]] = background - distances[:, place]
        return votes

    def pulls(self, bags: Bags, number: int) -> npt.NDArray[np.float64]:
        """Return the sum of the votes that each training image has given for a class."""
        added = np.zeros(int(self.arrays["image"].max()) + 1)
        for start in range(0, len(bags.values), _QUERIES):
            rows = slice(start, min(start + _QUERIES, len(bags.values)))
            count, distances, indices = self._nearest(bags.values[rows])
            of_class = self.arrays["class"][indices[:, :count]] == number
            voting = np.flatnonzero(of_class.any(axis=1))
            first = of_class[voting].argmax(axis=1)  # the nearest of the class, which has given the vote
            images = self.arrays["image"][indices[voting, first]]
            np.add.at(added, images, distances[voting, -1] - distances[voting, first])
        return added

    def _measured_recall(self) -> float:
        rows = np.arange(len(self.arrays["values"]))
        queries = self._sample(rows, 500, np.random.default_rng(0))
        return recall(
            self._bank, self._bank_of(rows, search="exact"), queries, min(self.settings["n_neighbors"] + 1, len(rows))
        )
