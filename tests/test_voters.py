"""What holds for every voter."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import (
    NBNL,
    NBNN,
    SNBNL,
    Adapted,
    Bags,
    ImageClassifier,
    LocalNBNN,
    Model,
    MomentRidge,
    PatchvoteError,
    Recipe,
    Store,
    Voter,
)
from patchvote.models.answers import answer_of
from patchvote.models.evidence import evidence_of
from patchvote.models.file import read_model, write_model
from patchvote.models.model import voter_of
from patchvote.voters.moment_votes import MomentVotes
from patchvote.voters.registry import OWN, scorer_class, voter_class
from patchvote.voters.votes import NONE, part_weights, raised, scaled
from test_scale import make_store

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
        ([np.ones((2, 3)), np.array([[1, 1, 1], [1, np.inf, 1]])], ["a", "b"], "bag 1 .*NaN"),
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
    assert inside.power_ == 0.5
    assert [SNBNL(2, power=power).fit(FEW, FEW_LABELS).power_ for power in ("auto", 0.3)] == [1.0, 0.3]
    np.testing.assert_allclose(raised(np.array([-8.0, 27.0]), 1 / 3), [-2, 3])


QUICKLY = {"nbnl": {"max_iter": 2}}
each_kind = pytest.mark.parametrize("kind", OWN)


def made(kind: str, **settings) -> Voter:
    return voter_class(kind)(**{**QUICKLY.get(kind, {}), **settings})


def test_reading_a_model_and_voting_imports_neither_scikit_learn_nor_the_estimators(tmp_path):
    for kind in OWN:
        write_model(model_of(made(kind).fit(TRAIN, LABELS)), tmp_path / kind)
    np.savez(tmp_path / "bags.npz", *TRAIN[:2])
    code = """
import sys, numpy as np
from pathlib import Path
from patchvote import Bags
from patchvote.models.file import read_model
bags = Bags.of(list(np.load(sys.argv[1] + "/bags.npz").values()))
for kind in sys.argv[2:]:
    model = read_model(Path(sys.argv[1]) / kind)
    model.probability(bags[:1])
print("sklearn" in sys.modules, "patchvote.voters.base" in sys.modules)
"""
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path, *OWN], check=True, capture_output=True, text=True
    ).stdout
    assert told.split() == ["False", "False"]


def model_of(voter: Voter) -> Model:
    classes = tuple(str(label) for label in voter.classes_)
    return Model(voter.scorer(), classes, Recipe(), "abc", voter.temperature_, voter.rejection_threshold_)


@each_kind
def test_a_scorer_votes_as_its_estimator_also_from_a_file(kind, tmp_path):
    voter = made(kind).fit(TRAIN, LABELS)
    write_model(model_of(voter), tmp_path / "m")
    model = read_model(tmp_path / "m")
    some = Bags.of(TRAIN[:5])
    np.testing.assert_allclose(model.scorer.votes(some), voter.votes(some), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.scorer.scores(some), voter._mean_votes(some), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.probability(some[:1]), voter.predict_proba(some[:1])[0], atol=1e-5)
    assert scorer_class(kind).kind == voter.kind == kind
    again = voter_of(model)
    assert isinstance(again, type(voter))
    np.testing.assert_array_equal(again.predict(some), voter.predict(some))
    assert json.dumps(again._plain_settings()) == json.dumps(model.scorer.settings)
    before = voter.scorer().votes(some)
    scorer = voter.scorer()
    voter.fit(*make_bags(60, seed=5))
    np.testing.assert_array_equal(scorer.votes(some), before)  # another training leaves it as it was


def test_more_votes_than_fit_in_memory_are_refused_and_answers_need_none_of_them(monkeypatch):
    bag = Bags.of([np.random.default_rng(0).random((2_000, 4), np.float32)])
    classes = tuple(f"{number:06d}" for number in range(30_000))
    arrays = {
        "linear": np.ones((30_000, 17), np.float32),
        "bias": np.zeros(30_000, np.float32),
        "directions": np.ones((4, 1), np.float16),
        "offset": np.zeros(4, np.float16),
    }
    model = Model(MomentVotes(arrays, {}, 30_000), classes, Recipe(), "abc", 1.0, 0.0)
    with pytest.raises(PatchvoteError, match="more than fit in memory"):
        evidence_of(model, "a photo", bag)
    monkeypatch.setattr(MomentVotes, "votes", None)  # the moments of the bag are all that an answer takes
    assert answer_of(model, "a photo", bag).likeliest == "000000"


@each_kind
def test_images_of_weight_zero_are_left_out(kind):
    train, labels, (test, _) = TRAIN, LABELS, make_bags(20, seed=9)
    weight = np.ones(len(train))
    weight[::4] = 0
    part = np.flatnonzero(weight)
    with_weights = made(kind).fit(train, labels, sample_weight=weight)
    without = made(kind).fit([train[i] for i in part], labels[part])
    if kind in ("snbnl", "nbnl"):  # their minibatches are drawn in another order
        assert np.mean(with_weights.predict(test) == without.predict(test)) > 0.9
    else:
        np.testing.assert_allclose(with_weights._mean_votes(test), without._mean_votes(test), rtol=1e-5, atol=1e-6)


@each_kind
@pytest.mark.parametrize("weight", [[-1.0] * 60, [0.0] * 60, [1.0] * 59, [np.nan] * 60, ["heavy"] * 60])
def test_weights_that_make_no_sense_are_refused(kind, weight):
    with pytest.raises(ValueError, match="sample_weight|could not convert"):
        made(kind).fit(TRAIN, LABELS, sample_weight=weight)


@pytest.mark.parametrize("kind", ["snbnl", "nbnl"])  # others draw nothing
@pytest.mark.parametrize("state", [3, np.random.RandomState(3), None])
def test_a_random_state_is_what_it_is_in_scikit_learn(kind, state):
    voter = made(kind, random_state=state).fit(TRAIN, LABELS)
    assert voter.score(*make_bags(30, seed=2)) > 0.8
    assert voter.scorer().settings["random_state"] in (3, None)


@pytest.mark.parametrize("voter", [LogisticRegression(), SNBNL, 3, None, object()])
def test_what_is_no_voter_is_refused_before_any_photo_is_read(voter):
    network = QuickNetwork()
    with pytest.raises(PatchvoteError, match="voter must be the name of a voter or an estimator that is one"):
        ImageClassifier(QUICK, voter=voter, backbone=network)
    assert network.calls == 0


@each_kind
def test_a_store_is_predicted_block_by_block(kind, tmp_path, monkeypatch):
    store, loaded, load = make_store(tmp_path), [], Store.load
    voter, bags = made(kind).fit(store), store.load()[0]

    def spy(self, indices=None, dtype=np.float32):
        loaded.append(int(self.sizes[indices].sum()))
        return load(self, indices, dtype)

    monkeypatch.setattr("patchvote.voters.base._AT_ONCE", 100)
    monkeypatch.setattr(Store, "load", spy)
    np.testing.assert_allclose(voter.predict_proba(store), voter.predict_proba(bags), rtol=1e-5)
    assert (max(loaded), sum(loaded)) == (100, 1200)
    np.testing.assert_array_equal(voter.predict(store), voter.predict(bags))
    np.testing.assert_allclose(voter.votes(store), voter.votes(bags), rtol=1e-4, atol=1e-6)


def test_an_adapted_voter_can_be_saved(tmp_path):
    rng, labels = np.random.default_rng(0), ["sea", "land"] * 20
    photos, target = ([rng.random((20, 3)) + np.eye(3)[int(one == "land")] for one in labels] for _ in range(2))
    target = [photo * [1.0, 6.0, 1.0] for photo in target]
    adapted = Adapted().fit(photos, labels, target)
    write_model(model_of(adapted), tmp_path / "m")
    model, bags = read_model(tmp_path / "m"), Bags.of(target[:4])
    found = [model.probability(bags[index : index + 1]) for index in range(4)]
    np.testing.assert_allclose(found, adapted.predict_proba(bags), atol=1e-6)
    np.testing.assert_allclose(model.scorer.unadapted(bags), adapted.unadapted_.predict_proba(bags), atol=1e-5)
