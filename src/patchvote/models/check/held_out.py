"""What the other photos of a collection say of each photo: every photo is held out once, its copies with it.

The voter is the one that can be asked about every photo of a collection in seconds: linear votes on the vector of a bag
(`pooling`), learned by least squares, for all classes at once. The same equations tell how unlike the others a photo
is. With x the vector of a held-out photo, m and G the mean and covariance of the others, and Y their classes as -1 and
1,

    votes = (x - m)' (G + a I)^-1 cov(X, Y) + mean(Y) ,        unlike = (x - m)' (G + a I)^-1 (x - m) ,

the second being the variance of the first under a Gaussian prior of the weights: it is large where x points into a
direction in which the others do not vary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from ...voters.calibration import fit_temperature
from ...voters.labels import split_groups
from ...voters.pooling import bag_vectors
from ...voters.power import resolved
from ...voters.votes import softmax

# Strength of the regularisation (a), relative to the mean squared length of a vector. Chosen on Amazon with planted
# labels and strangers (docs/check.md); from a third to three times of it, precision changes by a point at most.
_ALPHA = 0.003
_FOLDS = 5

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut:
    """What the other photos say of each photo.

    Parameters
    ----------
    probability : array of shape (photos, classes)
        Probability of each class; NaN for photos that could not be held out, because no other photo has their class.
    unlike : array of shape (photos,)
        How unlike the other photos a photo is; NaN as above.
    """

    probability: Floats
    unlike: Floats

    @property
    def asked(self) -> npt.NDArray[np.bool_]:
        """Which photos were held out."""
        return ~np.isnan(self.unlike)


def hold_out_each(means: npt.NDArray[Any], numbers: Numbers, groups: Numbers, seed: int = 0) -> HeldOut:
    """Hold out every photo once, and ask those that are left about it.

    Parameters
    ----------
    means : array of shape (photos, features)
        Mean descriptor of each photo.
    numbers : array of int
        Class number of each photo, from 0 on.
    groups : array of int
        Groups of copies (`copy_groups`), which are held out together.
    seed : int, default 0
        Seed of the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> means = np.eye(2)[[0, 0, 0, 0, 1, 1, 1, 1]] + 0.1 * rng.random((8, 2))
    >>> labels = np.array([0, 0, 0, 1, 1, 1, 1, 1])  # the fourth is wrong
    >>> hold_out_each(means, labels, np.arange(8)).probability.argmax(axis=1).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    classes = int(numbers.max()) + 1
    vectors = _coordinates(bag_vectors(means, resolved("auto", bool((means < 0).any()))))
    targets = 2 * np.eye(classes)[numbers] - 1
    votes, unlike = np.full((len(numbers), classes), np.nan), np.full(len(numbers), np.nan)
    for keep, out in folds(numbers, groups, seed):
        # Every class has the same weight, however many photos it has.
        weight = 1 / np.bincount(numbers[keep], minlength=classes)[numbers[keep]]
        weight /= weight.sum()
        mean, share = weight @ vectors[keep], weight @ targets[keep]
        centred, asked = vectors[keep] - mean, vectors[out] - mean
        weighted = (centred * weight[:, None]).T
        covariance = weighted @ centred
        covariance[np.diag_indices(len(covariance))] += _ALPHA
        solved = cho_solve(cho_factor(covariance), np.hstack([weighted @ (targets[keep] - share), asked.T]))
        votes[out] = asked @ solved[:, :classes] + share
        unlike[out] = np.einsum("ij,ji->i", asked, solved[:, classes:])
    return HeldOut(_probability(votes, numbers), unlike)


def _coordinates(vectors: Floats) -> Floats:
    """Return vectors of mean squared length 1, in as few coordinates as the photos span."""
    images, features = vectors.shape
    if images < features:
        vectors = np.transpose(np.linalg.qr(vectors.T, mode="r"))  # the same products
    length = np.sqrt(np.mean(np.square(vectors).sum(axis=1)))
    return np.asarray(vectors / (length if length > 0 else 1.0))


def folds(numbers: Numbers, groups: Numbers, seed: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield which photos to learn from and which to hold out, so that each is held out once if its class allows it.

    The photos of every class are spread over the folds evenly; copies are in one fold, and a class is never held out as
    a whole.
    """
    images, rng = np.arange(len(numbers)), np.random.default_rng(seed)
    leaders = images[groups == images]
    order = np.concatenate([rng.permutation(leaders[numbers[leaders] == number]) for number in np.unique(numbers)])
    for fold in range(_FOLDS):
        keep, out = split_groups(images, order[fold::_FOLDS], numbers, groups)
        if len(out):
            yield keep, out


def _probability(votes: Floats, numbers: Numbers) -> Floats:
    """Return the probabilities of votes, at the temperature that fits the labels best."""
    asked = ~np.isnan(votes[:, 0])
    probability = np.full(votes.shape, np.nan)
    if asked.any():
        probability[asked] = softmax(votes[asked] / fit_temperature(votes[asked], numbers[asked]))
    return probability
