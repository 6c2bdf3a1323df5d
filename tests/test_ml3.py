from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from patchvote.voters.ml3 import hinge_loss, minibatch_gradient, phi, phi_and_gradient, softmax_loss

QS = [1, 1.5, 2, 3, 7.5, math.inf]
scores = arrays(np.float64, (4, 3), elements=st.floats(-50, 50).filter(lambda x: x == 0 or abs(x) > 1e-3))


def by_definition(z: np.ndarray, q: float) -> float:
    """||[z]_+||_q of one descriptor and class, written out."""
    positive = [max(float(x), 0.0) for x in z]
    return max(positive) if q == math.inf else sum(x**q for x in positive) ** (1 / q)


@given(scores, st.sampled_from(QS))
def test_phi_is_the_norm_of_the_positive_part(z, q):
    expected = [by_definition(z[:, column], q) for column in range(z.shape[1])]
    np.testing.assert_allclose(phi(z, q), expected, rtol=1e-9, atol=1e-12)


@given(scores, st.sampled_from(QS), st.floats(0.1, 10))
def test_phi_scales_with_its_argument_and_its_gradient_does_not(z, q, factor):
    np.testing.assert_allclose(phi(factor * z, q), factor * phi(z, q), rtol=1e-9)
    np.testing.assert_allclose(phi_and_gradient(factor * z, q)[1], phi_and_gradient(z, q)[1], rtol=1e-7, atol=1e-12)


@given(scores, st.sampled_from(QS))
def test_the_gradient_times_the_argument_is_phi(z, q):
    # Euler's theorem for functions of degree one; it holds at every point where phi is differentiable, and at 0.
    value, gradient = phi_and_gradient(z, q)
    np.testing.assert_allclose((gradient * z).sum(axis=0), value, rtol=1e-7, atol=1e-9)


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


def test_q_to_infinity_is_the_largest():
    z = np.random.default_rng(0).normal(size=(5, 7))
    np.testing.assert_allclose(phi(z, 400.0), phi(z, math.inf), rtol=1e-2)


def test_one_prototype_is_a_rectified_linear_function():
    z = np.random.default_rng(0).normal(size=(1, 50))
    for q in QS:
        np.testing.assert_allclose(phi(z, q), np.maximum(z[0], 0), rtol=1e-6)


@pytest.mark.parametrize("q", QS)
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


def test_a_high_q_does_not_overflow():
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


def test_the_softmax_loss_of_huge_scores_is_finite():
    loss, residual = softmax_loss(np.array([[1e30], [-1e30]], dtype=np.float32), np.array([0]))
    assert loss[0] == 0
    assert np.isfinite(residual).all()


def test_every_descriptor_has_its_own_loss_however_large_the_scores_of_others_are():
    loss, residual = softmax_loss(np.array([[1e4, 2.0, -1e4], [0.0, 1.0, -1e4]]), np.array([0, 1, 1]))
    np.testing.assert_allclose(loss, [0, np.log(1 + np.e), np.log(2)])
    np.testing.assert_allclose(residual[:, 1], [1 / (1 + 1 / np.e), 1 / (1 + np.e) - 1])


def test_the_hinge_loss_names_the_class_that_decides_it():
    scores = np.array([[3.0, 1.0, 2.0], [1.5, 1.5, 2.0], [2.5, -1.0, 2.0]], dtype=np.float32)
    loss, winner = hinge_loss(scores, np.array([0, 0, 1]))
    assert loss.tolist() == [0.5, 1.5, 1.0]  # the largest of 1 + s_r over the others, less s_y
    assert winner.T.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]  # of equals, the first
    assert loss.dtype == winner.dtype == np.float32


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("q", QS)
def test_the_memory_of_the_products_is_used_only_where_it_may_be_and_the_result_is_the_same(q, library):
    of = np.asarray if library == "numpy" else pytest.importorskip("torch").asarray
    rng = np.random.default_rng(2)
    before, labels, weight = rng.normal(size=(3, 4, 6)), of(rng.integers(0, 4, 6)), of(rng.random(6))
    z, spare = of(before.copy()), of(before.copy())
    loss, residual = minibatch_gradient(z, labels, weight, q)
    np.testing.assert_array_equal(z, before)
    same_loss, same_residual = minibatch_gradient(spare, labels, weight, q, overwrite=True)
    np.testing.assert_allclose(same_loss, loss, rtol=1e-12)
    np.testing.assert_allclose(same_residual, residual, rtol=1e-12)
    if q == 2 and library == "numpy":
        assert np.shares_memory(same_residual, spare)


@pytest.mark.parametrize("q", QS)
def test_the_gradient_of_a_minibatch_is_the_weighted_product_of_both_derivatives(q):
    rng = np.random.default_rng(3)
    z, labels, weight = rng.normal(size=(3, 4, 6)), rng.integers(0, 4, 6), rng.random(6)
    z[:, 1, 2] = -1  # a class with the score 0, which has no slope
    scores, slope = phi_and_gradient(z, q)
    loss, difference = softmax_loss(scores, labels)
    found_loss, residual = minibatch_gradient(z, labels, weight, q)
    np.testing.assert_array_equal(found_loss, loss)
    np.testing.assert_allclose(residual, slope * difference * weight, rtol=1e-12)
    assert (residual[:, 1, 2] == 0).all()


def test_of_equally_large_products_the_first_has_the_slope():
    _, gradient = phi_and_gradient(np.array([[1.0, -1.0], [2.0, -1.0], [2.0, -2.0]]), math.inf)
    assert gradient.tolist() == [[0, 0], [1, 0], [0, 0]]


@pytest.mark.parametrize("q", QS)
def test_torch_tensors_go_through_the_same_lines_and_autograd_agrees(q):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    z, labels, weight = rng.normal(size=(3, 4, 6)), rng.integers(0, 4, 6), rng.random(6)
    loss, residual = minibatch_gradient(z, labels, weight, q)
    tensor = torch.tensor(z, requires_grad=True)
    values, numbers, weights = phi(tensor, q), torch.tensor(labels), torch.tensor(weight)
    torch_loss, _ = softmax_loss(values, numbers)
    (torch_loss * weights).sum().backward()
    np.testing.assert_allclose(torch_loss.detach().numpy(), loss, rtol=1e-9)
    np.testing.assert_allclose(tensor.grad.numpy(), residual, atol=1e-9)
    _, by_hand = minibatch_gradient(torch.tensor(z), numbers, weights, q)
    np.testing.assert_allclose(by_hand.numpy(), residual, atol=1e-12)
