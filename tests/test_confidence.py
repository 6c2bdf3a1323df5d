"""The vote of a part counts for what the part knows, and the shares of all parts still add up to the score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from patchvote import NBNL, NBNN, SNBNL, Bags, LocalNBNN
from patchvote.voters.votes import part_weights, raised, resolved, scaled

VOTERS = [SNBNL(n_prototypes=3), NBNL(n_prototypes=2, max_iter=3), NBNN(), LocalNBNN(n_neighbors=4)]


def make_bags(seed: int = 0) -> tuple[list[np.ndarray], list[str]]:
    rng = np.random.default_rng(seed)
    bags, labels = [], []
    for number, label in enumerate("abc"):
        for _ in range(6):
            own = rng.random((rng.integers(3, 9), 5)) + 2 * np.eye(5)[number]
            bags.append(np.vstack([own, rng.random((4, 5))]))  # parts of the class, and parts that say nothing
            labels.append(label)
    return bags, labels


def by_definition(votes: np.ndarray, exponent: float) -> np.ndarray:
    """Weighted mean of the votes of one bag, part by part."""
    total, weights = np.zeros(votes.shape[1]), 0.0
    for vote in votes:
        first, second = sorted(vote, reverse=True)[:2]
        total += (first - second) ** exponent * vote
        weights += (first - second) ** exponent
    return total / weights if weights > 0 else votes.mean(axis=0)


@pytest.mark.parametrize("voter", VOTERS, ids=lambda voter: type(voter).__name__)
@pytest.mark.parametrize("exponent", [0.5, 2.0])
def test_scores_are_the_weighted_means_of_the_definition(voter, exponent):
    bags, labels = make_bags()
    plain = voter.set_params(confidence=0).fit(bags, labels)
    votes = [plain.votes([bag]) for bag in bags]
    weighted = voter.set_params(confidence=exponent).fit(bags, labels)
    expected = np.array([by_definition(one.astype(np.float64), exponent) for one in votes])
    np.testing.assert_allclose(weighted.decision_function(bags), expected, rtol=1e-4, atol=1e-5)
    shares = [weighted.votes([bag]).mean(axis=0, dtype=np.float64) for bag in bags]
    np.testing.assert_allclose(shares, expected, rtol=1e-4, atol=1e-5)


def test_a_part_that_cannot_decide_counts_nothing_and_a_bag_of_such_parts_counts_equally():
    votes = np.array([[3.0, 3.0, 1.0], [4.0, 0.0, 0.0]])
    assert part_weights(votes, 0.5).tolist() == [0.0, 2.0]
    assert part_weights(votes, 0.0).tolist() == [1.0, 1.0]
    assert scaled(np.zeros(3), np.array([0, 3])).tolist() == [1.0, 1.0, 1.0]


@settings(deadline=None, max_examples=50)
@given(arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(2, 5)), elements=st.floats(-10, 10, width=32)))
def test_weights_have_a_mean_of_1_and_do_not_depend_on_a_common_shift(votes):
    offsets = np.array([0, len(votes)])
    weights = scaled(part_weights(votes, 0.5), offsets)
    assert weights.mean() == pytest.approx(1)
    assert (weights >= 0).all()
    shifted = scaled(part_weights(votes + 1000.0, 0.5), offsets)
    leads = np.diff(np.sort(votes, axis=1)[:, -2:], axis=1)
    if leads.min() > 1e-3:
        np.testing.assert_allclose(shifted, weights, rtol=1e-3)


def test_roots_are_taken_of_features_and_never_of_positions():
    rng = np.random.default_rng(0)
    values = rng.gamma(0.3, 1.0, (60, 4)).astype(np.float32)
    boxes = np.tile(np.array([0.0, 0.0, 0.5, 0.25], np.float32), (60, 1))
    boxes[::2] = [0.5, 0.5, 1.0, 1.0]
    offsets, level = np.arange(0, 61, 5), np.zeros(60, np.int16)
    labels = ["a", "b"] * 6
    raw, roots = Bags(values, offsets, boxes, level), Bags(np.sqrt(values), offsets, boxes, level)
    voter = SNBNL(2, confidence=0)
    inside = voter.set_params(power=0.5).fit(raw, labels).decision_function(raw)
    outside = voter.set_params(power=1.0).fit(roots, labels).decision_function(roots)
    np.testing.assert_allclose(inside, outside, rtol=1e-4, atol=1e-6)


def test_auto_takes_roots_of_features_that_are_never_negative_and_the_callers_descriptors_stay():
    bags, labels = make_bags()
    before = [bag.copy() for bag in bags]
    for voter in VOTERS[:2]:
        assert voter.set_params(power="auto").fit(bags, labels).power_ == 0.5
        voter.predict(bags)
        assert voter.fit([bag - 1 for bag in bags], labels).power_ == 1.0
    for bag, kept in zip(bags, before, strict=True):
        np.testing.assert_array_equal(bag, kept)
    assert resolved(0.3, negative=True) == 0.3
    np.testing.assert_allclose(raised(np.array([-8.0, 27.0]), 1 / 3), [-2, 3])
