from __future__ import annotations

import math

import numpy as np
import pytest

from patchvote.voters.stoml3 import Stoml3


def literal_pseudocode(
    start: np.ndarray, steps: list[tuple[np.ndarray, np.ndarray]], lam: float, q: float, curvature: float = 1.0
) -> np.ndarray:
    """STOML3 as the paper prints it, with its four states, and a minibatch in the place of one example.

    `start` has the shape (classes, prototypes, features). With a curvature L other than 1, the surrogate's quadratic
    term is L/2 ||W - V||^2, so that the running mean of W counts L times.
    """

    def phi(z):
        return max(z.max(), 0.0) if q == math.inf else (np.maximum(z, 0) ** q).sum() ** (1 / q)

    def gradient(z):
        value = phi(z)
        if value == 0:
            return np.zeros_like(z)
        if q == math.inf:
            return np.eye(len(z))[z.argmax()]
        return np.where(z > 0, (np.maximum(z, 0) / value) ** (q - 1), 0)  # where z <= 0, also at q = 1

    w = start.astype(np.float64).copy()
    a, b, mean = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
    for t, (x, y) in enumerate(steps, start=1):
        gamma, rate = 1 - 1 / math.sqrt(t), 1 / math.sqrt(t)
        new_a, new_b = np.zeros_like(w), np.zeros_like(w)
        for descriptor, label in zip(x, y, strict=True):
            s = [w[k] @ descriptor for k in range(len(w))]
            powers = np.exp([phi(z) for z in s])
            for k in range(len(w)):
                new_a[k] += np.outer(powers[k] / powers.sum() * gradient(s[k]), descriptor) / len(x)
                if k == label:
                    new_b[k] += np.outer(gradient(s[k]), descriptor) / len(x)
        a = gamma * a + rate * new_a
        b = gamma * b + rate * new_b
        mean = gamma * mean + rate * w
        w = (curvature * mean - a + b) / (curvature + lam)
    return w


@pytest.mark.parametrize(
    ("q", "lam", "curvature"), [(2, 0.1, 1), (3, 1.0, 1), (1, 0.01, 4), (math.inf, 0.1, 2), (1.5, 0.05, 1)]
)
def test_one_state_gives_the_iterates_of_the_literal_pseudocode(q, lam, curvature):
    rng = np.random.default_rng(0)
    classes, prototypes, dim, size = 3, 4, 6, 5
    start = rng.normal(size=(classes, prototypes, dim)) * 0.5
    steps = [(rng.normal(size=(size, dim)), rng.integers(0, classes, size)) for _ in range(200)]
    learner = Stoml3(start.transpose(1, 0, 2).copy(), q, lam, curvature)
    for x, y in steps:
        learner.step(x, y)
    expected = literal_pseudocode(start, steps, lam, q, curvature).transpose(1, 0, 2)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(learner.weights, expected, atol=1e-5 * scale)


def test_float32_stays_close_to_float64():
    rng = np.random.default_rng(1)
    start = rng.normal(size=(4, 3, 6)) * 0.1
    steps = [(rng.normal(size=(50, 6)), rng.integers(0, 3, 50)) for _ in range(200)]
    both = []
    for dtype in (np.float32, np.float64):
        learner = Stoml3(start.astype(dtype), 2, 0.1, 2.0)
        for x, y in steps:
            learner.step(x.astype(dtype), y)
        both.append(learner.weights)
    assert both[0].dtype == np.float32
    np.testing.assert_allclose(both[0], both[1], atol=1e-5 * np.abs(both[1]).max())


@pytest.mark.parametrize("q", [1.0, 2.0, 3.0, math.inf])
def test_tensors_of_torch_make_the_steps_of_numpy(q):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    start = rng.normal(size=(4, 3, 6))
    steps = [(rng.normal(size=(50, 6)), rng.integers(0, 3, 50), rng.random(50)) for _ in range(20)]
    here, there = Stoml3(start.copy(), q, 0.1, 2.0), Stoml3(torch.tensor(start), q, 0.1, 2.0)
    asked = Stoml3(start.copy(), q, 0.1, 2.0, device="cpu")
    for number, (x, y, weight) in enumerate(steps):
        if number == 10:
            for learner in (here, there, asked):
                learner.begin_mean()
        loss = here.step(x, y, weight)
        assert there.step(torch.tensor(x), torch.tensor(y), torch.tensor(weight)) == pytest.approx(loss)
        assert asked.step(x, y, weight) == pytest.approx(loss)
    for learner in (there, asked):
        np.testing.assert_allclose(learner.weights, here.weights, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(learner.mean, here.mean, rtol=1e-9, atol=1e-12)


def test_blocks_and_threads_do_not_change_the_step(monkeypatch):
    rng = np.random.default_rng(2)
    start = rng.normal(size=(10, 5, 8))
    x, y, weight = rng.normal(size=(1000, 8)), rng.integers(0, 5, 1000), rng.random(1000)
    results = []
    for cache in (1, 1 << 30):
        monkeypatch.setattr("patchvote.voters.stoml3._CACHE_BYTES", cache)
        learner = Stoml3(start.copy(), 2, 0.1)
        loss = learner.step(x, y, weight)
        results.append((loss, learner.weights))
    assert results[0][0] == pytest.approx(results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-12)


def test_a_weight_of_two_is_the_descriptor_twice_and_of_zero_not_at_all():
    rng = np.random.default_rng(3)
    start = rng.normal(size=(2, 3, 4))
    x, y, weight = rng.normal(size=(9, 4)), rng.integers(0, 3, 9), np.array([0, 1, 2] * 3)
    weighted, repeated = Stoml3(start.copy(), 2, 0.1), Stoml3(start.copy(), 2, 0.1)
    assert weighted.step(x, y, weight.astype(float)) == pytest.approx(
        repeated.step(x.repeat(weight, 0), y.repeat(weight))
    )
    np.testing.assert_allclose(weighted.weights, repeated.weights, atol=1e-12)


def test_the_gradient_of_a_joined_minibatch_is_the_mean_of_its_halves():
    # What makes the step data-parallel. At the first step W_1 = (W_0 - G_1) / (1 + lambda), so G is read off it.
    rng = np.random.default_rng(4)
    start = rng.normal(size=(2, 3, 4))
    x, y = rng.normal(size=(10, 4)), rng.integers(0, 3, 10)

    def gradient(rows):
        learner = Stoml3(start.copy(), 2, 0.5)
        learner.step(x[rows], y[rows])
        return start - 1.5 * learner.weights

    np.testing.assert_allclose(gradient(slice(None)), (gradient(slice(5)) + gradient(slice(5, 10))) / 2, atol=1e-12)
