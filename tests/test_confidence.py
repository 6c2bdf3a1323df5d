"""The vote of a part counts for what the part knows, and the shares of all parts still add up to the score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from patchvote import NBNL, NBNN, SNBNL, Bags, LocalNBNN
from patchvote.voters.votes import part_weights, raised, resolved, scaled
from test_voters import make_bags

VOTERS = [SNBNL(n_prototypes=3), NBNL(n_prototypes=2, max_iter=3), NBNN(), LocalNBNN(n_neighbors=4)]
BAGS, LABELS = make_bags(18)


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
    plain = voter.set_params(confidence=0).fit(BAGS, LABELS)
    votes = [plain.votes([bag]) for bag in BAGS]
    weighted = voter.set_params(confidence=exponent).fit(BAGS, LABELS)
    expected = np.array([by_definition(one.astype(np.float64), exponent) for one in votes])
    np.testing.assert_allclose(weighted.decision_function(BAGS), expected, rtol=1e-4, atol=1e-5)
    shares = [weighted.votes([bag]).mean(axis=0, dtype=np.float64) for bag in BAGS]
    np.testing.assert_allclose(shares, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=50)
@given(arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(2, 5)), elements=st.floats(-10, 10, width=32)))
def test_weights_have_a_mean_of_1_and_parts_that_cannot_decide_the_weight_0(votes):
    weights = scaled(part_weights(votes, 0.5), np.array([0, len(votes)]))
    assert weights.mean() == pytest.approx(1)
    assert (weights >= 0).all()
    assert part_weights(np.array([[3.0, 3.0, 1.0], [4.0, 0.0, 0.0]]), 0.5).tolist() == [0.0, 2.0]
    assert part_weights(votes, 0.0).tolist() == [1.0] * len(votes)
    assert scaled(np.zeros(3), np.array([0, 3])).tolist() == [1.0, 1.0, 1.0]


def test_roots_are_taken_of_features_and_never_of_positions_and_not_of_the_callers_arrays():
    values = np.random.default_rng(0).gamma(0.3, 1.0, (60, 4)).astype(np.float32)
    boxes = np.tile(np.array([0.0, 0.0, 0.5, 0.25], np.float32), (60, 1))
    boxes[::2] = [0.5, 0.5, 1.0, 1.0]
    offsets, labels, before = np.arange(0, 61, 5), ["a", "b"] * 6, values.copy()
    raw, roots = Bags(values, offsets, boxes), Bags(np.sqrt(values), offsets, boxes)
    inside = SNBNL(2, power="auto").fit(raw, labels)
    outside = SNBNL(2).fit(roots, labels)
    np.testing.assert_allclose(inside.decision_function(raw), outside.decision_function(roots), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(raw.values, before)
    assert (inside.power_, SNBNL(2, power="auto").fit(BAGS, LABELS).power_) == (0.5, 1.0)  # some features are negative
    assert resolved(0.3, negative=True) == 0.3
    np.testing.assert_allclose(raised(np.array([-8.0, 27.0]), 1 / 3), [-2, 3])
