"""The contract of a voter: one name, one scorer, settings and weights that mean the same in all of them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import SNBNL, Adapted, Bags, ImageClassifier, Model, PatchvoteError, Recipe, Store, Voter
from patchvote.models.answers import answer_of
from patchvote.models.evidence import evidence_of
from patchvote.models.file import read_model, write_model
from patchvote.models.model import voter_of
from patchvote.voters.moment_votes import MomentVotes
from patchvote.voters.registry import OWN, scorer_class, voter_class
from test_scale import make_store
from test_voters import make_bags

QUICKLY = {"nbnl": {"max_iter": 2}}
each_kind = pytest.mark.parametrize("kind", OWN)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(SNBNL, "min_steps", 10)


def made(kind: str, **settings) -> Voter:
    return voter_class(kind)(**{**QUICKLY.get(kind, {}), **settings})


@pytest.fixture(scope="module")
def bags():
    return make_bags(60, seed=1)


def test_reading_a_model_and_voting_imports_neither_scikit_learn_nor_the_estimators(tmp_path, bags):
    for kind in OWN:
        write_model(model_of(made(kind).fit(*bags)), tmp_path / kind)
    np.savez(tmp_path / "bags.npz", *bags[0][:2])
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
def test_a_scorer_votes_as_its_estimator_also_from_a_file(kind, bags, tmp_path):
    voter = made(kind).fit(*bags)
    write_model(model_of(voter), tmp_path / "m")
    model = read_model(tmp_path / "m")
    some = Bags.of(bags[0][:5])
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
def test_images_of_weight_zero_are_left_out(kind, bags):
    (train, labels), (test, _) = bags, make_bags(20, seed=9)
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
def test_weights_that_make_no_sense_are_refused(kind, weight, bags):
    with pytest.raises(ValueError, match="sample_weight|could not convert"):
        made(kind).fit(*bags, sample_weight=weight)


@pytest.mark.parametrize("kind", ["snbnl", "nbnl"])  # others draw nothing
@pytest.mark.parametrize("state", [3, np.random.RandomState(3), None])
def test_a_random_state_is_what_it_is_in_scikit_learn(kind, state, bags):
    voter = made(kind, random_state=state).fit(*bags)
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
