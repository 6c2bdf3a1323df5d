"""What holds for every voter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from patchvote import NBNL, NBNN, SNBNL, Bags, LocalNBNN, MomentRidge
from patchvote.voters.votes import NONE, part_weights, raised, resolved, scaled

# Lengths tell the classes of `make_bags` apart as well as directions do, so the local voter keeps them.
VOTERS = [NBNN(), LocalNBNN(normalise=False), NBNL(max_iter=5), SNBNL(), MomentRidge()]
each_voter = pytest.mark.parametrize("voter", VOTERS, ids=lambda voter: type(voter).__name__)


def expected_failures(estimator) -> dict[str, str]:
    equivalence = "check_sample_weight_equivalence_on_dense_data"
    if isinstance(estimator, NBNN):
        return {equivalence: "an image is remembered or not: one that is given twice has two neighbours to offer"}
    if isinstance(estimator, MomentRidge):
        return {equivalence: "the left-out images by which it chooses alpha are counted, whatever they weigh"}
    return {}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [NBNN(), NBNL(max_iter=5), SNBNL(), MomentRidge()],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check, monkeypatch):
    monkeypatch.setattr("patchvote.voters.nbnl._FEWEST_STEPS", 2)  # one of the checks asks for 1,000 rounds
    monkeypatch.setattr(SNBNL, "min_steps", 30)
    check(estimator)


def make_bags(count: int = 60, classes: int = 3, dim: int = 8, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Images of classes that differ in half of their descriptors; the rest is common clutter."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, dim)) * 3
    labels = np.arange(count) % classes
    bags = []
    for label in labels:
        size = int(rng.integers(6, 30))
        bag = rng.normal(size=(size, dim))
        bag[: size // 2 + 1] += centres[label]
        bags.append(bag)
    return bags, np.array(["land", "sea", "sky", "town"])[labels]


TRAIN, LABELS = make_bags(seed=1)
TEST, EXPECTED = make_bags(seed=2)


@pytest.fixture(scope="module")
def fitted():
    return {type(voter): clone(voter).fit(TRAIN, LABELS) for voter in VOTERS}


@each_voter
def test_bags_are_named_rightly_by_their_mean_votes(voter, fitted):
    one = fitted[type(voter)]
    assert one.score(TEST, EXPECTED) > 0.9
    assert one.classes_.tolist() == ["land", "sea", "sky"]
    votes, bags = one.votes(TEST), Bags.of(TEST)
    assert votes.shape == (len(bags.values), 3)
    np.testing.assert_allclose(one.decision_function(TEST), bags.means(votes), rtol=1e-6, atol=1e-6)
    probability = one.predict_proba(TEST)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert (one.classes_[probability.argmax(axis=1)] == one.predict(TEST)).all()


@each_voter
def test_order_number_and_chunks_of_patches_do_not_matter(voter, fitted, monkeypatch):
    one = fitted[type(voter)]
    expected = one.decision_function(TEST)
    turned, doubled = [bag[::-1] for bag in TEST], [np.concatenate([bag, bag]) for bag in TEST]
    np.testing.assert_allclose(one.decision_function(turned), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(one.decision_function(doubled), expected, rtol=1e-5, atol=1e-8)
    monkeypatch.setattr("patchvote.voters.votes._CHUNK", 7)
    np.testing.assert_allclose(one.decision_function(TEST), expected, rtol=1e-6)


@each_voter
def test_lists_object_arrays_and_bags_are_the_same_and_a_seed_fixes_the_training(voter, fitted):
    expected = fitted[type(voter)].decision_function(TEST)
    packed = np.empty(len(TRAIN), dtype=object)
    packed[:] = TRAIN
    np.testing.assert_array_equal(clone(voter).fit(packed, LABELS).decision_function(TEST), expected)
    for source in (Bags.of(TRAIN), [Bags.of([bag]) for bag in TRAIN]):
        again = clone(voter).fit(source, LABELS).decision_function(Bags.of(TEST))
        np.testing.assert_allclose(again, expected, rtol=1e-6)


def test_what_no_class_explains_is_none_of_these():
    many = MomentRidge().fit(*make_bags(400, seed=3))
    assert (many.predict_or_none(TEST) == EXPECTED).mean() > 0.8
    rng = np.random.default_rng(5)
    strange = [rng.normal(size=(20, 8)) for _ in range(40)]  # clutter only
    assert (many.predict_or_none(strange) == NONE).mean() > 0.5
    assert None in many.predict_or_none(strange, none=None)


@each_voter
def test_rectified_and_signed_features_are_as_good(voter, fitted):
    before = fitted[type(voter)].predict(TEST)
    for shift in (20.0, -20.0, np.linspace(-3, 2, 8)):
        train, test = ([bag + shift for bag in bags] for bags in (TRAIN, TEST))
        found = clone(voter).fit(train, LABELS).predict(test)
        assert np.mean(found == EXPECTED) > 0.85
        if not isinstance(voter, MomentRidge):  # all others subtract the mean of the training descriptors first
            assert np.mean(found == before) > 0.97


@each_voter
def test_scikit_learns_tools_take_lists_of_bags(voter):
    assert cross_val_score(clone(voter), TRAIN, LABELS, cv=2).mean() > 0.85
    assert CalibratedClassifierCV(clone(voter), cv=2).fit(TRAIN, LABELS).score(TEST, EXPECTED) > 0.85
    halve = FunctionTransformer(lambda bags: [bag / 2 for bag in bags])
    assert make_pipeline(halve, clone(voter)).fit(TRAIN, LABELS).score(TEST, EXPECTED) > 0.85


@each_voter
@pytest.mark.parametrize(
    ("bags", "labels", "says"),
    [
        ([np.ones((2, 3)), np.array([[1, 1, 1], [1, np.inf, 1]])], ["a", "b"], "bag 1 .*number 1"),
        ([np.ones((2, 3)), np.ones((0, 3))], ["a", "b"], "bag 1 is empty"),
        ([np.ones((2, 3)), np.ones((2, 4))], ["a", "b"], "bag 1 has 4 features"),
        ([np.ones((2, 3))] * 2, ["a", "a"], "two classes"),
        ([np.ones((2, 3))] * 2, np.array(["a", 1], object), "labels must be all of one type"),
        ([np.ones((2, 3))] * 2, [None, None], "label"),
        ([np.ones((2, 3))] * 2, ["a", "b", "c"], "inconsistent numbers"),
        ([np.array([["x", "y"]])] * 2, ["a", "b"], "must be numbers"),
        ([np.ones((2, 3))] * 2, None, "requires y"),
        ([], [], "0 sample|empty|no bags"),
    ],
)
def test_bad_bags_and_labels_are_named(voter, bags, labels, says):
    with pytest.raises((ValueError, TypeError), match=says):
        clone(voter).fit(bags, labels)


@pytest.mark.parametrize(
    ("voter", "setting"),
    [
        (SNBNL, ("n_prototypes", 2.5)),
        (SNBNL, ("q", 0.5)),
        (SNBNL, ("alpha", math.nan)),
        (NBNL, ("max_iter", 0)),
        (NBNN, ("search", "fast")),
        (NBNN, ("n_neighbors", 10**6)),
        (MomentRidge, ("alpha", "much")),
        (MomentRidge, ("rejection", 2)),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(voter, setting):
    with pytest.raises(ValueError, match=f"{setting[0]} of {voter.__name__} must|fewer than .* neighbours"):
        voter(**dict([setting])).fit(TRAIN, LABELS)


@each_voter
def test_bags_of_another_network_and_boxes_in_pixels_are_refused(voter, fitted):
    with pytest.raises(ValueError, match="expecting 8 features"):
        fitted[type(voter)].predict([np.ones((2, 9))])
    with pytest.raises(ValueError, match="boxes must be parts of the image"):
        NBNN().fit(Bags(np.ones((2, 3)), [0, 1, 2], [[0, 0, 50, 50]] * 2), ["a", "b"])


# --- the vote of a part counts for what the part knows ---------------------------------------------------------------

FEW, FEW_LABELS = make_bags(18)
WEIGHTED = [SNBNL(n_prototypes=3), NBNL(n_prototypes=2, max_iter=3), NBNN(), LocalNBNN(n_neighbors=4)]


def by_definition(votes: np.ndarray, exponent: float) -> np.ndarray:
    """Weighted mean of the votes of one bag, part by part."""
    total, weights = np.zeros(votes.shape[1]), 0.0
    for vote in votes:
        first, second = sorted(vote, reverse=True)[:2]
        total += (first - second) ** exponent * vote
        weights += (first - second) ** exponent
    return total / weights if weights > 0 else votes.mean(axis=0)


@pytest.mark.parametrize("voter", WEIGHTED, ids=lambda voter: type(voter).__name__)
@pytest.mark.parametrize("exponent", [0.5, 2.0])
def test_scores_are_the_weighted_means_of_the_definition(voter, exponent):
    plain = voter.set_params(confidence=0).fit(FEW, FEW_LABELS)
    votes = [plain.votes([bag]) for bag in FEW]
    weighted = voter.set_params(confidence=exponent).fit(FEW, FEW_LABELS)
    expected = np.array([by_definition(one.astype(np.float64), exponent) for one in votes])
    np.testing.assert_allclose(weighted.decision_function(FEW), expected, rtol=1e-4, atol=1e-5)
    shares = [weighted.votes([bag]).mean(axis=0, dtype=np.float64) for bag in FEW]
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
    assert (inside.power_, SNBNL(2, power="auto").fit(FEW, FEW_LABELS).power_) == (
        0.5,
        1.0,
    )
    assert resolved(0.3, negative=True) == 0.3
    np.testing.assert_allclose(raised(np.array([-8.0, 27.0]), 1 / 3), [-2, 3])
