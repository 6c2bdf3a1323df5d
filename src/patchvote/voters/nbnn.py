"""NBNN and LocalNBNN: Naive Bayes Nearest Neighbour, with one search per class or one for all.

Nothing is learned: every descriptor of the training images is kept. In NBNN, a descriptor votes for a class with minus
its squared distance to the nearest descriptor of that class. In LocalNBNN, only classes among the nearest neighbours of
a descriptor get a vote from it: how much nearer they are than the background, which is the next neighbour.

References
----------
Boiman, Shechtman and Irani, "In Defense of Nearest-Neighbor Based Image Classification", CVPR 2008.
McCann and Lowe, "Local Naive Bayes Nearest Neighbor for Image Classification", CVPR 2012.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.store import Store
from ..errors import PatchvoteError
from ..utils.arrays import to_float32
from .bank_votes import BankVotes, LocalVotes, NeighbourVotes, OnDisk, most_at_once, needed
from .base import Numbers, Voter
from .labels import check_weights
from .votes import check_bags

_ROWS = 4096  # descriptors that are normalised at once


@dataclasses.dataclass(eq=False, repr=False)
class BankVoter(Voter):
    """Base of NBNN and LocalNBNN: the bank of training descriptors, and the origin of each."""

    n_neighbors: int = 1
    _: dataclasses.KW_ONLY
    normalise: bool = True
    confidence: float = 0.0
    search: str = "exact"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Keep the descriptors of labelled images; the shards of a store have to stay where they are."""
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=True)
        numbers = self._set_classes(labels)
        images = np.flatnonzero(check_weights(sample_weight, len(source)) > 0)
        source = self._in_memory(source)
        owner = np.repeat(images, source.sizes[images])
        self._set_bank(self._values(source, images), numbers[owner], owner, self._boxes(source, images))
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add more images, of any class; the result is that of `fit` with all of them, which have to fit in memory."""
        if not hasattr(self, "values_"):
            return self.fit(X, y, sample_weight)
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=False)
        known, before = self.classes_, self.values_
        numbers = self._set_classes(labels, known)
        images = np.flatnonzero(check_weights(sample_weight, len(source)) > 0)
        source = self._in_memory(source, len(before))
        if isinstance(before, OnDisk) or isinstance(source, Store):
            raise PatchvoteError(
                "all training descriptors together are larger than memory: fit a store that holds all of the photos, "
                "or raise the option memory."
            )
        owner = np.repeat(images, source.sizes[images])
        self._set_bank(
            np.concatenate([before, self._values(source, images)]),
            np.concatenate([np.searchsorted(self.classes_, known)[self.class_], numbers[owner]]),
            np.concatenate([self.image_, owner + int(self.image_.max()) + 1]),
            np.concatenate([self.boxes_, self._boxes(source, images)]),
        )
        return self

    def scorer(self) -> BankVotes:
        """Return the scorer, which holds the index of the bank."""
        self._check_fitted()
        scorer: BankVotes = self._scorer
        scorer.memory = self.options.memory  # it may be changed at any time
        return scorer

    @property
    def recall_(self) -> float:
        """Share of the neighbours that the search finds: 1 if it is exact, otherwise measured on the bank."""
        return self.scorer().recall

    # --- training images, in memory or on disk ----------------------------------------------------------------------

    def _in_memory(self, source: Bags | Store, more: int = 0) -> Bags | Store:
        """Read a store if its bank, with `more` descriptors, fits in memory within the budget."""
        if isinstance(source, Bags) or needed(int(source.sizes.sum()) + more, source.dim) > self.options.memory:
            return source
        return self._read(source.load(dtype=np.float32)[0])

    def _boxes(self, source: Bags | Store, images: Numbers) -> npt.NDArray[np.float32]:
        """Return the boxes of images; the descriptors of a store are checked on the way."""
        return np.concatenate([bags.boxes for bags in self._bags_of(source, images)])

    def _bags_of(self, source: Bags | Store, images: Numbers) -> Iterator[Bags]:
        if isinstance(source, Bags):
            yield source if len(images) == len(source) else source[images]
            return
        for bags, _ in source.blocks(most_at_once(self.options.memory, source.dim), indices=images, dtype=source.dtype):
            check_bags(bags)
            yield bags

    def _values(self, source: Bags | Store, images: Numbers) -> npt.NDArray[Any] | OnDisk:
        if isinstance(source, Store):
            return OnDisk(source, images)
        (bags,) = self._bags_of(source, images)
        return bags.values.astype(np.float32)

    def _at_once(self) -> int:
        scorer = self.scorer()
        return min(super()._at_once(), scorer.at_once) if scorer.on_disk else super()._at_once()

    # --- the bank ---------------------------------------------------------------------------------------------------

    def _set_bank(
        self, values: npt.NDArray[Any] | OnDisk, numbers: Numbers, images: Numbers, boxes: npt.NDArray[np.float32]
    ) -> None:
        """Set the bank, the mean of its descriptors, and the scorer that indexes it."""
        self.values_, self.class_, self.image_, self.boxes_ = values, numbers, images, boxes
        self.mean_ = (self._feature_sum(values) / len(values)).astype(np.float32)
        fewest, label = min(zip(np.bincount(numbers, minlength=len(self.classes_)), self.classes_, strict=True))
        if self.scorer_class.remembers and fewest < self.n_neighbors:
            raise ValueError(
                f"class {str(label)!r} has {fewest} descriptors, fewer than {self.n_neighbors} neighbours."
            )
        self._restored(super().scorer())

    def _feature_sum(self, values: npt.NDArray[Any] | OnDisk) -> npt.NDArray[np.float64]:
        """Return the sum of each feature; 0 if descriptors are not normalised."""
        total = np.zeros(values.shape[1])
        if self.normalise:
            for part in values.parts(values.images, _ROWS) if isinstance(values, OnDisk) else [values]:
                for start in range(0, len(part), _ROWS):
                    total += to_float32(part[start : start + _ROWS]).sum(axis=0, dtype=np.float64)
        return total

    def _restored(self, scorer: Any) -> None:
        self._scorer = scorer


class NBNN(BankVoter):
    """Votes with minus the squared distance to the nearest training descriptor of each class.

    Parameters
    ----------
    n_neighbors : int, default 1
        Number of nearest descriptors of a class over which distances are averaged.
    normalise : bool, default True
        Whether the mean of the training descriptors is subtracted, and descriptors are scaled to length 1, before they
        are compared. The paper does neither, which is better for photos of another camera (docs/results.md).
    confidence : float, default 0
        Exponent of the weight of a descriptor's vote, the difference of its two largest votes; 0 gives all the same
        weight, as in the paper.
    search : {"exact", "pca"}, default "exact"
        Search for neighbours. "pca" is approximate; `recall_` is how often it finds the nearest. A store whose bank
        does not fit into `FitOptions.memory` is read part by part in every search, which is exact and by brute force.

    Attributes
    ----------
    recall_ : float
        Share of the nearest neighbours that the search finds: 1 for the exact search; for "pca", measured on
        descriptors of the bank against banks of other classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(loc=label, size=(20, 4)) for label in (0, 3) for _ in range(3)]
    >>> voter = NBNN(normalise=False).fit(bags, ["sea"] * 3 + ["land"] * 3)
    >>> voter.predict([np.full((5, 4), 3.0)])
    array(['land'], dtype='<U4')
    """

    scorer_class = NeighbourVotes
    description = "each part of a photo votes by its distance to the most similar part of each class"

    @classmethod
    def default(cls, seed: int) -> Self:
        """Return the voter for photos: descriptors are compared as they are, as in the paper."""
        return super().default(seed).set_params(normalise=False)

    def matches(self, X: Any, label: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return image, box and squared distance of the nearest training descriptor of a class, per descriptor."""
        scorer: Any = self.scorer()
        found: tuple[Any, Any, Any] = scorer.matches(self._read(X), self.classes_.tolist().index(label))
        return found


@dataclasses.dataclass(eq=False, repr=False)
class LocalNBNN(BankVoter):
    """Votes for the classes among the nearest training descriptors.

    Parameters
    ----------
    n_neighbors : int, default 10
        Number of nearest descriptors that vote; the next one is the background.
    normalise, confidence, search
        As in `NBNN`.

    Attributes
    ----------
    recall_ : float
        Share of the neighbours that the search finds: 1 for the exact search; for "pca", measured on the bank.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(loc=label, size=(20, 4)) for label in (0, 3) for _ in range(3)]
    >>> voter = LocalNBNN(normalise=False).fit(bags, ["sea"] * 3 + ["land"] * 3)
    >>> voter.predict([np.full((5, 4), 3.0)])
    array(['land'], dtype='<U4')
    """

    scorer_class = LocalVotes
    description = "each part of a photo votes for the classes of the most similar parts"

    n_neighbors: int = 10
