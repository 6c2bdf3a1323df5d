"""What holds for every voter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from patchvote import NBNL, NBNN, SNBNL, Adapted, Bags, LocalNBNN, MomentRidge
from patchvote.voters.votes import NONE

# Lengths tell the classes of `make_bags` apart as well as directions do, so the local voter keeps them.
VOTERS = [NBNN(), LocalNBNN(normalise=False), NBNL(max_iter=5).set_options(calibration=0.2), SNBNL(), MomentRidge()]
each_voter = pytest.mark.parametrize("voter", VOTERS, ids=lambda voter: type(voter).__name__)


def expected_failures(estimator) -> dict[str, str]:
    equivalence = "check_sample_weight_equivalence_on_dense_data"
    if isinstance(estimator, (NBNN, LocalNBNN)):
        return {equivalence: "an image is remembered or not: one that is given twice has two neighbours to offer"}
    if isinstance(estimator, MomentRidge):
        return {equivalence: "the left-out images by which it chooses alpha are counted, whatever they weigh"}
    return {}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [NBNN(), LocalNBNN(), NBNL(), SNBNL(), MomentRidge(), Adapted()], expected_failed_checks=expected_failures
)
def test_scikit_learn_contract(estimator, check):
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


@pytest.fixture(scope="module")
def data():
    train, labels = make_bags(seed=1)
    test, expected = make_bags(seed=2)
    return train, labels, test, expected


@each_voter
def test_bags_are_named_rightly(voter, data):
    train, labels, test, expected = data
    fitted = clone(voter).fit(train, labels)
    assert fitted.score(test, expected) > 0.9
    assert fitted.classes_.tolist() == ["land", "sea", "sky"]


@each_voter
def test_decision_values_are_the_mean_votes_and_probabilities_sum_to_one(voter, data):
    train, labels, test, _ = data
    fitted = clone(voter).fit(train, labels)
    votes = fitted.votes(test)
    bags = Bags.of(test)
    assert votes.shape == (len(bags.values), 3)
    np.testing.assert_allclose(fitted.decision_function(test), bags.means(votes), rtol=1e-6, atol=1e-6)
    probability = fitted.predict_proba(test)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert (fitted.classes_[probability.argmax(axis=1)] == fitted.predict(test)).all()


@each_voter
def test_a_list_an_object_array_and_bags_are_the_same(voter, data):
    train, labels, test, _ = data
    expected = clone(voter).fit(train, labels).decision_function(test)
    packed = np.empty(len(train), dtype=object)
    packed[:] = train
    for source in (Bags.of(train), packed, [Bags.of([bag]) for bag in train]):
        np.testing.assert_allclose(
            clone(voter).fit(source, labels).decision_function(Bags.of(test)), expected, rtol=1e-6
        )


@each_voter
def test_order_of_patches_does_not_matter_to_a_vote(voter, data):
    train, labels, test, _ = data
    fitted = clone(voter).fit(train, labels)
    turned = [bag[::-1] for bag in test]
    np.testing.assert_allclose(fitted.decision_function(turned), fitted.decision_function(test), rtol=1e-6, atol=1e-6)


@each_voter
def test_a_bag_doubled_within_itself_has_the_same_decision(voter, data):
    train, labels, test, _ = data
    fitted = clone(voter).fit(train, labels)
    doubled = [np.concatenate([bag, bag]) for bag in test]
    np.testing.assert_allclose(fitted.decision_function(doubled), fitted.decision_function(test), rtol=1e-5, atol=1e-8)


@each_voter
def test_chunks_do_not_show(voter, data, monkeypatch):
    train, labels, test, _ = data
    fitted = clone(voter).fit(train, labels)
    expected = fitted.decision_function(test)
    monkeypatch.setattr("patchvote.voters.votes._CHUNK", 7)
    np.testing.assert_allclose(fitted.decision_function(test), expected, rtol=1e-6)


@each_voter
def test_two_classes_have_one_decision_value(voter):
    bags, labels = make_bags(classes=2)
    fitted = clone(voter).fit(bags, labels)
    decision = fitted.decision_function(bags)
    assert decision.shape == (len(bags),)
    assert (fitted.classes_[(decision > 0).astype(int)] == fitted.predict(bags)).all()


@each_voter
def test_the_same_seed_gives_the_same_voter(voter, data):
    train, labels, test, _ = data
    first, second = (clone(voter).fit(train, labels).decision_function(test) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@each_voter
def test_scikit_learns_tools_take_lists_of_bags(voter, data):
    train, labels, test, expected = data
    assert cross_val_score(clone(voter), train, labels, cv=3).mean() > 0.85
    calibrated = CalibratedClassifierCV(clone(voter), cv=3).fit(train, labels)
    assert calibrated.score(test, expected) > 0.85
    halve = FunctionTransformer(lambda bags: [bag / 2 for bag in bags])
    assert make_pipeline(halve, clone(voter)).fit(train, labels).score(test, expected) > 0.85


@each_voter
def test_what_no_class_explains_is_none_of_these(voter, data):
    _, _, test, expected = data
    fitted = clone(voter).fit(*make_bags(400, seed=3))
    named = fitted.predict_or_none(test)
    assert (named == expected).mean() > 0.8
    rng = np.random.default_rng(5)
    strange = [rng.normal(size=(20, 8)) for _ in range(40)]  # clutter only
    assert (fitted.predict_or_none(strange) == NONE).mean() > 0.5
    assert None in fitted.predict_or_none(strange, none=None)


@each_voter
def test_one_huge_bag_beside_a_tiny_one(voter, data):
    train, labels, test, _ = data
    fitted = clone(voter).fit(train, labels)
    huge = np.tile(test[0], (100_000 // len(test[0]) + 1, 1))[:100_000]
    pair = fitted.decision_function([huge, test[1][:1]])
    assert np.isfinite(pair).all()
    np.testing.assert_allclose(pair[0], fitted.decision_function([huge[: len(huge) // 2]])[0], rtol=1e-2)


@each_voter
@pytest.mark.parametrize(
    ("bags", "labels", "says"),
    [
        (
            [np.ones((2, 3)), np.array([[1, np.nan, 1]])],
            ["a", "b"],
            r"bag 1 has a descriptor \(number 0\) with NaN or infinity",
        ),
        ([np.ones((2, 3)), np.array([[1, 1, 1], [1, np.inf, 1]])], ["a", "b"], r"bag 1 .*number 1.*NaN or infinity"),
        ([np.ones((2, 3)), np.ones((0, 3))], ["a", "b"], "bag 1 is empty"),
        ([np.ones((2, 3)), np.ones((2, 4))], ["a", "b"], "bag 1 has 4 features per descriptor, bag 0 has 3"),
        ([np.ones((2, 3))] * 2, ["a", "a"], "at least two classes, got one class"),
        ([np.ones((2, 3))], ["a"], "at least two classes"),
        ([np.ones((2, 3))] * 2, ["a", 1], "labels must be all of one type|mixed|unknown"),
        ([np.ones((2, 3))] * 2, ["a", "b", "c"], "inconsistent numbers of samples"),
        ([np.array([["x", "y"]])] * 2, ["a", "b"], "must be numbers"),
        ([np.ones((2, 3))] * 2, None, "requires y"),
        ([], [], "0 sample|empty|no bags"),
    ],
)
def test_bad_bags_and_labels_are_named(voter, bags, labels, says):
    if labels == ["a", 1]:
        labels = np.array(labels, dtype=object)
    with pytest.raises((ValueError, TypeError), match=says):
        clone(voter).fit(bags, labels)


@each_voter
def test_bags_of_another_network_are_refused(voter, data):
    train, labels, _, _ = data
    fitted = clone(voter).fit(train, labels)
    with pytest.raises(ValueError, match="bags have 9 features per descriptor, but .* is expecting 8 features"):
        fitted.predict([np.ones((2, 9))])


@each_voter
def test_whole_numbers_and_half_precision_are_taken(voter, data):
    train, labels, test, expected = data
    half = [bag.astype(np.float16) for bag in train]
    assert clone(voter).fit(half, labels).score([bag.astype(np.float16) for bag in test], expected) > 0.85
    whole = [(bag * 20).astype(np.int16) for bag in train]
    assert clone(voter).fit(whole, labels).score([(bag * 20).astype(np.int16) for bag in test], expected) > 0.85


def test_grid_search_chooses_settings_over_bags(data):
    train, labels, test, expected = data
    search = GridSearchCV(SNBNL().set_options(calibration=0), {"n_prototypes": [1, 3], "q": [2, math.inf]}, cv=2).fit(
        train, labels
    )
    assert search.best_estimator_.score(test, expected) > 0.85
