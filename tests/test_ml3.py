from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from patchvote.voters.ml3 import Stoml3, minibatch_gradient, phi, phi_and_gradient, softmax_loss

QS = [1, 1.5, 2, 3, 7.5, math.inf]
each_q = pytest.mark.parametrize("q", QS)
scores = arrays(np.float64, (4, 3), elements=st.floats(-50, 50).filter(lambda x: x == 0 or abs(x) > 1e-3))


def by_definition(z: np.ndarray, q: float) -> float:
    """||[z]_+||_q of one descriptor and class, written out."""
    positive = [max(float(x), 0.0) for x in z]
    return max(positive) if q == math.inf else sum(x**q for x in positive) ** (1 / q)


@settings(max_examples=60)
@given(scores, st.sampled_from(QS), st.floats(0.1, 10))
def test_phi_is_the_norm_of_the_positive_part_and_scales_with_it(z, q, factor):
    value, gradient = phi_and_gradient(z, q)
    np.testing.assert_allclose(
        value, [by_definition(z[:, column], q) for column in range(z.shape[1])], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_array_equal(phi(z, q), value)
    # Euler's theorem for functions of degree one; it holds at every point where phi is differentiable, and at 0.
    np.testing.assert_allclose((gradient * z).sum(axis=0), value, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(phi(factor * z, q), factor * value, rtol=1e-9)
    np.testing.assert_allclose(phi_and_gradient(factor * z, q)[1], gradient, rtol=1e-7, atol=1e-12)


@settings(max_examples=50)
@given(scores, st.sampled_from(QS))
def test_the_gradient_is_the_slope(z, q):
    z = z + np.linspace(0.01, 0.02, 12).reshape(4, 3)  # no two equal, so that the largest is one
    assume((np.abs(z) >= 1e-3).all())
    _, gradient = phi_and_gradient(z, q)
    for index in np.ndindex(*z.shape):
        step = np.zeros_like(z)
        step[index] = 1e-6
        slope = (phi(z + step, q) - phi(z - step, q))[index[1]] / 2e-6
        assert gradient[index] == pytest.approx(slope, abs=2e-3)


def test_of_equally_large_products_the_first_has_the_slope():
    _, gradient = phi_and_gradient(np.array([[1.0, -1.0], [2.0, -1.0], [2.0, -2.0]]), math.inf)
    assert gradient.tolist() == [[0, 0], [1, 0], [0, 0]]


@each_q
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_nothing_overflows_or_vanishes_in_float32(q, scale):
    z = np.array([[3.0, -1.0, 0.0], [4.0, -2.0, 0.0]], dtype=np.float32) * np.float32(scale)
    value, gradient = phi_and_gradient(z, q)
    assert value.dtype == gradient.dtype == np.float32
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()
    assert value[0] == pytest.approx(scale * by_definition(np.array([3.0, 4.0]), q), rel=1e-5)
    assert (value[1:] == 0).all()
    assert (gradient[:, 1:] == 0).all()
    value, gradient = phi_and_gradient(np.array([[1e4], [9e3]], dtype=np.float32), 1000.0)
    assert value[0] == pytest.approx(1e4, rel=1e-3)
    assert gradient[:, 0].tolist() == pytest.approx([1, 0], abs=1e-3)


def test_the_softmax_loss_is_the_papers():
    rng = np.random.default_rng(0)
    values, labels = rng.normal(size=(4, 9)) * 3, rng.integers(0, 4, 9)
    loss, residual = softmax_loss(values, labels)
    for column, label in enumerate(labels):
        f = values[:, column]
        expected = np.log(1 + sum(np.exp(f[r] - f[label]) for r in range(4) if r != label))
        assert loss[column] == pytest.approx(expected)
        softmax = np.exp(f) / np.exp(f).sum()
        np.testing.assert_allclose(residual[:, column], softmax - np.eye(4)[label])
    # However large the scores of others are, every descriptor has its own finite loss.
    loss, residual = softmax_loss(np.array([[1e4, 2.0, -1e4], [0.0, 1.0, -1e4]]), np.array([0, 1, 1]))
    np.testing.assert_allclose(loss, [0, np.log(1 + np.e), np.log(2)])
    np.testing.assert_allclose(residual[:, 1], [1 / (1 + 1 / np.e), 1 / (1 + np.e) - 1])
    loss, residual = softmax_loss(np.array([[1e30], [-1e30]], dtype=np.float32), np.array([0]))
    assert (loss[0], np.isfinite(residual).all()) == (0, True)


@each_q
def test_the_gradient_of_a_minibatch_is_the_weighted_product_of_both_derivatives_and_that_of_autograd(q):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    z, labels, weight = rng.normal(size=(3, 4, 6)), rng.integers(0, 4, 6), rng.random(6)
    z[:, 1, 2] = -1  # a class with the score 0, which has no slope
    values, slope = phi_and_gradient(z, q)
    loss, difference = softmax_loss(values, labels)
    before, spare = z.copy(), z.copy()
    for of in (np.asarray, torch.asarray):  # the memory of the products is used only where it may be
        for products, way in ((z, {}), (spare.copy(), {"overwrite": True})):
            found_loss, residual = minibatch_gradient(of(products), of(labels), of(weight), q, **way)
            np.testing.assert_allclose(found_loss, loss, rtol=1e-12)
            np.testing.assert_allclose(residual, slope * difference * weight, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(z, before)
    assert (residual[:, 1, 2] == 0).all()

    z[:, 1, 2] = 1, 2, 3  # autograd divides by the score
    _, residual = minibatch_gradient(z, labels, weight, q)
    tensor = torch.tensor(z, requires_grad=True)
    numbers, weights = torch.tensor(labels), torch.tensor(weight)
    (softmax_loss(phi(tensor, q), numbers)[0] * weights).sum().backward()
    np.testing.assert_allclose(tensor.grad.numpy(), residual, atol=1e-9)


# --- STOML3 -----------------------------------------------------------------------------------------------------------


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
    start = rng.normal(size=(3, 4, 6)) * 0.5
    steps = [(rng.normal(size=(5, 6)), rng.integers(0, 3, 5)) for _ in range(200)]
    learners = [Stoml3(start.transpose(1, 0, 2).astype(dtype), q, lam, curvature) for dtype in (np.float64, np.float32)]
    for learner in learners:
        for x, y in steps:
            learner.step(x.astype(learner.weights.dtype), y)
    expected = literal_pseudocode(start, steps, lam, q, curvature).transpose(1, 0, 2)
    np.testing.assert_allclose(learners[0].weights, expected, atol=1e-5 * np.abs(expected).max())
    assert learners[1].weights.dtype == np.float32
    if q == 2:
        np.testing.assert_allclose(learners[1].weights, learners[0].weights, atol=1e-5 * np.abs(expected).max())


class Team:
    """Three workers that compute a gradient each, in this process."""

    size = 3

    def ask(self, shared, own):
        return [Stoml3(shared[0].copy(), shared[1], 0.0).gradient(*part) if len(part[0]) else None for part in own]


@pytest.mark.parametrize("q", [1.0, 2.0, 3.0, math.inf])
def test_torch_and_teams_make_the_steps_of_numpy(q):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    start = rng.normal(size=(4, 3, 6))
    steps = [(rng.normal(size=(50, 6)), rng.integers(0, 3, 50), rng.random(50)) for _ in range(20)]
    here, there = Stoml3(start.copy(), q, 0.1, 2.0), Stoml3(torch.tensor(start), q, 0.1, 2.0)
    asked, parted = Stoml3(start.copy(), q, 0.1, 2.0, device="cpu"), Stoml3(start.copy(), q, 0.1, 2.0)
    parted.team = Team()
    for number, (x, y, weight) in enumerate(steps):
        if number == 10:
            for learner in (here, there, asked, parted):
                learner.begin_mean()
        loss = here.step(x, y, weight)
        assert there.step(torch.tensor(x), torch.tensor(y), torch.tensor(weight)) == pytest.approx(loss)
        assert asked.step(x, y, weight) == pytest.approx(loss)
        assert parted.step(x, y, weight) == pytest.approx(loss)
    for learner in (there, asked, parted):
        np.testing.assert_allclose(learner.weights, here.weights, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(learner.mean, here.mean, rtol=1e-9, atol=1e-12)


def test_blocks_and_threads_do_not_change_the_step(monkeypatch):
    rng = np.random.default_rng(2)
    start = rng.normal(size=(10, 5, 8))
    x, y, weight = rng.normal(size=(1000, 8)), rng.integers(0, 5, 1000), rng.random(1000)
    results = []
    for cache in (1, 1 << 30):
        monkeypatch.setattr("patchvote.voters.ml3._CACHE_BYTES", cache)
        learner = Stoml3(start.copy(), 2, 0.1)
        results.append((learner.step(x, y, weight), learner.weights))
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
