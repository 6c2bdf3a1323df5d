"""What holds for every voter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from patchvote import NBNL, NBNN, SNBNL, Bags, LocalNBNN, MomentRidge
from patchvote.voters.votes import NONE

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


# --- answers ----------------------------------------------------------------------------------------------------------


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


# --- tools of scikit-learn --------------------------------------------------------------------------------------------


@each_voter
def test_scikit_learns_tools_take_lists_of_bags(voter):
    assert cross_val_score(clone(voter), TRAIN, LABELS, cv=2).mean() > 0.85
    assert CalibratedClassifierCV(clone(voter), cv=2).fit(TRAIN, LABELS).score(TEST, EXPECTED) > 0.85
    halve = FunctionTransformer(lambda bags: [bag / 2 for bag in bags])
    assert make_pipeline(halve, clone(voter)).fit(TRAIN, LABELS).score(TEST, EXPECTED) > 0.85


# --- what is refused --------------------------------------------------------------------------------------------------


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
        (SNBNL, ("start", "middle")),
        (NBNL, ("max_iter", 0)),
        (NBNN, ("search", "fast")),
        (NBNN, ("n_neighbors", 0)),
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
