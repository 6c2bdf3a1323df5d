"""NBNL: Naive Bayes Non-linear Learning.

Prototypes as in SNBNL, learned as ML3 learns them: multiclass hinge loss on single descriptors, by the concave-convex
procedure (CCCP). The loss of a descriptor is a convex function less the score of its own class, which is convex too.
Each round replaces that score by its tangent at the prototypes of the previous round, which makes the problem convex,
and solves it by stochastic subgradient steps. The prototypes are initialised by a linear SVM.

References
----------
Fornoni, Caputo and Orabona, "Multiclass Latent Locally Linear Support Vector Machines", ACML 2013.
Fornoni and Caputo, "Scene Recognition with Naive Bayes Non-linear Learning", ICPR 2014.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .minibatches import TrainingData
from .ml3 import hinge_loss, phi_and_gradient
from .prototype_votes import NbnlVotes
from .snbnl import PrototypeVoter

_FEWEST_STEPS = 10  # steps per round; a small training set gets more epochs


@dataclasses.dataclass(eq=False, repr=False)
class NBNL(PrototypeVoter):
    """Votes with a few learned prototypes per class, trained by ML3.

    Slower to train than `SNBNL` and about as accurate; provided for comparison.

    Parameters
    ----------
    n_prototypes : int, default 10
        Prototypes per class.
    q : float, default 3
        Exponent of the score, as in `SNBNL`; the published ML3 calls it p = 1.5.
    alpha : float or None
        Strength of the regulariser, ``alpha / 2 ||W||^2``; by default 1 / (number of descriptors).
    max_iter : int, default 30
        Rounds of the concave-convex procedure.
    batch_size : int, default 100
        Descriptors per step.
    power, position_weight, confidence, class_weight, random_state
        As in `SNBNL`. The callback of `FitOptions` is called after each round.

    Attributes
    ----------
    n_iter_ : int
        Number of rounds begun.
    history_ : list of dict
        Record of each round: its number, the planned number of rounds, and the mean hinge loss of its last epoch.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(loc=label, size=(20, 4)) for label in (0, 1) for _ in range(10)]
    >>> voter = NBNL(n_prototypes=2, max_iter=5).fit(bags, ["sea"] * 10 + ["land"] * 10)
    >>> voter.predict([np.ones((5, 4))])
    array(['land'], dtype='<U4')
    """

    scorer_class = NbnlVotes
    description = "each part of a photo votes by its likeness to learned parts (prototypes) of each class"

    n_prototypes: int = 10
    _: dataclasses.KW_ONLY
    q: float = 3.0
    alpha: float | None = None
    max_iter: int = 30
    batch_size: int = 100
    power: float | str = 1.0
    position_weight: float = 1.0
    confidence: float = 0.0
    class_weight: Any = None
    random_state: Any = 0

    def _train(self, data: TrainingData, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.history_ = []
        total = float((data.weight * data.source.sizes).sum())
        lam = 1 / total if self.alpha is None else self.alpha
        solver = _Solver(data, rng, self.batch_size, lam)
        epochs = math.ceil(_FEWEST_STEPS / data.minibatches_per_pass(self.batch_size))

        noise = rng.standard_normal((self.n_prototypes, len(self.classes_), data.dim))
        linear = np.zeros((1, len(self.classes_), data.dim), data.dtype)
        linear, _ = solver.run(linear, 2 * epochs, linear_gradient)
        # All prototypes of a class start as its linear SVM, scaled so that phi of their equal products is the product
        # itself. Noise makes them different.
        noise *= 0.1 * float(np.abs(linear).mean())
        weights = (linear * self.n_prototypes ** (-1 / self.q) + noise).astype(data.dtype)

        for index in range(self.max_iter):
            tangent = weights.copy()
            gradient = functools.partial(surrogate_gradient, tangent=tangent, q=self.q)
            self.weights_, loss = solver.run(weights, epochs, gradient)  # the average of the last epoch
            self.history_.append({"round": index + 1, "rounds": self.max_iter, "loss": loss})
            self.n_iter_ = index + 1
            if self.options.callback is not None and self.options.callback(self.history_[-1]) is True:
                break


class _Solver:
    """Stochastic subgradient descent on regularised convex problems over the same data, one after the other."""

    def __init__(self, data: TrainingData, rng: np.random.Generator, batch_size: int, alpha: float) -> None:
        self.data, self.rng, self.batch_size, self.alpha = data, rng, batch_size, alpha
        self.step = 0
        self.radius = 0.0  # mean squared length of the descriptors seen

    def run(
        self, weights: npt.NDArray[Any], epochs: int, gradient_of: Callable[..., tuple[float, npt.NDArray[Any]]]
    ) -> tuple[npt.NDArray[Any], float]:
        """Change `weights` in place over some epochs; return their average over the last one, and its mean loss."""
        for _ in range(epochs):
            mean, count, total = np.zeros_like(weights), 0, 0.0
            for x, labels, weight in self.data.minibatches(self.rng, self.batch_size):
                loss, gradient = gradient_of(weights, x, labels, weight)
                self.radius = self.radius or float(weight @ np.einsum("ij,ij->i", x, x) / weight.sum())
                # The rate for strongly convex functions, limited by the length of the descriptors. Where all of them
                # are 0 so far, there is nothing to learn, and any rate will do.
                rate = 1 / (self.alpha * self.step + self.radius or 1.0)
                weights *= weights.dtype.type(1 - rate * self.alpha)
                weights -= weights.dtype.type(rate) * gradient
                self.step, count, total = self.step + 1, count + 1, total + loss
                mean += (weights - mean) / count
        return mean, total / count


def linear_gradient(
    weights: npt.NDArray[Any], x: npt.NDArray[Any], labels: npt.NDArray[np.int64], weight: npt.NDArray[Any]
) -> tuple[float, npt.NDArray[Any]]:
    """Mean hinge loss of a minibatch for a linear multiclass SVM, ``(1, classes, features)``, and a subgradient."""
    counts = weight / weight.sum()
    loss, winner = hinge_loss(weights[0] @ x.T, labels)
    residual = winner * counts
    residual[labels, np.arange(len(x))] -= counts
    return float(np.dot(loss, counts)), (residual @ x)[None]


def surrogate_gradient(
    weights: npt.NDArray[Any],
    x: npt.NDArray[Any],
    labels: npt.NDArray[np.int64],
    weight: npt.NDArray[Any],
    *,
    tangent: npt.NDArray[Any],
    q: float,
) -> tuple[float, npt.NDArray[Any]]:
    """Mean hinge loss of a minibatch, and a subgradient of the convex problem whose concave part is fixed at `tangent`.

    The caller adds the regulariser.
    """
    prototypes, classes, dim = weights.shape
    shape = (prototypes, classes, len(x))
    counts = weight / weight.sum()
    scores, slope = phi_and_gradient((weights.reshape(-1, dim) @ x.T).reshape(shape), q)
    loss, winner = hinge_loss(scores, labels)
    residual = slope * (winner * counts)
    # Minus the tangent of the score of the correct class: its slope at the prototypes of the previous round.
    rows = np.arange(len(x))
    before = (tangent.reshape(-1, dim) @ x.T).reshape(shape)[:, labels, rows]
    _, own_slope = phi_and_gradient(before, q)
    residual[:, labels, rows] -= own_slope * counts
    gradient = (residual.reshape(-1, len(x)) @ x).reshape(weights.shape)
    return float(np.dot(loss, counts)), gradient
