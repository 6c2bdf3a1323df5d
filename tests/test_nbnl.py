from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from patchvote import NBNL
from patchvote.voters.ml3 import hinge_loss, phi
from patchvote.voters.nbnl import surrogate_gradient


def objective(weights: np.ndarray, x: np.ndarray, y: np.ndarray, lam: float, q: float) -> float:
    """lambda/2 ||W||^2 + the mean of [1 + max_(r != y) phi_r - phi_y]_+, written out."""
    total = 0.0
    for descriptor, label in zip(x, y, strict=True):
        scores = [phi((weights[:, k] @ descriptor)[:, None], q)[0] for k in range(weights.shape[1])]
        others = max(score for k, score in enumerate(scores) if k != label)
        total += max(0.0, 1 + others - scores[label])
    return lam / 2 * float((weights**2).sum()) + total / len(x)


def small_problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 30)
    x = rng.normal(size=(30, 4)) + 1.5 * rng.normal(size=(3, 4))[y]
    return x, y, rng.normal(size=(2, 3, 4)) * 0.5


def test_the_hinge_loss_is_the_definition():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(4, 20)) * 2, rng.integers(0, 4, 20)
    loss, winner = hinge_loss(scores, labels)
    for column, label in enumerate(labels):
        s = scores[:, column]
        others = [1 + s[r] for r in range(4) if r != label]
        assert loss[column] == pytest.approx(max(0, max(others) - s[label]))
        assert winner[:, column].sum() == 1
        assert (winner[label, column] == 1) == (s[label] >= max(others))
    loss, winner = hinge_loss(np.array([[1.5], [1.5], [2.5]], np.float32), np.array([0]))
    assert (loss.dtype, winner[:, 0].tolist()) == (np.float32, [0, 0, 1])
    assert hinge_loss(np.array([[1.5], [1.5], [1.5]]), np.array([0]))[1][:, 0].tolist() == [0, 1, 0]  # the first


@pytest.mark.parametrize("q", [1, 2, 3, math.inf])
def test_the_subgradient_is_the_slope_of_the_convex_problem(q):
    x, y, weights = small_problem()
    tangent = weights + 0.1 * np.random.default_rng(5).normal(size=weights.shape)

    def convex_part(w):  # max(1 + max_(r != y) phi_r, phi_y) - <slope of phi_y at the tangent, W_y x>
        total = 0.0
        for descriptor, label in zip(x, y, strict=True):
            scores = [phi((w[:, k] @ descriptor)[:, None], q)[0] + (k != label) for k in range(3)]
            z = tangent[:, label] @ descriptor
            value = phi(z[:, None], q)[0]
            if value == 0:
                slope = np.zeros(2)
            elif q == math.inf:
                slope = np.eye(2)[z.argmax()]
            else:
                slope = np.where(z > 0, (np.maximum(z, 0) / value) ** (q - 1), 0)
            total += max(scores) - slope @ (w[:, label] @ descriptor)
        return total / len(x)

    _, gradient = surrogate_gradient(weights, x, y, np.ones(len(x)), tangent=tangent, q=q)
    rng = np.random.default_rng(1)
    for _ in range(5):
        direction = rng.normal(size=weights.shape)
        slope = (convex_part(weights + 1e-6 * direction) - convex_part(weights - 1e-6 * direction)) / 2e-6
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("q", [2, 3])
def test_the_objective_does_not_rise_over_a_round_solved_exactly(q):
    x, y, weights = small_problem()
    lam, counts = 0.05, np.ones(len(x))
    values = [objective(weights, x, y, lam, q)]
    for _ in range(3):
        tangent = weights.copy()
        z = np.einsum("pid,id->pi", tangent[:, y], x)  # products with the prototypes of the own class
        slope = np.where(z > 0, (np.maximum(z, 0) / np.maximum(phi(z, q), 1e-300)) ** (q - 1), 0)

        def convex(flat, at=tangent, slope=slope):
            w = flat.reshape(at.shape)
            loss, gradient = surrogate_gradient(w, x, y, counts, tangent=at, q=q)
            now = np.einsum("pid,id->pi", w[:, y], x)
            linear = np.mean(phi(now, q) - (slope * now).sum(axis=0))
            return lam / 2 * (w**2).sum() + loss + linear, (gradient + lam * w).ravel()

        solved = minimize(convex, tangent.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500})
        weights = solved.x.reshape(tangent.shape)
        values.append(objective(weights, x, y, lam, q))
    assert all(after <= before + 1e-6 for before, after in itertools.pairwise(values))
    assert values[-1] < values[0]


def test_descriptors_that_are_all_zero_are_learned_from_without_an_error():
    voter = NBNL(2, max_iter=2).fit([np.zeros((5, 3))] * 4, ["sea", "sea", "land", "land"])
    assert np.isfinite(voter.predict_proba([np.zeros((2, 3)), np.ones((2, 3))])).all()
