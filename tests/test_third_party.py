"""A voter of another package, which patchvote knows through an entry point only (`third_party/`)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.command import network_in
from patchvote import Dense, ImageClassifier, ModelError, PatchvoteError, Recipe, export_model
from patchvote.models.file import read_model
from patchvote.voters import registry

sys.path.insert(0, str(Path(__file__).with_name("third_party")))
registry._others.cache_clear()

from patchvote_example import NearestMean  # noqa: E402


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
    assert measured.code == 0
    assert '"accuracy": 1.0' in measured.out
    assert command("explain", "m.patchvote", "photos/dark/0.png", "-o", "why.png", "--force").code == 0
    assert (in_folder / "why.png").exists()
    assert "nearest-mean" in command("info", "m.patchvote").out


def test_what_it_cannot_do_is_said_in_a_sentence(in_folder, command):
    assert "cannot be one graph" in command("export", "m.patchvote", "m.onnx").err
    added = command("add", "m.patchvote", "photos", "--no-cache")
    assert added.code == 1
    assert "cannot learn more" in added.err
    assert "does not keep what adapting needs" in command("predict", "m.patchvote", "photos", "--adapt").err


def test_a_model_of_it_comes_back_and_answers_the_same(in_folder, tmp_path):
    classifier = ImageClassifier.load("m.patchvote")
    photos = sorted(in_folder.glob("photos/*/*.png"))
    classifier.save(tmp_path / "again.patchvote")
    again = ImageClassifier.load(tmp_path / "again.patchvote", network=str(in_folder / "tiny.onnx"))
    np.testing.assert_array_equal(again.predict_proba(photos), classifier.predict_proba(photos))


def test_a_file_with_settings_that_it_does_not_take_is_refused(in_folder):
    model = read_model("m.patchvote")
    with pytest.raises(ModelError, match="sharpness must be a number from 0.1 to 100"):
        model.scorer.check_settings({"sharpness": 0.0})


def test_an_estimator_of_it_is_taken_as_it_is(in_folder):
    classifier = ImageClassifier(voter=NearestMean(sharpness=3.0), cache=False)
    assert classifier._kind == "nearest-mean"


def test_a_model_of_a_package_that_is_gone_is_refused_by_name(in_folder, monkeypatch):
    monkeypatch.setattr(registry, "_others", dict)
    with pytest.raises(ModelError, match="does not know: 'nearest-mean'"):
        read_model("m.patchvote")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", "cannot be loaded from patchvote_example:Absent"),
        ("stranger", "must be a subclass of patchvote.Voter"),
    ],
)
def test_an_entry_point_that_is_no_voter_is_named(name, says):
    with pytest.raises(PatchvoteError, match=says):
        registry.voter_class(name)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([NearestMean()])
def test_scikit_learn_takes_it(estimator, check):
    check(estimator)


def test_its_graph_is_refused_with_the_reason(in_folder, tmp_path):
    with pytest.raises(PatchvoteError, match="votes are no operations of ONNX"):
        export_model(read_model("m.patchvote"), tmp_path / "m.onnx", network="tiny.onnx")
