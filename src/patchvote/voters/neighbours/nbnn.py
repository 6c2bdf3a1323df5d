"""NBNN: Naive Bayes Nearest Neighbour.

Nothing is learned: every descriptor of the training images is kept. A descriptor votes for a class with minus its
squared distance to the nearest descriptor of that class, and the class with the largest mean vote (the smallest sum of
distances) names the image.

References
----------
Boiman, Shechtman and Irani, "In Defense of Nearest-Neighbor Based Image Classification", CVPR 2008.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.cluster import MiniBatchKMeans

from ...bags.store import Store
from ...utils.terminal import nearest
from .base import BankVoter
from .in_parts import DEFAULT_MEMORY, needed
from .votes import NeighbourVotes


class NBNN(BankVoter):
    """Votes with minus the squared distance to the nearest training descriptor of each class.

    Parameters
    ----------
    n_neighbors : int, default 1
        Number of nearest descriptors of a class over which distances are averaged.
    normalise : bool, default True
        Whether the mean of the training descriptors is subtracted, and descriptors are scaled to length 1, before they
        are compared. The paper does neither. The common mean hides differences: on held-out training photos of
        Scene-15, 90.3 % of `dense` bags are classified correctly with both, 88.3 % with neither, 82.7 % with length 1
        alone.
    power : float or "auto", default 1
        Exponent of the power normalisation of features, which comes first: 1 changes nothing, as in the paper; 0.5
        takes square roots. "auto" is 0.5, or 1 if features are negative.
    position_weight : float, default 0
        Weight of the two position features, in 0..1, that are added to the descriptor.
    confidence : float, default 0
        Exponent of the weight of a descriptor's vote, its lead (see `confidence`); 0 gives all the same weight, as in
        the paper.
    search : {"exact", "pca", "hnsw", "ivf"}, default "exact"
        Search for neighbours. All but "exact" are approximate; `recall_` is how often they find the nearest.
    condense : int or None
        Number of k-means centres per class that are kept instead of all descriptors.
    dtype : {"float32", "float16"}, default "float32"
        Type of the bank; float16 takes half the memory, and more time.
    calibration : float, default 0.2
        Share of the images held out once to set the temperature of the probabilities and the threshold of rejection:
        about 50 images in all at most, and at least one per class. With 0, or fewer than 50 training images, the
        temperature is 1.
    rejection : float, default 0.05
        Share of the correctly classified held-out images that may be rejected as "none of these".
    memory : float, default 1500
        Megabytes that fitting a store, and then classifying, may take. A bank that takes more in memory (about five
        times its descriptors in float32) is kept in a temporary file (in the folder that ``TMPDIR`` names) and read
        part by part in every search. Votes are the same; the exact search is then by brute force.
    random_state : int or None, default 0
        Seed of the choice of held-out images, and of the k-means of `condense`.

    Attributes
    ----------
    recall_ : float
        Share of the nearest neighbours that the search finds: 1 for the exact search; for others, measured on
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

    def __init__(
        self,
        n_neighbors: int = 1,
        *,
        normalise: bool = True,
        power: float | str = 1.0,
        position_weight: float = 0.0,
        confidence: float = 0.0,
        search: str = "exact",
        condense: int | None = None,
        dtype: str = "float32",
        calibration: float = 0.2,
        rejection: float = 0.05,
        memory: float = DEFAULT_MEMORY,
        random_state: Any = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.normalise = normalise
        self.power = power
        self.position_weight = position_weight
        self.confidence = confidence
        self.search = search
        self.condense = condense
        self.dtype = dtype
        self.calibration = calibration
        self.rejection = rejection
        self.memory = memory
        self.random_state = random_state

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add more images, of any class; the result is that of `fit` with all of them."""
        if hasattr(self, "values_") and not self.can_learn_more:
            raise ValueError("a condensed bank cannot learn more images: fit it again with all of them.")
        return super().partial_fit(X, y, classes, sample_weight)

    @property
    def can_learn_more(self) -> bool:
        """Whether more images can be learned after `fit`: not by a condensed bank."""
        return self.condense is None

    def matches(self, X: Any, label: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return images, boxes and squared distances of the nearest training descriptors of the class `label`.

        One of each per descriptor of `X`; see `Scorer.matches`.
        """
        known = self.classes_.tolist()
        if label not in known:
            raise ValueError(f"label of matches must be a class, got {label!r}.{nearest(str(label), map(str, known))}")
        matches = self.scorer().matches(self._read(X), known.index(label))
        if matches is None:
            raise ValueError("the centres of a condensed bank come from no single image.")
        return matches

    def _condense(self) -> None:
        self._check_enough()
        if self.condense is None:
            return
        values, numbers = [], []
        for number in range(len(self.classes_)):
            points = self._comparable(self.values_[self.class_ == number])
            if len(points) > self.condense:
                means = MiniBatchKMeans(self.condense, n_init=1, random_state=self._seed(), batch_size=4096)
                points = means.fit(points).cluster_centers_.astype(np.float32)
            values.append(points.astype(self.dtype))
            numbers.append(np.full(len(points), number))
        self.values_, self.class_ = np.concatenate(values), np.concatenate(numbers)
        self.image_ = np.full(len(self.values_), -1)
        self.boxes_ = np.tile(np.array([0, 0, 1, 1], np.float32), (len(self.values_), 1))
        self._check_enough()

    def _check_largest_class(self, store: Store, descriptors: int) -> None:
        least = math.ceil(needed(descriptors, store.dim + 2))
        if self.condense is not None and self.memory < least:
            raise ValueError(
                f"memory must be at least {least:,} megabytes to condense a class of {descriptors:,} descriptors of "
                f"{store.dim:,} features, got {self.memory:g}."
            )

    def _check_enough(self) -> None:
        """Refuse a class with fewer than `n_neighbors` descriptors."""
        counts = np.bincount(self.class_, minlength=len(self.classes_))
        if counts.min() < self.n_neighbors:
            label = self.classes_[counts.argmin()]
            raise ValueError(
                f"class {str(label)!r} has {counts.min()} descriptors, fewer than {self.n_neighbors} neighbours."
            )
