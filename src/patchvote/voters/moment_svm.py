"""MomentSVM: parts that vote by what they show, where they stand and what else they show, trained on the bag.

Like `BagSVM`, it undoes the paper's relaxation: a linear SVM learns from one vector per bag. But that vector holds more
than the mean of the bag (`moment_features`), so that the vote of a part is no linear function of its features: it
depends on the part's place, and a product of two features counts only in parts that show both. Nothing of that is left
in a pooled image. The score is still a mean over parts, so evidence adds up exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from ..bags.bags import Bags
from ..bags.copies import copy_groups
from ..bags.keep import Condenser, Keep
from ..bags.store import Store
from ..errors import PatchvoteError
from ..utils.machine import cores
from ..utils.threads import one_blas_thread
from .atomic import atomic
from .bag_svm import BagSVM
from .base import Candidate, ToAdapt, Voter
from .calibration import FEWEST_TO_CALIBRATE, fit_temperature, threshold_for
from .labels import check_weights, split_groups
from .linear_svm import fit_linear
from .moment_features import PLACES, moment_vectors, moments, pair_count, parts_of, rooted, scales
from .moment_keep import PAIRS, KeptMoments, MomentCondenser, keeps_moments, kept_in
from .moment_votes import MomentVotes
from .power import has_negative, resolved
from .scorer import Scorer
from .votes import check_bags, softmax

_HELD_OUT = 0.2  # share of the photos on which the rejection that stays in force is calibrated
_FOLDS = 5  # of the photos instead, where they are few
_AT_ONCE = 20_000  # descriptors of a store that are held in memory at once
_SAMPLE = 8_000  # descriptors from which directions are found
_EXTRA, _ITERATIONS = 10, 5  # of the search for directions
_HALF_FLOAT = 6e4  # moments up to this size are kept in float16
_HALF_FLOAT_IN_SAMPLE = 6e3  # the same for moments of a sample: those of other photos may be larger
_ROUNDING = 1e-4  # most of the variance between images that rounding to float16 may add

Floats = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]


class MomentSVM(Voter):
    """Votes with a function of every part's features, their products and its place, learned from moments of bags.

    Parameters
    ----------
    C : float, default 1
        Inverse strength of the regularisation, for vectors whose mean squared length is 1.
    power : float or "auto", default "auto"
        Exponent of the power normalisation of features: 0.5 takes square roots, 1 changes nothing. "auto" is 0.5, or 1
        if any feature is negative.
    layout : float, default 0.36
        Weight of the places of features, beside a weight of 1 for the features themselves; 0 leaves places out.
    pairs : int, default 128
        Number of directions whose products are used: the leading principal directions of the training descriptors. 0
        leaves products out.
    class_weight : dict, "balanced" or None
        Weights of the classes, as in scikit-learn.
    calibration : float, default 0.2
        Share of the images held out to set the temperature of the probabilities and the threshold of rejection, in a
        separate training. With 0, or fewer than 50 images, the temperature is 1.
    rejection : float, default 0.05
        Share of the correctly classified held-out images that may be rejected as "none of these".
    random_state : int, default 0
        Seed of the choice of held-out images and descriptors, and of the solver.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    linear_ : array of shape (classes, moments)
        Weights of the linear score of a bag's vector: four per feature, then those of products.
    bias_ : array of shape (classes,)
        Intercepts of the linear score.
    directions_, offset_ : arrays of shape (features, directions) and (features,)
        Projection of descriptors for their products.
    power_ : float
        Exponent of the power normalisation that is used.
    vectors_ : array of shape (images, moments)
        Moments of the training images, kept to learn more images later.
    means_ : array of shape (images, features)
        Means of the training images, kept to adapt to another domain later.
    class_ : array of shape (images,)
        Class numbers of the training images.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> together, apart = np.array([[1, 1], [0, 0]] * 4), np.array([[1, 0], [0, 1]] * 4)
    >>> bags = [parts + 0.1 * rng.random((8, 2)) for parts in (together, apart) for _ in range(10)]
    >>> labels = ["together"] * 10 + ["apart"] * 10
    >>> MomentSVM().fit(bags, labels).predict([apart])  # the means of all bags are the same
    array(['apart'], dtype='<U8')
    """

    scorer_class = MomentVotes
    description = "each part of a photo votes by its features, their products and its place"
    reads_store = True

    linear_: npt.NDArray[np.float64]
    bias_: npt.NDArray[np.float64]
    power_: float

    def __init__(
        self,
        C: float = 1.0,
        *,
        power: float | str = "auto",
        layout: float = 0.36,
        pairs: int = PAIRS,
        class_weight: Any = None,
        calibration: float = 0.2,
        rejection: float = 0.05,
        random_state: int = 0,
    ) -> None:
        self.C = C
        self.power = power
        self.layout = layout
        self.pairs = pairs
        self.class_weight = class_weight
        self.calibration = calibration
        self.rejection = rejection
        self.random_state = random_state

    @classmethod
    def candidates(cls, seed: int) -> list[Candidate]:
        """Return one candidate; every class has the same weight, however many photos it has (see `BagSVM`)."""
        voter = cls(class_weight="balanced", calibration=0, random_state=seed)
        return [Candidate(cls.description, voter)]

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Training images. A store may be larger than memory: only its moments are held. One that keeps moments has
            the directions of its own, which are used.
        y : array of shape (images,), optional
            Classes of the images; by default those of the store.
        sample_weight : array of shape (images,), optional
            Weights of the images; those of weight 0 are left out.
        """
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=True)
        numbers = self._set_classes(labels)
        weight = check_weights(sample_weight, len(source))
        images = np.flatnonzero(weight > 0)
        found = self._moments_of_all(source, images)
        stats = np.zeros((len(source), self._moments), np.float32)
        means = np.zeros((len(source), self.n_features_in_), np.float32)
        stats[images], means[images] = found

        def train(part: Numbers, _: str) -> None:
            self.means_ = _stored(means[part], self.n_features_in_)
            self._learn(stats[part], numbers[part], weight[part])

        def scores(part: Numbers) -> Floats:
            vectors = moment_vectors(stats[part], self.n_features_in_)
            return np.asarray(vectors @ self.linear_.T + self.bias_)

        dim = self.n_features_in_
        self._train_and_calibrate(images, numbers, self.calibration, lambda: stats[:, :dim], train, scores)
        return self

    @atomic
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn more images, of any class, together with those learned before; directions and temperature stay.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array, optional
            Ignored, since new classes may come at any time; accepted for scikit-learn's tools.
        """
        if not hasattr(self, "vectors_"):
            return self.fit(X, y, sample_weight)
        self._check_settings()
        source, labels = self._read_labelled(X, y, reset=False)
        weight = check_weights(sample_weight, len(source))
        images = np.flatnonzero(weight > 0)
        before = self.classes_
        numbers = self._set_classes(labels, before)
        old = np.searchsorted(self.classes_, before)[self.class_]
        learned = getattr(self, "weight_", np.ones(len(old)))
        stats, means, negative = self._statistics(source, images)
        if negative and self.power == "auto" and self.power_ != 1:
            raise ValueError(
                "features are negative, but those learned before are not. Were they extracted with the same network?"
            )
        if hasattr(self, "means_"):  # a model of an earlier version has none
            self.means_ = _stored(np.concatenate([self.means_.astype(np.float32), means]), self.n_features_in_)
        self._learn(
            np.concatenate([self.vectors_.astype(np.float32), stats]),
            np.concatenate([old, numbers[images]]),
            np.concatenate([learned, weight[images]]),
        )
        return self

    def _learn(self, stats: Floats, numbers: Numbers, weight: npt.NDArray[np.float64]) -> None:
        self.vectors_, self.class_ = _stored(stats, self.n_features_in_), numbers.astype(np.int64)
        equal = bool((weight == 1).all())
        if not equal:
            self.weight_ = weight
        elif hasattr(self, "weight_"):
            del self.weight_
        vectors, dim = moment_vectors(self.vectors_, self.n_features_in_), self.n_features_in_
        centre = np.average(vectors, axis=0, weights=weight)
        vectors -= centre
        sizes = [
            float(np.sqrt(np.average(np.square(vectors[:, part]).sum(axis=1), weights=weight)))
            for part in parts_of(dim)
        ]
        scale = scales(sizes, vectors.shape[1], dim, self.layout)
        linear, bias = fit_linear(
            vectors * scale, numbers, self.classes_, self.C, self.class_weight, weight, self._seed()
        )
        self.linear_ = linear * scale
        self.bias_ = bias - self.linear_ @ centre

    def _moments_of_all(self, source: Bags | Store, images: Numbers) -> tuple[Floats, Floats]:
        """Choose exponent and directions; return the moments and means of the training images.

        Whether features are negative is known for certain once all images were read. If only a few are, and were not
        in the first block, the images are read once more.
        """
        if isinstance(source, Store) and keeps_moments(source):
            kept = kept_in(source)
            if self.power not in ("auto", kept.power) or kept.pairs != self.pairs:
                raise ValueError(f"{source.path} keeps moments for other settings of power or pairs.")
            self.power_, self.directions_, self.offset_ = kept.power, kept.directions, kept.offset
            return self._statistics(source, images)[:2]
        negative = self.power == "auto" and has_negative(next(_blocks(source, images)).values)
        while True:
            self.power_ = resolved(self.power, negative)
            self._choose_directions(source, images)
            stats, means, found = self._statistics(source, images)
            if self.power != "auto" or found <= negative:
                return stats, means
            negative = True

    def _choose_directions(self, source: Bags | Store, images: Numbers) -> None:
        """Find the leading principal directions of a sample of descriptors, scaled towards equal variance."""
        dim = self.n_features_in_
        self.offset_, self.directions_ = np.zeros(dim, np.float32), np.zeros((dim, 0), np.float32)
        count = min(self.pairs, dim)
        if not count:
            return
        rng = np.random.default_rng(self._seed())
        each = max(1, -(-_SAMPLE // len(images)))
        chosen = np.sort(rng.permutation(images)[:_SAMPLE])
        parts = []
        for bags in _blocks(source, chosen):
            for start, stop in zip(bags.offsets[:-1], bags.offsets[1:], strict=True):
                rows = start + np.sort(rng.permutation(int(stop - start))[:each])
                parts.append(rooted(Bags.of(bags.values[rows]), slice(None), self.power_))
        sample = np.concatenate(parts)
        self.offset_ = sample.mean(axis=0)
        sample -= self.offset_
        with np.errstate(over="ignore", invalid="ignore"):
            covariance = sample.T @ sample / len(sample)
        if not np.isfinite(covariance).all():
            raise ValueError(
                f"features as large as {np.abs(sample).max():g} are too large for products: divide them by a number."
            )
        variance, directions = _leading(covariance, count, rng)
        kept = variance > 1e-6 * max(variance.max(), 1e-30)
        self.directions_ = (directions[:, kept] / variance[kept] ** 0.25).astype(np.float32)

    @property
    def _moments(self) -> int:
        return PLACES * self.n_features_in_ + pair_count(self.directions_.shape[1])

    def _statistics(self, source: Bags | Store, images: Numbers) -> tuple[Floats, Floats, bool]:
        """Return the moments and the mean descriptors of some images, and whether any of their features is negative."""
        if isinstance(source, Store) and keeps_moments(source):
            return self._kept_statistics(source, images)
        workers = cores()
        found: list[tuple[Floats, Floats, bool]] = []

        def of_part(bags: Bags) -> tuple[Floats, Floats, bool]:
            negative = has_negative(bags.values)
            return moments(bags, self.power_, self.directions_, self.offset_), bags.means(), negative

        # One thread per part of a block: products of single bags are too small for a library's own threads.
        with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
            for bags in _blocks(source, images):
                ends = np.linspace(0, len(bags), min(workers, len(bags)) + 1).astype(int)
                found += pool.map(of_part, [bags[a:b] for a, b in itertools.pairwise(ends.tolist())])
        if not found:
            return np.zeros((0, self._moments), np.float32), np.zeros((0, self.n_features_in_), np.float32), False
        stats, means, negative = zip(*found, strict=True)
        return np.concatenate(stats), np.concatenate(means), any(negative)

    # --- moments in a store -----------------------------------------------------------------------------------------

    def needs(self) -> Keep | Condenser:
        """Return what it needs of a bag: its moments, along its own directions once it is fitted."""
        if not hasattr(self, "vectors_"):
            return MomentCondenser(self.pairs, self.power)
        return self._kept(self.vectors_.dtype.name)

    def _kept(self, dtype: str = "float16") -> KeptMoments:
        return KeptMoments(self.power_, self.directions_, self.offset_, self.pairs, dtype)

    def to_keep(self, sample: Store) -> KeptMoments:
        """Return what a store has to keep of each bag, with directions found in the whole bags of a sample."""
        self._check_settings()
        self.n_features_in_ = sample.dim
        found = self._moments_of_all(sample, np.arange(len(sample)))
        small = all(np.abs(part).max(initial=0) < _HALF_FLOAT_IN_SAMPLE for part in found)
        half = small and all(_stored(part, sample.dim).dtype == np.float16 for part in found)
        return self._kept("float16" if half else "float32")

    def _kept_statistics(self, store: Store, images: Numbers) -> tuple[Floats, Floats, bool]:
        """Return the moments and means that a store keeps, which must be along the voter's own directions."""
        kept = self._kept()
        if kept.name != store.keep:
            raise ValueError(f"{store.path} keeps moments along other directions than those that were learned.")
        found = [kept.read(bags) for bags in _blocks(store, images)]
        none = np.zeros((0, self._moments), np.float32), np.zeros((0, self.n_features_in_), np.float32)
        stats, means = zip(*(found or [none]), strict=True)
        return np.concatenate(stats), np.concatenate(means), False

    def _mean_votes(self, X: Any) -> Floats:
        if not (isinstance(X, Store) and keeps_moments(X)):
            return super()._mean_votes(X)
        check_is_fitted(self)
        stats, _, _ = self._kept_statistics(X, np.arange(len(X)))
        return np.asarray(moment_vectors(stats, self.n_features_in_) @ self.linear_.T + self.bias_)

    def _reads(self, store: Store) -> bool:
        return keeps_moments(store)

    # --- adapting ---------------------------------------------------------------------------------------------------

    def for_target(self) -> Voter:
        """Return the voter that adapting trains: `BagSVM`, since places and products differ between cameras."""
        return self._of_means().for_target()

    def to_adapt(self) -> ToAdapt:
        """Return what adapting takes: that of a `BagSVM` of the same training images."""
        if not hasattr(self, "means_"):
            raise PatchvoteError(
                "the model was made by an earlier version, which kept no means of photos: fit it again."
            )
        means, labels = self.means_.astype(np.float32), self.classes_[self.class_]
        voter: BagSVM = self._of_means().set_params(calibration=_HELD_OUT)
        voter.fit(means, labels, getattr(self, "weight_", None))
        if len(means) < FEWEST_TO_CALIBRATE:
            _calibrate_by_folds(voter, means, self.class_)
        return voter.to_adapt()

    def _of_means(self) -> BagSVM:
        """Return the voter that learns from the means of images alone, with the same settings."""
        shared = ("C", "power", "class_weight", "calibration", "rejection", "random_state")
        return BagSVM(**{name: getattr(self, name) for name in shared})

    # --- settings ---------------------------------------------------------------------------------------------------

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings, with the exponent that is used."""
        return super()._plain_settings() | ({"power": self.power_} if hasattr(self, "power_") else {})

    def _restored(self, scorer: Scorer) -> None:
        self.power_ = float(scorer.settings["power"])


def _leading(covariance: Floats, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues of a covariance matrix and their directions, by subspace iteration.

    A whole decomposition takes ten times as long, and the products of nearly the same directions vote alike.
    """
    dim = len(covariance)
    basis = rng.standard_normal((dim, min(dim, count + _EXTRA))).astype(covariance.dtype)
    with one_blas_thread():  # these matrices are small: threads would wait for one another
        for _ in range(_ITERATIONS):
            basis, _ = np.linalg.qr(covariance @ basis)
        values, turns = np.linalg.eigh(basis.T @ covariance @ basis)
    return values[::-1][:count], (basis @ turns)[:, ::-1][:, :count]


def _calibrate_by_folds(voter: BagSVM, means: Floats, numbers: Numbers) -> None:
    """Set temperature and threshold of a fitted voter from photos that are held out in turns."""
    folds = min(_FOLDS, int(np.bincount(numbers).min()))
    if folds < 2:
        return
    images, groups = np.arange(len(means)), copy_groups(means)  # copies of a photo are held out together
    found, expected = [], []
    for _, fold in StratifiedKFold(folds).split(means, numbers):
        keep, out = split_groups(images, fold, numbers, groups)
        if len(out):
            part = voter.uncalibrated().fit(means[keep], voter.classes_[numbers[keep]])
            found.append(part._mean_votes(means[out]))
            expected.append(numbers[out])
    if not found:
        return
    scores, labels = np.concatenate(found), np.concatenate(expected)
    voter.temperature_ = fit_temperature(scores, labels)
    voter.rejection_threshold_ = threshold_for(softmax(scores / voter.temperature_), labels, voter.rejection)


def _stored(values: Floats, dim: int) -> Floats:
    """Return values as float16, or as float32 where the rounding would hide how they differ between images."""
    if not len(values) or float(np.abs(values).max(initial=0)) >= _HALF_FLOAT:
        return values.astype(np.float32)
    half = values.astype(np.float16)
    rounding, spread = np.square(half.astype(np.float32) - values).mean(axis=0), values.var(axis=0, dtype=np.float64)
    parts = [part for part in parts_of(dim) if spread[part].any()]
    fits = all(rounding[part].sum() <= _ROUNDING * spread[part].sum() for part in parts)
    return half if fits else values.astype(np.float32)


def _blocks(source: Bags | Store, images: Numbers) -> Iterator[Bags]:
    """Yield some images, in order, as bags that fit into memory."""
    if isinstance(source, Bags):
        if len(images):
            yield source[images]
        return
    for bags, _ in source.blocks(_AT_ONCE, indices=images, dtype=source.dtype):
        check_bags(bags)
        yield bags
