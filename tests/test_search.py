from __future__ import annotations

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchvote.voters.search import (
    FEWEST_TO_BOUND,
    Bank,
    Bounds,
    EvenRotation,
    PcaBank,
    Rotation,
    pair_distances,
    principal_axes,
    recall,
)


def in_order(queries: np.ndarray, bank: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances, in float64, and indices of the k nearest; of equally near ones, the lower index first."""
    distances = ((queries[:, None].astype(np.float64) - bank[None].astype(np.float64)) ** 2).sum(axis=2)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, 1), order


def correlated(rng: np.random.Generator, n: int, dim: int, decay: float) -> np.ndarray:
    """Descriptors whose spread falls along hidden directions, as those of networks do."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(dim, dim)))[0]
    return ((rng.normal(size=(n, dim)) * decay ** np.arange(dim)) @ turn + rng.normal(size=dim)).astype(np.float32)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.integers(1, 5), st.sampled_from([0.9, 0.99, 1.0]), st.sampled_from([0.0, 1.0, 30.0]))
def test_the_search_by_bounds_is_exact(seed, k, decay, spread):
    rng = np.random.default_rng(seed)
    bank, queries = correlated(rng, 2500, 48, decay), correlated(rng, 60, 48, decay)
    bank *= np.exp(spread * rng.normal(size=(2500, 1)) / 10)  # lengths that differ little or much
    bank[7], queries[3] = bank[5], bank[5]  # a tie, and a query that is in the bank
    searched = Bank(bank, EvenRotation(bank[:500]))
    searched.pays = True
    distances, indices = searched.nearest(queries, k)
    expected, _ = in_order(queries, bank, k)
    np.testing.assert_allclose(distances, expected, rtol=1e-4, atol=1e-5 * expected.max())
    np.testing.assert_allclose(
        distances, pair_distances(queries, np.repeat(np.arange(60), k), bank, indices.ravel()).reshape(60, k)
    )
    assert all(len(set(row)) == k for row in indices.tolist())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.sampled_from([0.8, 0.97, 1.0]), st.sampled_from([1e-12, 1.0, 1e6]))
def test_bounds_are_never_above_the_distance(seed, decay, size):
    rng = np.random.default_rng(seed)
    bank, queries = correlated(rng, 300, 96, decay) * size, correlated(rng, 40, 96, decay) * size
    bank[:20] *= np.exp(rng.normal(size=(20, 1)) * 3)  # some are much longer or shorter
    queries[0], queries[1] = bank[0], 0
    bank, queries = bank.astype(np.float32), queries.astype(np.float32)
    rotation = EvenRotation(bank)
    bounds, query = Bounds(bank, rotation), rotation(queries)
    true = ((queries[:, None].astype(np.float64) - bank[None]) ** 2).sum(axis=2)
    most = true + bounds.slack(query)[:, None]
    below = bounds.below(query)
    assert (below + query.whole[:, None] <= most).all()
    row, column = np.divmod(np.arange(below.size), below.shape[1])
    closer = bounds.closer(below.ravel(), query, row, column).reshape(below.shape)
    assert (closer + query.whole[:, None] <= most).all()
    # On average the second bound is the sharper one, or it would be of no use.
    assert closer.mean() >= below.mean()


@pytest.mark.parametrize(("decay", "k", "pays"), [(0.9, 1, True), (0.9, 30, False), (0.995, 1, False), (1.0, 1, False)])
def test_bounds_pay_if_few_features_and_few_candidates_decide(decay, k, pays):
    # The cost of a pair: a product of leading features, passes over the bounds, and what remains to be compared.
    bank, queries = np.split(correlated(np.random.default_rng(0), 1640, 288, decay), [1600])
    searched = Bank(bank, EvenRotation(bank[:800]))
    found = searched.nearest(queries, k)
    assert searched.pays is pays
    for indices in (found[1], searched.nearest(queries, k)[1]):
        np.testing.assert_array_equal(indices, in_order(queries, bank, k)[1])


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("way", ["bounds", "brute force", "brute force in parts"])
def test_of_equally_near_descriptors_those_of_the_lower_index_are_found_in_order(way, k, monkeypatch):
    # Small whole numbers: their distances are exact in every type, and many are equal.
    monkeypatch.setattr("patchvote.voters.search._PAIRS", 1)  # blocks of 16 queries
    if way == "brute force in parts":
        monkeypatch.setattr("patchvote.voters.search._PART", 100)
    rng = np.random.default_rng(0)
    bank = rng.integers(0, 4, (FEWEST_TO_BOUND, 6)).astype(np.float32)
    queries = rng.integers(0, 4, (50, 6)).astype(np.float32)
    searched = Bank(bank, EvenRotation(bank) if way == "bounds" else None)
    searched.pays = way == "bounds"
    distances, indices = searched.nearest(queries, k)
    np.testing.assert_array_equal(np.stack([distances, indices]), np.stack(in_order(queries, bank, k)))
    assert (distances.dtype, indices.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(("centre", "apart"), [(1000, (0.25, 0.5, 0.75)), (30, (0.1, 0.104, 0.108))])
def test_brute_force_tells_apart_three_descriptors_of_which_products_say_too_little(centre, apart, k, monkeypatch):
    monkeypatch.setattr(faiss.cvar, "distance_compute_blas_threshold", 1)  # products even where the search is small
    rng = np.random.default_rng(0)
    bank = (rng.normal(size=(140, 32)) * 20 + centre).astype(np.float32)  # squared lengths of 3e7 and of 4e4
    queries = (rng.normal(size=(30, 32)) * 20 + centre).astype(np.float32)
    for number, query in enumerate(queries):
        bank[3 * number : 3 * number + 3] = query
        bank[3 * number : 3 * number + 3, 0] += rng.permutation(np.float32(apart))
    exact, nearest = in_order(queries, bank, k)
    assert faiss.knn(queries, bank, k)[1].tolist() != nearest.tolist()  # or this test would show nothing
    distances, indices = Bank(bank).nearest(queries, k)
    np.testing.assert_array_equal(indices, nearest)
    np.testing.assert_allclose(distances, exact, rtol=1e-5)


@pytest.mark.parametrize("pays", [None, True, False])
def test_few_descriptors_or_no_queries_are_no_special_case(pays):
    bank = correlated(np.random.default_rng(0), 1600, 32, 0.9)
    searched = Bank(bank, EvenRotation(bank))
    searched.pays = pays
    assert [found.shape for found in searched.nearest(bank[:0], 2)] == [(0, 2), (0, 2)]
    distances, indices = Bank(np.array([[0.0, 0], [3, 4], [1, 0]], np.float32)).nearest(np.zeros((1, 2), np.float32), 3)
    assert (distances.tolist(), indices.tolist()) == ([[0, 1, 25]], [[0, 2, 1]])


def test_the_approximate_bank_gives_true_distances_and_a_measured_recall():
    rng = np.random.default_rng(0)
    bank, queries = correlated(rng, 4000, 64, 0.9), correlated(rng, 200, 64, 0.9)
    made = PcaBank(bank, Rotation(bank, head=16))
    distances, indices = made.nearest(queries, 2)
    rows = np.repeat(np.arange(200), 2)
    np.testing.assert_allclose(distances.ravel(), pair_distances(queries, rows, bank, indices.ravel()))
    found = np.mean(distances[:, 0] <= in_order(queries, bank, 1)[0][:, 0] * (1 + 1e-4))
    assert recall(made, Bank(bank), queries) == pytest.approx(found, abs=0.01)
    assert found > 0.6


def test_principal_axes_are_those_of_the_covariance():
    sample = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * [1, 3, 2] + np.float32([5, -1, 2])
    mean, axes, energy = principal_axes(sample.astype(np.float32))
    np.testing.assert_allclose(mean, sample.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(axes @ np.diag(energy) @ axes.T, 50 * np.cov(sample.T, bias=True), rtol=1e-3, atol=1e-2)
