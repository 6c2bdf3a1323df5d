"""MomentRidge: parts that vote by what they show, where and with what else, learned by ridge regression on bags.

It undoes the paper's relaxation: one linear function is learned from one vector per photo, and the vote of a part is
what the part adds to it. The vector (`bags.moments`) holds more than the mean of the bag, so that the vote of a part is
no linear function of its features: it depends on the part's place, and a product of two features counts only in parts
that show both. In other words it is second-order pooling with places, whose score divides exactly over parts. The
learner (`ridge`) is kernel ridge regression on the Gram matrix of the photos.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.copies import copy_groups
from ..bags.moments import KeptMoments, MomentBags, parts_of, squares
from ..bags.store import Store
from ..networks.bases import Basis, basis_for, random_basis
from .base import Voter
from .labels import check_weights, image_weights
from .moment_votes import MomentVotes
from .ridge import Ridge, best_strengths, folds_of
from .votes import check_bags, fit_temperature, softmax, threshold_for

_AT_ONCE = 20_000  # descriptors of a store that are held in memory at once
_MOST_IN_MEMORY = 1 << 28  # bytes of vectors that are held at once: those of 2,200 photos with 1,280 features
_BLOCK = 64  # photos whose vectors are summed at once
_MOST_EXACT, _LANDMARKS = 3_000, 2_000  # photos of which all products are computed; of more, those with so many
_TOGETHER = 1.5  # weight of products, beside 1 for the features: better than 1 for photos of another camera
_LEAST_SIZE = 1e-9  # of differences between photos whose vectors have the length 1: smaller ones are rounding
_FEWEST_TO_CALIBRATE = 10  # left-out photos
_TEMPERATURE = 0.09  # over the root of the number of classes, where too few photos can be left out: about what was
# best with one photo per class of four sets

Floats = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """What was solved, from which answers for left-out photos follow."""

    vectors: Vectors
    landmarks: Numbers  # photos by which the others are expressed: all, unless there are very many
    lifted: Floats | None  # turns coefficients of photos into those of landmarks; None where all are landmarks
    ridge: Ridge

    def linear(self, dual: Floats, intercept: Floats) -> tuple[npt.NDArray[np.float32], Floats]:
        """Return the linear function of moments and its intercepts, from the coefficients of the photos."""
        coefficients = dual
        if self.lifted is not None:
            coefficients = np.zeros_like(dual)
            coefficients[self.landmarks] = self.lifted @ dual
        linear = self.vectors.function(self.vectors.sums(coefficients))
        return linear, intercept - linear.astype(np.float64) @ self.vectors.mean


@dataclasses.dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of photos, each kind of moments scaled to its weight."""

    bags: MomentBags
    whole: npt.NDArray[np.float32] | None  # vectors, not scaled; None if there are too many: then made for each use
    mean: Floats  # weighted mean of the vectors, not scaled
    scale: Floats  # factor of what, where and together

    @classmethod
    def of(cls, bags: MomentBags, weight: Floats, layout: float) -> Vectors:
        """Scale vectors so that each kind has its share of the mean squared length of the centred vectors, 1 in all."""
        whole = bags.vectors() if 4 * bags.packed.size <= _MOST_IN_MEMORY else None
        mean, lengths = np.zeros(bags.packed.shape[1]), np.zeros(3)
        share = weight / weight.sum()
        for start in range(0, len(bags), _BLOCK):
            rows = slice(start, start + _BLOCK)
            block = bags.rows(rows).vectors() if whole is None else whole[rows]
            mean += share[rows] @ block
            for kind, part in enumerate(parts_of(bags.dim)):
                lengths[kind] += share[rows] @ squares(block[:, part])
        lengths -= [float(mean[part] @ mean[part]) for part in parts_of(bags.dim)]
        importance = np.array([1.0, layout, _TOGETHER]) * (lengths > _LEAST_SIZE)
        safe = np.where(importance > 0, lengths, 1.0)
        return cls(bags, whole, mean, np.sqrt(importance / safe / (importance.sum() or 1.0)))

    def products(self, columns: Numbers | slice = slice(None)) -> npt.NDArray[np.float32]:
        """Return the products of the photos with some of them, ``(photos, columns)``."""
        chosen = np.arange(len(self.bags))[columns]
        result = np.zeros((len(self.bags), len(chosen)), np.float32)
        for first in range(0, len(chosen), self._at_once):
            some = slice(first, first + self._at_once)
            others = self._rows(some if isinstance(columns, slice) else chosen[some])
            for start in range(0, len(self.bags), self._at_once):
                rows = slice(start, start + self._at_once)
                photos = others if rows == some and isinstance(columns, slice) else self._rows(rows)
                for factor, part in zip(self.scale, parts_of(self.bags.dim), strict=True):
                    result[rows, some] += np.float32(factor**2) * (photos[:, part] @ others[:, part].T)
        return result

    def sums(self, coefficients: Floats) -> Floats:
        """Return the sums of the vectors, not scaled, with coefficients ``(photos, sums)``."""
        result = np.zeros((coefficients.shape[1], self.bags.packed.shape[1]))
        for start in range(0, len(self.bags), self._at_once):
            rows = slice(start, start + self._at_once)
            result += coefficients[rows].T.astype(np.float32) @ self._rows(rows)
        return result

    def function(self, sums: Floats) -> npt.NDArray[np.float32]:
        """Return the linear functions of moments that are products with such sums, once both are scaled."""
        linear = sums.copy()
        for factor, part in zip(self.scale, parts_of(self.bags.dim), strict=True):
            linear[:, part] *= factor**2
        return linear.astype(np.float32)

    @property
    def _at_once(self) -> int:
        """Number of photos whose vectors are in memory at once."""
        return max(1, _MOST_IN_MEMORY // (4 * int(self.bags.packed.shape[1])))

    def _rows(self, rows: Numbers | slice) -> npt.NDArray[np.float32]:
        return self.bags.rows(rows).vectors() if self.whole is None else self.whole[rows]


@dataclasses.dataclass(eq=False, repr=False)
class MomentRidge(Voter):
    """Votes with a function of every part's features, their products and its place, by kernel ridge regression.

    Parameters
    ----------
    alpha : float or "auto", default "auto"
        Strength of the regularisation, for vectors whose mean squared length is 1. "auto" averages the regressions of
        all strengths that left-out photos do not speak against (`ridge.best_strengths`).
    layout : float, default 0.3
        Weight of the places of features, beside a weight of 1 for the features and 1.5 for their products.
    class_weight : dict, "balanced" or None
        Weights of the classes, as in scikit-learn.
    rejection : float, default 0.05
        Share of the correctly classified left-out images that may be rejected as "none of these".

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    linear_, bias_ : arrays of shape (classes, moments) and (classes,)
        The linear score of a bag's vector.
    offset_, directions_ : arrays of shape (features,) and (features, directions)
        Basis of the products.
    alphas_ : array
        Strengths of the regularisation whose regressions are averaged.
    left_out_ : array of shape (images, classes)
        Score of each training image had it been left out, together with its copies and some images of every other
        class (`ridge.folds_of`); NaN where its class would be empty.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> together, apart = np.array([[1, 1], [0, 0]] * 4), np.array([[1, 0], [0, 1]] * 4)
    >>> bags = [parts + 0.1 * rng.random((8, 2)) for parts in (together, apart) for _ in range(10)]
    >>> labels = ["together"] * 10 + ["apart"] * 10
    >>> MomentRidge().fit(bags, labels).predict([apart])  # the means of all bags are the same
    array(['apart'], dtype='<U8')
    """

    scorer_class = MomentVotes
    leaves_out = True  # it knows its answers for photos that are left out
    description = "each part of a photo votes by its features, their products and its place"

    alpha: float | str = "auto"
    _: dataclasses.KW_ONLY
    layout: float = 0.3
    class_weight: Any = None
    rejection: float = 0.05

    @classmethod
    def default(cls, seed: int) -> Self:
        """Return the voter for photos: every class has the same weight, however many photos it has."""
        return cls(class_weight="balanced")

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learn from labelled images; those of a group, by default those that look alike, are left out together.

        Only the moments of images are held in memory.
        """
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=True)
        weight = check_weights(sample_weight, len(source))
        self._set_classes(labels[weight > 0])
        numbers = np.searchsorted(self.classes_, labels)
        self._learn(self._moments(source, None), numbers, weight, groups)
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn more images, of any class, together with those learned before: as a fit to all of them does."""
        if not hasattr(self, "moments_"):
            return self.fit(X, y, sample_weight)
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=False)
        weight = check_weights(sample_weight, len(source))
        known = self.learned()
        new = self._moments(source, known.basis)
        before, old = self.classes_, getattr(self, "weight_", np.ones(len(known)))
        self._set_classes(labels[weight > 0], before)
        numbers = np.searchsorted(self.classes_, labels)
        numbers = np.concatenate([np.searchsorted(self.classes_, before)[self.class_], numbers])
        self._learn(MomentBags.joined([known, new]), numbers, np.concatenate([old, weight]), None)
        return self

    def learned(self) -> MomentBags:
        """Return the moments of the training images."""
        return MomentBags.of_packed(self.moments_, self.scale_, Basis(self.offset_, self.directions_))

    def _learn(self, bags: MomentBags, numbers: Numbers, weight: npt.NDArray[np.float64], groups: Any) -> None:
        used = np.flatnonzero(weight > 0)
        if len(used) < len(weight):
            bags, numbers, weight = bags.rows(used), numbers[used], weight[used]
            groups = None if groups is None else np.asarray(groups)[used]
        groups = copy_groups(bags) if groups is None else np.unique(groups, return_inverse=True)[1]
        folds = folds_of(numbers, groups)
        balanced = image_weights(self.classes_, numbers, self.class_weight, weight)
        targets = np.eye(len(self.classes_))[numbers]
        vectors = Vectors.of(bags, balanced, self.layout)
        self.solved_ = solution = solve(vectors, targets, balanced)
        ridge = solution.ridge
        self.alphas_ = best_strengths(ridge, groups) if self.alpha == "auto" else np.array([float(self.alpha)])
        dual = ridge.coefficients(self.alphas_)
        self.linear_, self.bias_ = solution.linear(dual, ridge.intercept)
        self.moments_, self.scale_, self.class_ = bags.packed, bags.scale, numbers.astype(np.int64)
        self.offset_, self.directions_ = bags.basis.offset, bags.basis.directions
        exact = solution.lifted is None
        self._set("weight", None if (weight == 1).all() else weight)
        self._set("dual", dual.astype(np.float32) if exact else None)
        self._set("factor", vectors.scale if exact else None)
        self._set("mean", vectors.mean.astype(np.float32) if exact else None)
        self.folds_, self.left_out_ = folds, ridge.left_out(self.alphas_, folds)
        self._calibrate(numbers)

    def _set(self, name: str, array: Floats | None) -> None:
        """Set an attribute that a fitted voter has only sometimes."""
        self.__dict__.pop(f"{name}_", None)
        if array is not None:
            setattr(self, f"{name}_", array)

    def _calibrate(self, numbers: Numbers) -> None:
        """Set temperature and threshold by the left-out images."""
        asked = ~np.isnan(self.left_out_[:, 0])
        self.temperature_, self.rejection_threshold_ = _TEMPERATURE / len(self.classes_) ** 0.5, 0.0
        if asked.sum() >= _FEWEST_TO_CALIBRATE:
            answers, expected = self.left_out_[asked], numbers[asked]
            self.temperature_ = fit_temperature(answers, expected)
            self.rejection_threshold_ = threshold_for(softmax(answers / self.temperature_), expected, self.rejection)

    def without(self, images: Numbers) -> Self:
        """Return the voter as it would be without some training images, from the same equations."""
        dual, intercept = self.solved_.ridge.without(self.alphas_, images)
        voter = copy.copy(self)
        voter.linear_, voter.bias_ = self.solved_.linear(dual, intercept)
        if hasattr(self, "dual_"):
            voter.dual_ = dual.astype(np.float32)
        return voter

    # --- reading images ---------------------------------------------------------------------------------------------

    def _moments(self, source: Bags | Store, basis: Basis | None) -> MomentBags:
        """Return the moments of images in a basis; by default that of a store's network, or a random one."""
        if isinstance(source, MomentBags):
            return source
        if isinstance(source, Bags):
            return KeptMoments(basis or random_basis(self.n_features_in_)).of(source)
        basis = basis or basis_for(source.recipe.network, source.fingerprint, source.dim)
        keep, parts = KeptMoments(basis), []
        for bags, _ in source.blocks(_AT_ONCE, dtype=source.dtype):
            check_bags(bags)
            parts.append(keep.of(bags))
        return MomentBags.joined(parts)


def solve(vectors: Vectors, targets: npt.NDArray[Any], weight: npt.NDArray[np.float64]) -> Solution:
    """Decompose the Gram matrix of photos; of very many, expressed by their products with landmarks."""
    count = len(vectors.bags)
    if count <= _MOST_EXACT:
        gram = vectors.products()
        return Solution(vectors, np.arange(count), None, Ridge.solve(gram, targets, weight))
    landmarks = _spread(targets.argmax(axis=1), _LANDMARKS)
    products = vectors.products(landmarks)
    values, turns = np.linalg.eigh(products[landmarks].astype(np.float64))
    kept = values > 1e-6 * values[-1]
    turns = turns[:, kept] / np.sqrt(values[kept])
    features = products @ turns.astype(np.float32)
    return Solution(vectors, landmarks, turns @ features.T, Ridge.solve_features(features, targets, weight))


def _spread(numbers: Numbers, count: int) -> Numbers:
    """Return so many images, as evenly over the classes as there are images, drawn with a fixed seed."""
    order = np.random.default_rng(0).permutation(len(numbers))
    rank = np.empty(len(numbers), np.int64)  # of each image among those of its class
    for number in np.unique(numbers):
        rows = order[numbers[order] == number]
        rank[rows] = np.arange(len(rows))
    return np.sort(order[np.argsort(rank[order], kind="stable")][:count])
