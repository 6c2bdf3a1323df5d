"""Kernel ridge regression, and everything that follows from one eigendecomposition.

Let K be the Gram matrix of n photos, w their weights (w' 1 = n), W = diag(w), and Y their classes as rows of 0 and 1.
The regression minimises

    sum_i w_i |y_i - f(x_i)|^2 + n alpha |f|^2 ,      f(x) = sum_i a_i k(x_i, x) + b ,

whose intercept is not regularised. With K centred at the weighted mean, A = W^(1/2) K W^(1/2) = U S U', and
u = W^(1/2) 1 / sqrt(n), the fitted values of W^(1/2) Y are H W^(1/2) Y with the hat matrix

    H = u u' + U diag(s / (s + n alpha)) U' .

So one decomposition serves every alpha, and averages of regressions: photos that were left out seldom decide between
strengths of the regularisation, and the regressions of all those that they allow are averaged.
Without another training the decomposition gives

- the coefficients a = W^(1/2) U diag(1 / (s + n alpha)) U' W^(1/2) (Y - b);
- the answer for photos g had they been left out, Y_g - W_g^(-1/2) (I - H_gg)^(-1) ((I - H) W^(1/2) Y)_g (copies of a
  photo are left out together; the weights and the regularisation of the others stay);
- the regression without these photos: it is the one whose targets Y_g are replaced by these answers.

tests/test_ridge.py holds a training for each of these beside it. For more photos than a Gram matrix bears, the photos
are expressed by their products with some of them (landmarks; Nystroem's method): the columns of U are then fewer than
the photos, and all else stays. References: Allen, "The relationship between variable selection and data augmentation
and a method for prediction" (1974); Rifkin and Lippert, "Notes on regularized least squares" (2007).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .votes import best_and_strongest, fit_temperature, log_losses, softmax

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Strengths = float | Floats  # one strength of the regularisation, or several whose regressions are averaged

# Strengths that are tried, in units of the mean squared length of the centred vectors.
STRENGTHS = 10.0 ** np.arange(-4, 1.01, 0.25)
DEFAULT_STRENGTH = 0.1  # where no photo can be left out; with one photo per class, it hardly matters
_LEAST_FOLDS = 10
_DECIMALS = 10  # of answers for left-out photos
_EPSILON = 1e-12  # least 1 - h: a photo that alone decides its own answer has none when it is left out
_MOST_TO_COMPARE = 100_000  # answers by which a temperature is found, for each strength that is tried


@dataclasses.dataclass(frozen=True, eq=False)
class Ridge:
    """The decomposition of a weighted, centred Gram matrix, and the targets of its photos."""

    targets: Floats  # 1 for the class of a photo, 0 for the others
    weight: Floats  # of each photo; their mean is 1
    values: Floats  # eigenvalues s, (rank,)
    vectors: Floats  # eigenvectors U, (photos, rank)

    @classmethod
    def solve(cls, gram: npt.NDArray[Any], targets: npt.NDArray[Any], weight: npt.NDArray[Any]) -> Ridge:
        """Decompose a Gram matrix, which need not be centred."""
        weight = np.asarray(weight, np.float64) / np.mean(weight)
        root = np.sqrt(weight)
        matrix = centred(np.asarray(gram, np.float64), weight) * root[:, None] * root
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        return cls(np.asarray(targets, np.float64), weight, np.maximum(values, 0), vectors)

    @classmethod
    def solve_features(cls, features: npt.NDArray[Any], targets: npt.NDArray[Any], weight: npt.NDArray[Any]) -> Ridge:
        """Decompose the Gram matrix of features, of which there are fewer than photos."""
        weight = np.asarray(weight, np.float64) / np.mean(weight)
        scaled = (features - weight @ features / len(weight)) * np.sqrt(weight)[:, None]
        values, turns = np.linalg.eigh(scaled.T @ scaled)
        kept = values > values[-1] * 1e-12
        return cls(
            np.asarray(targets, np.float64), weight, values[kept], scaled @ turns[:, kept] / np.sqrt(values[kept])
        )

    @property
    def intercept(self) -> Floats:
        """Weighted mean of the targets, b: the answer at the weighted mean of the photos."""
        return np.asarray(self.weight @ self.targets / len(self.weight))

    def coefficients(self, alpha: Strengths) -> Floats:
        """Return the coefficient of each photo for each class, ``(photos, classes)``; each column sums to 0."""
        shrinkage = 1 / (self.values[:, None] + len(self.weight) * np.atleast_1d(alpha))
        return np.asarray(self._root * (self.vectors @ (shrinkage.mean(axis=1)[:, None] * self._turned(self.targets))))

    def without(self, alpha: Strengths, photos: Numbers) -> tuple[Floats, Floats]:
        """Return the coefficients and the intercept had some photos been left out together."""
        residual_targets, turned = (
            self._root[photos] * (self.targets[photos] - self.intercept),
            self._turned(self.targets),
        )
        others = []
        for strength in np.atleast_1d(alpha):
            kept = self.values / (self.values + len(self.weight) * strength)
            residual = residual_targets - (self.vectors[photos] * kept) @ turned
            targets = self.targets.copy()
            targets[photos] -= self._left_out_residual(photos, kept, residual) / self._root[photos]
            other = dataclasses.replace(self, targets=targets)
            others.append((other.coefficients(strength), other.intercept))
        coefficients, intercepts = zip(*others, strict=True)
        return np.mean(coefficients, axis=0), np.mean(intercepts, axis=0)

    def left_out(self, alpha: Strengths, groups: Numbers | None = None) -> Floats:
        """Return the answer for each photo had it been left out together with its group, ``(photos, classes)``.

        NaN where no photo of one of its classes would be left.
        """
        each = np.atleast_1d(alpha)
        return np.asarray(sum(self.left_out_by(each, groups)) / len(each))

    def left_out_by(self, alphas: Floats, groups: Numbers | None = None) -> Iterator[Floats]:
        """Yield the answers of `left_out` for each of several strengths alone."""
        groups = np.arange(len(self.weight)) if groups is None else groups
        together, impossible = list(several(groups)), ~may_be_left_out(self.targets, groups)
        mean, turned = np.sqrt(self.weight / len(self.weight)), self._turned(self.targets)
        # Of the targets less their mean, since the hat matrix leaves constants as they are.
        centred_targets = self._root * (self.targets - self.intercept)
        shrinkage = self.values[:, None] / (self.values[:, None] + len(self.weight) * alphas)
        hats = np.square(mean)[:, None] + np.square(self.vectors) @ shrinkage
        for kept, hat in zip(shrinkage.T, hats.T, strict=True):
            residual = centred_targets - self.vectors @ (kept[:, None] * turned)
            scaled = residual / np.maximum(1 - hat, _EPSILON)[:, None]
            for rows in together:
                scaled[rows] = self._left_out_residual(rows, kept, residual[rows])
            # Rounded, so that the answers for equal photos of two classes are equal, whatever their own labels are.
            answers = np.round(self.targets - scaled / self._root, _DECIMALS)
            answers[impossible] = np.nan
            yield answers

    def learned_from(self, alpha: Strengths, kept: Numbers) -> Floats:
        """Return the answers for all photos had only some been learned, ``(photos, classes)``.

        As `left_out` of all others; solved for the photos that are kept, which is faster where they are few.
        """
        count, each, vectors = len(self.weight), np.atleast_1d(alpha), self.vectors / self._root
        gram = (vectors * self.values) @ vectors[kept].T
        wanted = np.column_stack([self.targets[kept], np.ones(len(kept))])
        answers = np.zeros(self.targets.shape)
        for strength in each:
            solved = np.linalg.solve(gram[kept] + np.diag(count * strength / self.weight[kept]), wanted)
            intercept = solved[:, :-1].sum(axis=0) / solved[:, -1].sum()
            answers += gram @ (solved[:, :-1] - solved[:, -1:] * intercept) + intercept
        return np.asarray(np.round(answers / len(each), _DECIMALS))

    def unlike(self, alpha: float, groups: Numbers) -> Floats:
        """Return the leverage of each photo over 1 less it, had it been left out together with its group."""
        kept = self.values / (self.values + len(self.weight) * alpha)
        hat = np.square(self.vectors) @ kept
        unlike = hat / np.maximum(1 - hat, _EPSILON)
        for rows in several(groups):
            block = (self.vectors[rows] * kept) @ self.vectors[rows].T
            unlike[rows] = np.diag(np.linalg.solve((1 + _EPSILON) * np.eye(len(rows)) - block, block))
        return np.asarray(unlike)

    def _left_out_residual(self, rows: Numbers, kept: Floats, residual: Floats) -> Floats:
        """Return the residual of some photos had they been left out together, given that of all, both times W^(1/2)."""
        mean = np.sqrt(self.weight[rows] / len(self.weight))
        block = np.outer(mean, mean) + (self.vectors[rows] * kept) @ self.vectors[rows].T
        return np.asarray(np.linalg.solve((1 + _EPSILON) * np.eye(len(rows)) - block, residual))

    def _turned(self, targets: Floats) -> Floats:
        return np.asarray(self.vectors.T @ (self._root * (targets - self.weight @ targets / len(self.weight))))

    @property
    def _root(self) -> Floats:
        return np.sqrt(self.weight)[:, None]


def best_strengths(ridge: Ridge, groups: Numbers) -> Floats:
    """Return the strengths of the regularisation that left-out photos ask for, of which the regressions are averaged.

    Each photo is left out with its copies alone here: by folds, few photos per class asked for far too much of it. The
    strengths are those from the one with the smallest log loss, at its best temperature, to the largest one that is
    within 2.5 standard errors of it (`best_and_strongest`; results/default/notes.md).
    """
    numbers = ridge.targets.argmax(axis=1)
    losses = []
    for answers in ridge.left_out_by(STRENGTHS, groups):
        asked = ~np.isnan(answers[:, 0])
        if not asked.any():
            return np.array([DEFAULT_STRENGTH])
        answers, expected = answers[asked], numbers[asked]
        some = slice(None, None, -(-answers.size // _MOST_TO_COMPARE))
        probability = softmax(answers / fit_temperature(answers[some], expected[some]))
        losses.append(log_losses(probability, expected) * ridge.weight[asked])
    best, largest = best_and_strongest(np.stack(losses), len(np.unique(groups[asked])))
    return STRENGTHS[best : largest + 1]


def centred(gram: Floats, weight: Floats) -> Floats:
    """Return the products of photos less their weighted mean."""
    mean = gram @ weight / weight.sum()
    return np.asarray(gram - mean[:, None] - mean + weight @ mean / weight.sum())


def folds_of(numbers: Numbers, groups: Numbers) -> Numbers:
    """Return the fold of each photo: photos of one fold are left out together.

    A fold holds one group of copies of every class, as far as its groups go, so that leaving it out takes about the
    same share of every class. A photo left out alone would face classes that all have one photo more: with two photos
    per class of Scene-15, 49 % of such answers were right where 79 % were right for new photos, and 70 % by folds (with
    five, 81, 87 and 86 %). There are as many folds as the rarest class has groups, and ten if another class has as
    many.
    """
    leaders = np.unique(groups, return_index=True)[1]
    order = np.random.default_rng(0).permutation(leaders)
    counts = np.bincount(numbers[leaders])
    least = int(counts[counts > 1].min(initial=len(numbers)))
    folds = max(2, min(int(counts.max()), max(least, _LEAST_FOLDS)))
    fold_of = np.zeros(int(groups.max()) + 1, np.int64)
    start = 0
    for number in np.unique(numbers[leaders]):
        rows = order[numbers[order] == number]
        # The only group of a class is never left out: it has a fold of its own.
        fold_of[groups[rows]] = (start + np.arange(len(rows))) % folds if len(rows) > 1 else folds + number
        start += len(rows)  # so that rare classes are spread over the folds
    return fold_of[groups]


def several(groups: Numbers) -> Iterator[Numbers]:
    """Yield the photos of each group that has more than one."""
    order = np.argsort(groups, kind="stable")
    cuts: Iterable[Numbers] = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    return (rows for rows in cuts if len(rows) > 1)


def may_be_left_out(targets: npt.NDArray[Any], groups: Numbers) -> npt.NDArray[np.bool_]:
    """Return which photos can be left out with their group, so that each of its classes still has a photo."""
    numbers, total = targets.argmax(axis=1), (targets > 0.5).sum(axis=0)
    may = total[numbers] > 1
    for rows in several(groups):
        may[rows] = bool((np.bincount(numbers[rows], minlength=len(total))[numbers[rows]] < total[numbers[rows]]).all())
    return np.asarray(may)
