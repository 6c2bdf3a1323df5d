"""Files of the version before the rooms: models under the names that voters and settings had then, and a store.

They were written by that version, with the network of `quick_network`, and `answers.json` is what it answered.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession
from PIL import Image

from helpers.command import network_in
from helpers.quick_network import QuickNetwork
from patchvote import NBNN, SNBNL, Dense, ImageClassifier, PatchvoteError, Recipe, export_model
from patchvote.models.model import voter_of

BEFORE = Path(__file__).with_name("before")
ANSWERS = json.loads((BEFORE / "answers.json").read_text())
COLOURS = {"brick": (180, 60, 40), "grass": (60, 160, 50), "sky": (90, 140, 220)}


def photos(count: int, rng: np.random.Generator) -> list[Image.Image]:
    noisy = (
        np.array(colour, float) + rng.normal(0, 35, (64, 96, 3)) for colour in COLOURS.values() for _ in range(count)
    )
    return [Image.fromarray(np.clip(one, 0, 255).astype(np.uint8)) for one in noisy]


@pytest.fixture(scope="module")
def asked() -> list[Image.Image]:
    rng = np.random.default_rng(7)
    photos(6, rng)  # those that were learned
    return photos(2, rng)


def load(kind: str) -> ImageClassifier:
    return ImageClassifier.load(BEFORE / f"{kind}.patchvote", backbone=QuickNetwork(), cache=False, jobs=1)


@pytest.mark.parametrize("kind", ["bag-svm", "adapted", "snbnl", "nbnl", "nbnn", "local-nbnn"])
def test_a_model_of_before_answers_as_it_did(kind, asked):
    classifier, told = load(kind), ANSWERS[kind]
    assert classifier.model.kind == ("bag-svm" if kind == "adapted" else kind)
    assert classifier.model.threshold == told["threshold"]
    np.testing.assert_allclose(classifier.predict_proba(asked), told["probability"], atol=1e-6)
    np.testing.assert_allclose(classifier.explain(asked[0]).votes.sum(axis=0), told["evidence"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["bag-svm", "adapted", "snbnl", "nbnl", "nbnn", "local-nbnn"])
def test_a_model_of_before_rejects_by_its_probability(kind, asked):
    classifier = load(kind)
    for threshold in (classifier.model.threshold, 0.9):
        classifier._model = dataclasses.replace(classifier.model, threshold=threshold)
        expected = classifier.predict_proba(asked).max(axis=1) < threshold
        assert [answer.rejected for answer in classifier.answers(asked)] == expected.tolist()
        assert (classifier.predict_or_none(asked) == "none of these").tolist() == expected.tolist()
        assert {answer.familiarity for answer in classifier.answers(asked)} == {None}
    with pytest.raises(PatchvoteError, match="Fit it again"):
        classifier.predict_or_none(asked, threshold=0.1)
    labels = [label for label in COLOURS for _ in range(2)]
    if kind != "nbnl":  # it cannot learn more
        assert classifier.add(asked, labels).model.familiarity is None
    assert classifier.evaluate(asked, labels, unknown=asked[:2]).strangers.familiarity.shape == (2,)


@pytest.mark.parametrize("kind", ["bag-svm", "adapted", "snbnl", "nbnl", "nbnn", "local-nbnn"])
def test_a_model_of_before_is_written_under_the_names_of_now_and_answers_the_same(kind, asked, tmp_path):
    classifier = load(kind)
    classifier.save(tmp_path / "now.patchvote")
    again = ImageClassifier.load(tmp_path / "now.patchvote", backbone=QuickNetwork(), cache=False, jobs=1)
    np.testing.assert_array_equal(again.predict_proba(asked), classifier.predict_proba(asked))
    assert again.model.scorer.settings == classifier.model.scorer.settings


def test_settings_of_before_get_their_names_and_meanings_of_now():
    snbnl, nbnn = voter_of(load("snbnl").model), voter_of(load("nbnn").model)
    assert isinstance(snbnl, SNBNL)
    assert (snbnl.n_prototypes, snbnl.max_iter, snbnl.batch_size, snbnl.random_state) == (3, 2, 50, 1)
    assert isinstance(nbnn, NBNN)
    assert (nbnn.n_neighbors, nbnn.calibration) == (2, 0)


@pytest.mark.parametrize("kind", ["bag-svm", "adapted", "snbnl", "nbnn", "local-nbnn"])
def test_a_model_of_before_learns_more(kind, asked):
    classifier = load(kind).add(asked, [label for label in COLOURS for _ in range(2)])
    assert sum(classifier.model.about.images.values()) == 24
    np.testing.assert_array_equal(classifier.predict(asked), [label for label in COLOURS for _ in range(2)])


def test_a_fixed_fit_gives_the_five_numbers_of_before(tmp_path):
    told = json.loads((BEFORE / "fit.json").read_text())
    network = network_in(tmp_path)
    graph = onnx.load(network)
    for index, node in enumerate(graph.graph.node):
        node.name = f"n{index}"
    onnx.save(graph, network)
    rng = np.random.default_rng(11)

    def some(count, tint=(1.0, 1.0, 1.0)):
        faint = [np.array(colour, float) * 0.4 + 75 for colour in COLOURS.values() for _ in range(count)]
        noisy = [(colour + rng.normal(0, 60, (64, 96, 3))) * tint for colour in faint]
        return [np.clip(one, 0, 255).astype(np.uint8) for one in noisy], [c for c in COLOURS for _ in range(count)]

    train, (asked, _), other = some(20), some(5), some(12, (0.7, 0.85, 1.0))
    classifier = ImageClassifier(Recipe(str(network), Dense((64,))), voter="bag-svm", cache=False, jobs=1).fit(*train)
    assert classifier.scores.accuracy == pytest.approx(told["held_out"], abs=1e-6)
    np.testing.assert_allclose(classifier.predict_proba(asked[:1])[0], told["probability"], atol=1e-6)
    evidence = classifier.explain(asked[0]).map(classifier.classes[0], 32, 32).sum()
    assert evidence == pytest.approx(told["evidence"], abs=1e-6)
    export_model(classifier.model, tmp_path / "m.onnx", network=str(network))
    (scores,) = InferenceSession(str(tmp_path / "m.onnx")).run(["scores"], {"photo": asked[0]})
    np.testing.assert_allclose(scores, told["exported"], atol=1e-6)
    adapted = classifier.evaluate(*other, adapt=True, insist=True).accuracy
    assert (classifier.before.accuracy, adapted) == pytest.approx((told["plain"], told["adapted"]), abs=1e-6)
