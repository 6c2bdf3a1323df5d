"""NBNL: Naive Bayes Non-linear Learning.

Prototypes as in SNBNL, learned as ML3 learns them: multiclass hinge loss on single descriptors, by the concave-convex
procedure (CCCP). The loss of a descriptor is a convex function less the score of its own class, which is convex too.
Each round replaces that score by its tangent at the prototypes of the round before, which makes the problem convex, and
solves it by stochastic subgradient steps. The start is a linear SVM.

References
----------
Fornoni, Caputo and Orabona, "Multiclass Latent Locally Linear Support Vector Machines", ACML 2013.
Fornoni and Caputo, "Scene Recognition with Naive Bayes Non-linear Learning", ICPR 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ml3 import hinge_loss, phi_and_gradient
from .base import PrototypeVoter
from .minibatches import TrainingData

_STEPS_BETWEEN = 20  # after so many steps the callback is asked whether to go on: often enough for a budget of seconds
_FEWEST_STEPS = 10  # in a round, with more epochs where the data are few


class NBNL(PrototypeVoter):
    """Votes with a few learned prototypes a class, trained by ML3.

    Slower to train than `SNBNL` and about as accurate; here to compare with.

    Parameters
    ----------
    prototypes : int, default 10
        Prototypes a class.
    q : float, default 3
        As in `SNBNL`; the published ML3 calls it p = 1.5.
    lam : float or None
        Strength of the regulariser, ``lam / 2 ||W||^2``; one over the number of descriptors by default.
    rounds : int, default 30
        Rounds of the concave-convex procedure.
    epochs : int, default 1
        Passes over the data in each round.
    minibatch : int, default 100
        Descriptors a step.
    position_weight, standardise, class_weight, calibration, rejection, block, random_state
        As in `SNBNL`.
    callback : function, optional
        Called after each round with what is known of it, and every few steps with the rounds and steps so far;
        returning True ends the training. A round that is not complete counts only where it is the first.

    Attributes
    ----------
    history_ : list of dict
        Of each round its mean hinge loss and the objective before it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(loc=label, size=(20, 4)) for label in (0, 1) for _ in range(10)]
    >>> voter = NBNL(prototypes=2, rounds=5).fit(bags, ["sea"] * 10 + ["land"] * 10)
    >>> voter.predict([np.ones((5, 4))])
    array(['land'], dtype='<U4')
    """

    _whole = {"prototypes": 1, "minibatch": 1, "rounds": 1, "epochs": 1, "block": 1}  # noqa: RUF012
    _ranges = {  # noqa: RUF012
        "q": (1, math.inf),
        "position_weight": (0, 1e12),
        "calibration": (0, 0.9),
        "rejection": (0, 1),
    }

    def __init__(
        self,
        prototypes: int = 10,
        *,
        q: float = 3.0,
        lam: float | None = None,
        rounds: int = 30,
        epochs: int = 1,
        minibatch: int = 100,
        position_weight: float = 1.0,
        standardise: bool = True,
        class_weight: Any = None,
        calibration: float = 0.0,
        rejection: float = 0.05,
        block: int = 400_000,
        callback: Callable[[dict[str, Any]], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.prototypes = prototypes
        self.q = q
        self.lam = lam
        self.rounds = rounds
        self.epochs = epochs
        self.minibatch = minibatch
        self.position_weight = position_weight
        self.standardise = standardise
        self.class_weight = class_weight
        self.calibration = calibration
        self.rejection = rejection
        self.block = block
        self.callback = callback
        self.random_state = random_state

    def _train(self, data: TrainingData, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.history_ = []
        total = float((data.weight * data.source.sizes).sum())
        lam = 1 / total if self.lam is None else self.lam
        solver = _Solver(data, rng, self.minibatch, self.mean_, self.scale_, lam, self._is_over)
        epochs = max(self.epochs, math.ceil(_FEWEST_STEPS / max(1, round(data.descriptors / self.minibatch))))

        noise = rng.standard_normal((self.prototypes, len(self.classes_), data.dim))
        linear = np.zeros((1, len(self.classes_), data.dim), data.dtype)
        linear, loss = solver.run(linear, 2 * epochs, linear_gradient)
        # All prototypes of a class begin as its linear SVM, so that phi of their equal products is the product itself,
        # with some noise to part them.
        noise *= 0.1 * float(np.abs(linear).mean())
        weights = (linear * self.prototypes ** (-1 / self.q) + noise).astype(data.dtype)
        self.weights_ = weights.copy()

        for index in range(self.rounds):
            tangent = weights.copy()

            def gradient(now: npt.NDArray[Any], x: Any, labels: Any, weight: Any, at: Any = tangent) -> Any:
                return surrogate_gradient(now, at, x, labels, weight, self.q)

            if not solver.ended:
                mean, loss = solver.run(weights, epochs, gradient)
                if not solver.ended or index == 0:
                    self.weights_ = mean  # the average of the last round
            self.history_.append({"round": index + (not solver.ended), "rounds": self.rounds, "loss": loss})
            if solver.ended or (self.callback is not None and self.callback(self.history_[-1]) is True):
                break

    def _is_over(self, steps: int) -> bool:
        told = {"round": len(self.history_), "rounds": self.rounds, "steps": steps}
        return self.callback is not None and self.callback(told) is True

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.lam is not None and (not isinstance(self.lam, (int, float, np.number)) or not 0 < self.lam < math.inf):
            raise ValueError(f"lam of NBNL must be a number above 0 or None, got {self.lam!r}.")


class _Solver:
    """Stochastic subgradient descent on regularised convex problems over the same data, one after the other."""

    def __init__(
        self,
        data: TrainingData,
        rng: np.random.Generator,
        minibatch: int,
        mean: npt.NDArray[Any],
        scale: npt.NDArray[Any],
        lam: float,
        is_over: Callable[[int], bool],
    ) -> None:
        self.data, self.rng, self.minibatch, self.mean, self.scale, self.lam = data, rng, minibatch, mean, scale, lam
        self.is_over, self.ended = is_over, False
        self.step = 0
        self.radius = 0.0  # mean squared length of the descriptors seen

    def run(
        self, weights: npt.NDArray[Any], epochs: int, gradient_of: Callable[..., tuple[float, npt.NDArray[Any]]]
    ) -> tuple[npt.NDArray[Any], float]:
        """Change `weights` in place over some epochs; return their average over the last one, and its mean loss.

        Where `is_over` says so, it ends before: `ended` is then true.
        """
        for _ in range(epochs):
            mean, count, total = np.zeros_like(weights), 0, 0.0
            for x, labels, weight in self.data.minibatches(self.rng, self.minibatch, self.mean, self.scale):
                loss, gradient = gradient_of(weights, x, labels, weight)
                self.radius = self.radius or float(weight @ np.einsum("ij,ij->i", x, x) / weight.sum())
                # As for strongly convex functions, but never longer than the descriptors' own length allows.
                rate = 1 / (self.lam * self.step + self.radius)
                weights *= weights.dtype.type(1 - rate * self.lam)
                weights -= weights.dtype.type(rate) * gradient
                self.step, count, total = self.step + 1, count + 1, total + loss
                mean += (weights - mean) / count
                self.ended = self.step % _STEPS_BETWEEN == 0 and self.is_over(self.step)
                if self.ended:
                    return mean, total / count
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
    tangent: npt.NDArray[Any],
    x: npt.NDArray[Any],
    labels: npt.NDArray[np.int64],
    weight: npt.NDArray[Any],
    q: float,
) -> tuple[float, npt.NDArray[Any]]:
    """Mean hinge loss of a minibatch, and a subgradient of the convex problem whose concave part is fixed at `tangent`.

    The regulariser is left to the caller.
    """
    prototypes, classes, dim = weights.shape
    shape = (prototypes, classes, len(x))
    counts = weight / weight.sum()
    scores, slope = phi_and_gradient((weights.reshape(-1, dim) @ x.T).reshape(shape), q)
    loss, winner = hinge_loss(scores, labels)
    residual = slope * (winner * counts)
    # Minus the tangent of the own class's score: its slope at the prototypes of the round before.
    rows = np.arange(len(x))
    before = (tangent.reshape(-1, dim) @ x.T).reshape(shape)[:, labels, rows]
    _, own_slope = phi_and_gradient(before, q)
    residual[:, labels, rows] -= own_slope * counts
    gradient = (residual.reshape(-1, len(x)) @ x).reshape(weights.shape)
    return float(np.dot(loss, counts)), gradient
