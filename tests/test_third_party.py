"""Voters of another package: they work in every command, and what a model would not bring back is refused by name."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import Adapted, ImageClassifier, ModelError, MomentRidge, PatchvoteError, export_model
from patchvote.models.file import read_model
from patchvote.voters import registry

sys.path.insert(0, str(Path(__file__).with_name("third_party")))
registry._others.cache_clear()

import patchvote_example as others  # noqa: E402


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([others.NearestMean()])
def test_scikit_learn_takes_it(estimator, check):
    check(estimator)


def test_every_command_works_with_it_by_its_name(place, command, tmp_path, monkeypatch):
    fitted = command("fit", "photos", "other.patchvote", "--network", "tiny.onnx", "--voter", "nearest-mean")
    assert (fitted.code, "nearest-mean" in fitted.out) == (0, True)
    assert "rose" in command("predict", "other.patchvote", "photos/rose/0.jpg").out
    assert '"accuracy": 1.0' in command("evaluate", "other.patchvote", "photos", "--json").out
    assert command("explain", "other.patchvote", "photos/rose/0.jpg", "-o", "why.png").code == 0
    assert "nearest-mean" in command("info", "other.patchvote").out
    # What it cannot do is said.
    assert "cannot learn more" in command("add", "other.patchvote", "photos", "--no-cache").err
    assert "adapting" in command("predict", "other.patchvote", "photos", "--adapt").err
    model = read_model("other.patchvote")
    with pytest.raises(PatchvoteError, match="ONNX"):
        export_model(model, tmp_path / "m.onnx", network="tiny.onnx")
    with pytest.raises(ModelError, match="sharpness"):
        model.scorer.check_settings({"sharpness": 0.0})
    monkeypatch.setattr(registry, "_others", dict)  # the package is gone
    with pytest.raises(ModelError, match="nearest-mean"):
        read_model("other.patchvote")


@pytest.mark.parametrize(
    ("kind", "keyword"),
    [
        ("stranger", "subclass of patchvote.Voter"),
        ("other-name", "kind"),
        ("broken", "cannot be loaded"),
        ("exits", "cannot be loaded .* good bye"),
    ],
)
def test_a_class_that_is_no_voter_of_its_name_is_refused_when_it_is_loaded(kind, keyword):
    with pytest.raises(PatchvoteError, match=keyword):
        registry.voter_class(kind)


def test_names_of_ours_stay_ours():
    assert "auto" not in registry.kinds()
    assert registry.kinds().count("nbnn") == 1
    for voter in (others.Collides(), others.NamedAuto(), others.Unregistered()):
        with pytest.raises(PatchvoteError, match="registered"):
            ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork())


def test_settings_come_back_from_a_file_or_are_refused_before_the_training():
    for thing in (np.arange(3), (1, 2), {1: 2}, math.nan, print):
        with pytest.raises(PatchvoteError, match="settings"):
            ImageClassifier(QUICK, voter=others.Thing(thing), backbone=QuickNetwork())
    bags, labels = [np.eye(3)[[label]] for label in (0, 1)] * 6, ["a", "b"] * 6
    for thing in (math.inf, [1, "a"], {"a": math.inf}, None, True, np.float64(0.5)):
        voter = others.Thing(thing).fit(bags, labels)
        assert type(voter).from_scorer(voter.scorer(), ["a", "b"]).thing == thing
    assert set(MomentRidge(class_weight={0: 1.0, 1: 3.0}).fit(bags, [0, 1] * 6).predict(bags)) == {0, 1}
    with pytest.raises(PatchvoteError, match="class_weight"):
        ImageClassifier(QUICK, voter=MomentRidge(class_weight={0: 1.0}), backbone=QuickNetwork())


def test_what_cannot_be_adapted_is_refused_before_any_photo_is_read():
    with pytest.raises((PatchvoteError, ValueError), match="target"):
        ImageClassifier(QUICK, voter=Adapted(), backbone=QuickNetwork())
    network, photos = QuickNetwork(), [np.zeros((64, 64, 3), np.uint8)] * 4
    classifier = ImageClassifier(QUICK, voter=others.Thing(), backbone=network, cache=False)
    with pytest.raises(PatchvoteError, match="cannot be adapted"):
        classifier.fit(photos, list("abab"), target=photos)
    assert network.calls == 0
