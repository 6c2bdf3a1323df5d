"""Voters of another package: what they must be, and what is refused because a model would not bring it back."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from helpers.packages import install
from helpers.quick_network import QUICK, QuickNetwork
from patchvote import SNBNL, Adapted, Bags, ImageClassifier, Model, ModelError, MomentRidge, PatchvoteError, Recipe
from patchvote.models.file import read_model
from patchvote.models.model import voter_of
from patchvote.voters import registry
from patchvote.voters.scorer import from_plain, plain

SOURCE = """
import numpy as np

from patchvote import Voter
from patchvote.voters.scorer import FLOATS, Schema, Scorer


class MeanVotes(Scorer):
    kind = "mean"
    schema = Schema(arrays={"means": (2, FLOATS)}, settings={"thing": lambda value: None})
    remembers = True

    @property
    def features(self):
        return self.arrays["means"].shape[1]

    def votes(self, bags):
        means = self.arrays["means"].astype(np.float64)
        return bags.values.astype(np.float64) @ means.T - (means**2).sum(axis=1) / 2

    def matches(self, bags, number):
        count = len(bags.values)
        return np.full(count, 1), bags.boxes, np.zeros(count)


class Mean(Voter):
    scorer_class = MeanVotes

    def __init__(self, thing=None):
        self.thing = thing

    def fit(self, X, y=None):
        images, labels = self._read_labelled(X, y, reset=True)
        bags = images.load()[0] if hasattr(images, "load") else images
        numbers, means = self._set_classes(labels), bags.means().astype(np.float64)
        self.means_ = np.stack([means[numbers == number].mean(axis=0) for number in range(len(self.classes_))])
        return self


def made(kind):
    return type(kind, (Mean,), {"scorer_class": type(kind + "Votes", (MeanVotes,), {"kind": kind})})


class Hidden(Mean):
    def __init__(self, thing=None, shrink=1.0):
        self.thing, self.shrink = thing, shrink


class NoScorer(Voter):
    pass


collides, named_auto, unregistered, mean_too = made("nbnn"), made("auto"), made("unregistered"), made("mean")
"""
ENTRY_POINTS = """[patchvote.voters]
mean = other_voters:Mean
other-name = other_voters:Mean
no-scorer = other_voters:NoScorer
text = other_voters:SOURCE
nbnn = other_voters:collides
auto = other_voters:named_auto
exits = faulty_exit:Voter
"""


@pytest.fixture
def voters(tmp_path, monkeypatch):
    """The module of the other package, whose entry points are installed."""
    site = install(tmp_path / "site", "other_voters", SOURCE, ENTRY_POINTS)
    (site / "faulty_exit.py").write_text("raise SystemExit('good bye')\n")
    monkeypatch.syspath_prepend(site)
    registry._others.cache_clear()
    import other_voters

    yield other_voters
    sys.modules.pop("other_voters", None)
    registry._others.cache_clear()


def fitted(voter) -> ImageClassifier:
    rng = np.random.default_rng(0)
    shades = [0, 150] * 8
    photos = [(rng.integers(0, 90, (64, 64, 3)) + shade).astype(np.uint8) for shade in shades]
    classifier = ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(), cache=False)
    return classifier.fit(photos, ["dark" if shade == 0 else "bright" for shade in shades])


def bags_and_labels() -> tuple[Bags, np.ndarray]:
    rng, labels = np.random.default_rng(0), np.array(["land", "sea"] * 6)
    return Bags.of([rng.random((5, 3)) + np.eye(3)[int(label == "sea")] for label in labels]), labels


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("no-scorer", "must be a subclass of patchvote.Voter"),
        ("other-name", "whose scorer has the kind 'other-name'"),
        ("text", "cannot be loaded"),
        ("exits", "cannot be loaded from faulty_exit:Voter: good bye"),
    ],
)
def test_a_class_that_is_no_voter_of_its_name_is_refused_when_it_is_loaded(voters, kind, says):
    with pytest.raises(PatchvoteError, match=says):
        registry.voter_class(kind)


def test_names_of_ours_stay_ours_and_two_packages_with_one_name_are_refused(voters, tmp_path, monkeypatch):
    assert "auto" not in registry.kinds()
    assert registry.kinds().count("nbnn") == 1
    assert registry.voter_class("nbnn").__module__.startswith("patchvote.")
    monkeypatch.syspath_prepend(install(tmp_path / "other", "third", "", "[patchvote.voters]\nmean = other:X\n"))
    registry._others.cache_clear()
    with pytest.raises(PatchvoteError, match="several packages have a voter 'mean'"):
        registry.voter_class("mean")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("collides", "is the kind of patchvote.voters.bank_votes:NeighbourVotes"),
        ("named_auto", "is 'auto', a name of patchvote itself"),
        ("unregistered", "is not registered"),
        ("mean_too", "is the kind of other_voters:MeanVotes"),
    ],
)
def test_a_voter_whose_models_would_not_be_read_again_is_refused_before_the_training(voters, name, says):
    with pytest.raises(PatchvoteError, match=says):
        ImageClassifier(QUICK, voter=getattr(voters, name)(), backbone=QuickNetwork())
    scorer = getattr(voters, name)().fit(*bags_and_labels()).scorer()
    with pytest.raises(ModelError, match=says):
        Model(scorer, ("land", "sea"), Recipe(), "abc", 1.0, 0.0)


def test_a_parameter_that_a_model_would_forget_is_refused_by_name(voters):
    with pytest.raises(PatchvoteError, match="shrink of Hidden is a parameter"):
        ImageClassifier(QUICK, voter=voters.Hidden(), backbone=QuickNetwork())


@pytest.mark.parametrize("thing", [np.arange(3), (1, 2), {1: 2}, math.nan, print, "inf"], ids=lambda one: f"{one!r:.9}")
def test_a_setting_that_would_not_come_back_is_refused_before_the_training(voters, thing):
    with pytest.raises((PatchvoteError, ValueError), match="thing"):
        ImageClassifier(QUICK, voter=voters.Mean(thing), backbone=QuickNetwork())


@pytest.mark.parametrize("thing", [math.inf, [1, "a"], {"a": math.inf}, None, True, np.float64(0.5)], ids=str)
def test_a_setting_that_is_stored_comes_back(voters, thing, tmp_path):
    fitted(voters.Mean(thing)).save(tmp_path / "m")
    assert voter_of(read_model(tmp_path / "m")).thing == thing


def test_only_plus_infinity_becomes_text():
    assert (plain(math.inf), from_plain("inf"), plain(-math.inf)) == ("inf", math.inf, -math.inf)
    with pytest.raises(ValueError, match="q of SNBNL"):
        SNBNL(q=-math.inf).fit(*bags_and_labels())


def test_weights_of_classes_that_are_no_text_work_without_a_model_and_are_refused_in_one():
    bags, labels = bags_and_labels()
    numbers = (labels == "sea").astype(int)
    assert set(MomentRidge(class_weight={0: 1.0, 1: 3.0}).fit(bags, numbers).predict(bags)) == {0, 1}
    with pytest.raises(PatchvoteError, match="class_weight must be"):
        ImageClassifier(QUICK, voter=MomentRidge(class_weight={0: 1.0}), backbone=QuickNetwork())


def test_matches_of_a_scorer_that_remembers_name_the_training_photos(voters):
    classifier = fitted("mean")
    evidence = classifier.explain(np.full((64, 64, 3), 60, np.uint8))
    assert {match.name for match in evidence.matches} == {classifier.model.names[1]}


def test_what_cannot_be_adapted_is_refused_before_any_photo_is_read(voters):
    with pytest.raises((PatchvoteError, ValueError), match="pass photos of the target"):
        ImageClassifier(QUICK, voter=Adapted(), backbone=QuickNetwork())
    network, photos = QuickNetwork(), [np.zeros((64, 64, 3), np.uint8)] * 4
    with pytest.raises(PatchvoteError, match="a model of mean cannot be adapted"):
        ImageClassifier(QUICK, voter=voters.Mean(), backbone=network, cache=False).fit(
            photos, list("abab"), target=photos
        )
    assert network.calls == 0
