"""Photos of none of the classes, asked of a model of every voter, by every way that leads to an answer."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import pickle

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from helpers.command import network_in
from helpers.local_engine import LocalEngine
from helpers.quick_network import loaded, quick
from patchvote import Dense, ImageClassifier, PatchvoteError, Recipe, export_model
from patchvote.bags.moments import photo_vectors
from patchvote.models.file import read_model, write_model
from patchvote.models.scores import Strangers
from patchvote.voters.registry import OWN

COLOURS = {"brick": (180, 60, 40), "grass": (60, 160, 50), "sky": (90, 140, 220)}
STRANGE = {"static": 250, "print": 170}  # black and white pixels, of so much contrast
NONE = "none of these"


def photos(kinds, count, seed, spread=40):
    """Photos of one colour each, more or less, with some noise, or of black and white pixels; and their labels."""
    rng = np.random.default_rng(seed)
    images = []
    for kind in kinds.values():
        for _ in range(count):
            if isinstance(kind, int):
                pixels = 128 + kind * (rng.integers(0, 2, (64, 64, 1)) - 0.5) + rng.normal(0, 5, (64, 64, 3))
            else:
                pixels = np.array(kind) + rng.normal(0, spread, 3) + rng.normal(0, 15, (64, 64, 3))
            images.append(Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)))
    return images, [label for label in kinds for _ in range(count)]


def folder_of(root, colours, count, seed):
    for image, label, index in zip(*photos(colours, count, seed, 12), range(10**6), strict=False):
        (root / label).mkdir(parents=True, exist_ok=True)
        image.save(root / label / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def learned():
    return quick("moment-ridge").fit(*photos(COLOURS, 10, 0))


@pytest.mark.parametrize("voter", OWN)
def test_every_voter_rejects_strangers_and_keeps_the_price(voter, tmp_path):
    classifier = quick(voter).fit(*photos(COLOURS, 10 if voter == "moment-ridge" else 40, 0))
    assert classifier.model.about.held_out["rejected"] == classifier.scores.rejected.sum()
    known, labels = photos(COLOURS, 12, 1)
    strangers, _ = photos(STRANGE, 8, 2)
    assert np.mean(classifier.predict_or_none(strangers) == NONE) > 0.9
    named = classifier.predict_or_none(known)
    assert np.mean(named == NONE) < 0.25
    assert np.mean(named[named != NONE] == np.array(labels)[named != NONE]) > 0.9
    scores = classifier.evaluate(known, labels, unknown=strangers)
    assert scores.strangers.auroc(scores.decisive) > 0.97
    assert scores.rejected.sum() == np.sum(named == NONE)
    asked = [np.sum(classifier.predict_or_none(known + strangers, threshold=share) == NONE) for share in (0, 0.1, 0.9)]
    assert asked == sorted(asked)
    assert asked[0] == 0
    answers = list(classifier.answers(strangers + known))
    assert [answer.familiarity < 0.05 for answer in answers] == [answer.rejected for answer in answers]
    assert classifier.explain([strangers[0]]).familiarity == pytest.approx(answers[0].familiarity, abs=1e-6)
    classifier.save(tmp_path / "m.patchvote")
    again = loaded(tmp_path / "m.patchvote")
    assert [answer.familiarity for answer in again.answers(known)] == [answer.familiarity for answer in answers[16:]]
    assert (pickle.loads(pickle.dumps(again.model)).familiarity.held_out == again.model.familiarity.held_out).all()


@pytest.mark.parametrize("voter", OWN)
def test_what_was_strange_is_known_once_it_is_learned(voter):
    classifier = quick(voter).fit(*photos(COLOURS, 10, 0))
    strangers, labels = photos(STRANGE, 10, 2)
    if voter == "nbnl":
        with pytest.raises(PatchvoteError, match="cannot learn more"):
            classifier.add(strangers, labels)
        return
    before = classifier.model.familiarity
    classifier.add(strangers, labels)
    after = classifier.model.familiarity
    assert after.counts.tolist() == [10] * 5
    assert voter == "moment-ridge" or (after.held_out == before.held_out).all()
    vectors = photo_vectors(classifier.extractor(photos(STRANGE, 10, 3)[0]))
    sure = np.array([[0.999, 0.001, 0, 0, 0]]).repeat(len(vectors), axis=0)
    assert before.of(sure[:, :3], vectors).max() < 0.2 < 0.4 < after.of(sure, vectors).mean()


def test_workers_of_an_engine_give_the_same_answers(learned, tmp_path):
    folder = folder_of(tmp_path / "known", COLOURS, 4, 5)
    strange = folder_of(tmp_path / "strange", STRANGE, 4, 6)
    learned.save(tmp_path / "m.patchvote")
    again = loaded(tmp_path / "m.patchvote")
    plain, by_workers = (list(again.answers(folder, engine=engine)) for engine in (None, LocalEngine()))
    assert plain == by_workers
    here, there = (again.evaluate(folder, unknown=strange, engine=engine) for engine in (None, LocalEngine()))
    assert here.summary() == there.summary()
    assert here.strangers.summary(here.decisive) == there.strangers.summary(there.decisive)
    assert there.strangers.summary(there.decisive)["classes"]["static"] == {"images": 4, "rejected": 4, "named": ""}


def test_photos_of_unknown_classes_must_be_unknown_and_are_skipped_if_they_cannot_be_read(learned, tmp_path):
    folder = folder_of(tmp_path / "known", COLOURS, 2, 5)
    with pytest.raises(PatchvoteError, match="the model knows the classes 'brick', 'grass', 'sky'"):
        learned.evaluate(folder, unknown=folder)
    strange = folder_of(tmp_path / "strange", STRANGE, 2, 6)
    (strange / "a.png").write_bytes(b"no photo")
    assert len(learned.evaluate(folder, unknown=strange).strangers) == 4
    assert [error.name for error in learned.skipped] == ["a.png"]


@pytest.mark.parametrize("voter", ["moment-ridge", "snbnl", "adapted"])
def test_an_exported_graph_returns_the_familiarity(voter, tmp_path):
    recipe = Recipe(str(network_in(tmp_path)), Dense((64, 96)))
    kind = "moment-ridge" if voter == "adapted" else voter
    classifier = ImageClassifier(recipe, voter=kind, cache=False, jobs=1).fit(*photos(COLOURS, 20, 0, 12))
    asked = photos(COLOURS | STRANGE, 4, 8, 12)[0]
    if voter == "adapted":
        classifier.adapt(asked)
        assert classifier.refusal is None
    graph = export_model(classifier.model, tmp_path / "m.onnx", network=recipe.network)
    metadata = {entry.key: entry.value for entry in graph.metadata_props}
    assert json.loads(metadata["familiarity_threshold"]) == 0.05
    without = dataclasses.replace(classifier.model, familiarity=None)
    none = export_model(without, tmp_path / "n.onnx", network=recipe.network)
    assert "familiarity" not in [value.name for value in none.graph.output]
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    step = 1 / (1 + len(classifier.model.familiarity.held_out))
    for image in asked:
        (found,) = session.run(["familiarity"], {"photo": np.asarray(image)})
        assert found.shape == (1,)
        bag = classifier.extractor([image])  # the graph knows all that the network gives, not 8 bits of it
        expected = classifier.model.judge(bag)[1]
        near = 1.1 * step  # rounding may move a photo past a left-out one
        assert found[0] == pytest.approx(expected, abs=near)
        assert (found[0] < 0.05) == (expected < 0.05) or abs(expected - 0.05) < near


@pytest.fixture
def files(tmp_path, monkeypatch, command):
    """A model, photos of its classes, and photos of others, in the current folder."""
    monkeypatch.chdir(tmp_path)
    network_in(tmp_path)
    folder_of(tmp_path / "photos", COLOURS, 10, 0)
    folder_of(tmp_path / "test", COLOURS, 6, 1)
    folder_of(tmp_path / "strange", {"static": (240, 60, 250), "print": (250, 245, 60)}, 5, 2)
    words = ("fit", "photos", "m.patchvote", "--network", "tiny.onnx", "--no-cache", "--voter", "moment-ridge")
    done = command(*words)
    assert done.code == 0, done.err
    assert 'would be rejected as "none of these"; the likeliest class is ' in done.out
    return tmp_path


def test_predict_rejects_at_the_threshold_and_tells_the_familiarity(files, command):
    rows = list(csv.DictReader(io.StringIO(command("predict", "m.patchvote", "strange", "test").out)))
    assert [float(row["familiarity"]) < 0.05 for row in rows] == [row["label"] == NONE for row in rows]
    assert all(row["label"] == NONE for row in rows[:10])
    strict = command("predict", "m.patchvote", "test", "--threshold", 0.9, "--json").out.splitlines()
    assert sum(json.loads(line)["label"] == NONE for line in strict) > 9
    assert command("predict", "m.patchvote", "test", "--threshold", 1.5).code == 2
    assert "of known photos look as strange" in command("explain", "m.patchvote", "strange/static/0.png").out


def test_evaluate_measures_strangers(files, command):
    words = ("evaluate", "m.patchvote", "test", "--unknown", "strange")
    assert "100.0 % of 10 photos of unknown classes are rejected, at the price of " in command(*words).out
    for share, rejected in ((0.05, 10), (0, 0)):
        told = json.loads(command(*words, "--json", "--threshold", share).out)
        found = told["unknown"]
        assert (told["threshold"], found["auroc"], found["images"], found["rejected"]) == (share, 1.0, 10, rejected)
    page = (files / "m-test.html").read_text()
    assert page.count('<path class="curve"') == 2
    assert "rejected strangers in %" in page


def test_a_model_without_familiarity_has_no_threshold_to_set(files, command):
    write_model(dataclasses.replace(read_model("m.patchvote"), familiarity=None), "old.patchvote")
    refused = command("predict", "old.patchvote", "test", "--threshold", 0.01)
    assert refused.code == 1
    assert "Fit it again" in refused.err
    told = json.loads(command("evaluate", "old.patchvote", "test", "--unknown", "strange", "--json").out)
    assert 0.5 <= told["unknown"]["auroc"] <= 1  # by the probability


def test_the_auroc_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    known, strange = rng.integers(0, 8, 30) / 8, rng.integers(0, 5, 20) / 8  # with ties
    strangers = Strangers(("",) * 20, ("",) * 20, strange, 0.3)
    pairs = [1.0 if one > other else 0.5 if one == other else 0.0 for one in known for other in strange]
    assert strangers.auroc(known) == pytest.approx(np.mean(pairs))
    of_known, of_strangers = strangers.curve(known)
    assert np.trapezoid(of_strangers, of_known) == pytest.approx(np.mean(pairs))
    for level in (0.0, 0.3, 1.1):
        at = np.mean(known < level), np.mean(strange < level)
        assert at in set(zip(of_known.tolist(), of_strangers.tolist(), strict=True))
