"""Voters of another package: they work in every command, and what a model would not bring back is refused by name."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.command import network_in
from helpers.packages import install
from helpers.quick_network import QUICK, QuickNetwork
from patchvote import (
    Adapted,
    Dense,
    ImageClassifier,
    ModelError,
    MomentRidge,
    PatchvoteError,
    Recipe,
    export_model,
)
from patchvote.models.file import read_model
from patchvote.voters import registry

sys.path.insert(0, str(Path(__file__).with_name("third_party")))
registry._others.cache_clear()

from patchvote_example import NearestMean  # noqa: E402


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([NearestMean()])
def test_scikit_learn_takes_it(estimator, check):
    check(estimator)


# --- a voter that keeps the contract ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos of two classes, a network that takes no time, and a model of the other package's voter."""
    folder = tmp_path_factory.mktemp("third party")
    rng = np.random.default_rng(0)
    for label, shade in (("bright", 150), ("dark", 0)):
        (folder / "photos" / label).mkdir(parents=True)
        for index in range(8):
            pixels = rng.integers(0, 90, (64, 64, 3)) + shade
            Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / label / f"{index}.png")
    recipe = Recipe(str(network_in(folder)), Dense((64,)))
    ImageClassifier(recipe, voter="nearest-mean", cache=False).fit(folder / "photos").save(folder / "m.patchvote")
    return folder


@pytest.fixture
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATCHVOTE_CACHE", str(folder / "cache"))
    return folder


def test_every_command_works_with_it_by_its_name(in_folder, command):
    words = ("fit", "photos", "new.patchvote", "--network", "tiny.onnx", "--voter", "nearest-mean", "--force")
    fitted = command(*words)
    assert fitted.code == 0
    assert "nearest-mean" in fitted.out
    assert "bright" in command("predict", "m.patchvote", "photos/bright/0.png").out
    measured = command("evaluate", "m.patchvote", "photos", "--json")
    assert '"accuracy": 1.0' in measured.out
    assert command("explain", "m.patchvote", "photos/dark/0.png", "-o", "why.png", "--force").code == 0
    assert (in_folder / "why.png").exists()
    assert "nearest-mean" in command("info", "m.patchvote").out


def test_what_it_cannot_do_is_said(in_folder, command, tmp_path):
    assert "cannot learn more" in command("add", "m.patchvote", "photos", "--no-cache").err
    assert "does not keep what adapting needs" in command("predict", "m.patchvote", "photos", "--adapt").err
    with pytest.raises(PatchvoteError, match="cannot be one graph: its votes are no operations of ONNX"):
        export_model(read_model("m.patchvote"), tmp_path / "m.onnx", network="tiny.onnx")


def test_a_file_with_settings_that_it_does_not_take_or_of_a_package_that_is_gone_is_refused(in_folder, monkeypatch):
    with pytest.raises(ModelError, match="sharpness must be a number from 0.1 to 100"):
        read_model("m.patchvote").scorer.check_settings({"sharpness": 0.0})
    monkeypatch.setattr(registry, "_others", dict)
    with pytest.raises(ModelError, match="does not know: 'nearest-mean'"):
        read_model("m.patchvote")


# --- voters that do not -----------------------------------------------------------------------------------------------

SOURCE = """
from patchvote import Voter
from patchvote_example import NearestMean, NearestMeanVotes


def made(kind, **more):
    members = {"kind": kind, **more}
    return type(kind, (NearestMean,), {"scorer_class": type(kind + "Votes", (NearestMeanVotes,), members)})


class NoScorer(Voter):
    pass


class Thing(NearestMean):
    scorer_class = type("ThingVotes", (NearestMeanVotes,), {
        "kind": "thing",
        "schema": type(NearestMeanVotes.schema)(NearestMeanVotes.schema.arrays, settings={"thing": lambda value: None}),
    })

    def __init__(self, thing=None):
        self.thing = thing


collides, named_auto, unregistered = made("nbnn"), made("auto"), made("unregistered")
"""
ENTRY_POINTS = """[patchvote.voters]
thing = other_voters:Thing
other-name = other_voters:Thing
no-scorer = other_voters:NoScorer
nbnn = other_voters:collides
auto = other_voters:named_auto
exits = faulty_exit:Voter
"""


@pytest.fixture
def voters(tmp_path, monkeypatch):
    """The module of a package whose voters have faults."""
    site = install(tmp_path / "site", "other_voters", SOURCE, ENTRY_POINTS)
    (site / "faulty_exit.py").write_text("raise SystemExit('good bye')\n")
    monkeypatch.syspath_prepend(site)
    registry._others.cache_clear()
    import other_voters

    yield other_voters
    sys.modules.pop("other_voters", None)
    registry._others.cache_clear()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("no-scorer", "must be a subclass of patchvote.Voter"),
        ("stranger", "must be a subclass of patchvote.Voter"),
        ("other-name", "whose scorer has this kind"),
        ("broken", "cannot be loaded"),
        ("exits", "cannot be loaded .* good bye"),
    ],
)
def test_a_class_that_is_no_voter_of_its_name_is_refused_when_it_is_loaded(voters, kind, says):
    with pytest.raises(PatchvoteError, match=says):
        registry.voter_class(kind)


def test_names_of_ours_stay_ours(voters):
    assert "auto" not in registry.kinds()
    assert registry.kinds().count("nbnn") == 1
    for name in ("collides", "named_auto", "unregistered"):
        with pytest.raises(PatchvoteError, match="is not the registered kind"):
            ImageClassifier(QUICK, voter=getattr(voters, name)(), backbone=QuickNetwork())


def test_settings_come_back_from_a_file_or_are_refused_before_the_training(voters):
    for thing in (np.arange(3), (1, 2), {1: 2}, math.nan, print):
        with pytest.raises(PatchvoteError, match="settings of a model must be"):
            ImageClassifier(QUICK, voter=voters.Thing(thing), backbone=QuickNetwork())
    bags, labels = [np.eye(3)[[label]] for label in (0, 1)] * 6, ["a", "b"] * 6
    for thing in (math.inf, [1, "a"], {"a": math.inf}, None, True, np.float64(0.5)):
        voter = voters.Thing(thing).fit(bags, labels)
        assert type(voter).from_scorer(voter.scorer(), ["a", "b"]).thing == thing
    assert set(MomentRidge(class_weight={0: 1.0, 1: 3.0}).fit(bags, [0, 1] * 6).predict(bags)) == {0, 1}
    with pytest.raises(PatchvoteError, match="class_weight"):
        ImageClassifier(QUICK, voter=MomentRidge(class_weight={0: 1.0}), backbone=QuickNetwork())


def test_what_cannot_be_adapted_is_refused_before_any_photo_is_read(voters):
    with pytest.raises((PatchvoteError, ValueError), match="target"):
        ImageClassifier(QUICK, voter=Adapted(), backbone=QuickNetwork())
    network, photos = QuickNetwork(), [np.zeros((64, 64, 3), np.uint8)] * 4
    classifier = ImageClassifier(QUICK, voter=voters.Thing(), backbone=network, cache=False)
    with pytest.raises(PatchvoteError, match="a model of thing cannot be adapted"):
        classifier.fit(photos, list("abab"), target=photos)
    assert network.calls == 0
