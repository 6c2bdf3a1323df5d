"""Signed features, as tokens of transformers have them: every voter is right and good for them.

Features of a rectified network are shifted feature by feature, so that they get signs and offsets and tell no less than
before. Voters that subtract means give the same answers; all others name as many photos.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from sklearn.base import clone

from conftest import write_tiny_network
from patchvote import Bags, Dense, ImageClassifier, Recipe
from patchvote.models.export import export_model
from patchvote.voters.registry import OWN, voter_class

DIM = 24
INVARIANT = ("snbnl", "nbnl", "nbnn", "local-nbnn")  # these subtract the mean of the training descriptors first
SHIFTS = {
    "centred": lambda mean: -mean,
    "both signs": lambda mean: np.where(np.arange(DIM) % 2, -2.5, 1.5) * mean.mean(),
    "far below 0": lambda mean: np.full(DIM, -20 * mean.mean()),
}


def photos(count: int, seed: int) -> tuple[Bags, np.ndarray]:
    """Return rectified descriptors of photos of three classes; half of the parts of a photo belong to any class."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).gamma(0.4, 1.0, (4, DIM))
    labels = np.arange(count) % 3
    shown = np.where(rng.random((count, 10)) < 0.5, labels[:, None], 3)
    values = np.maximum(centres[shown] + 0.9 * rng.standard_normal((count, 10, DIM)), 0)
    steps = np.arange(10) / 10
    boxes = np.stack([steps, steps, steps + 0.1, steps + 0.1], axis=1)
    return (
        Bags(values.reshape(-1, DIM).astype(np.float32), np.arange(count + 1) * 10, np.tile(boxes, (count, 1))),
        np.array(["land", "sea", "sky"])[labels],
    )


TRAIN, LABELS = photos(60, 1)
TEST, EXPECTED = photos(150, 2)
MEAN = TRAIN.values.mean(axis=0)


def changed(bags: Bags, shift: np.ndarray) -> Bags:
    return Bags((bags.values + shift).astype(np.float32), bags.offsets, bags.boxes, bags.level)


@pytest.mark.parametrize("kind", OWN)
def test_a_voter_names_as_many_photos_by_shifted_features(kind):
    settings = {"snbnl": {"n_prototypes": 3}, "nbnl": {"n_prototypes": 3, "max_iter": 4}}.get(kind, {})
    voter = voter_class(kind)(**settings)
    plain = clone(voter).fit(TRAIN, LABELS)
    before = plain.predict(TEST)
    assert np.mean(before == EXPECTED) > 0.8
    for name, shift in SHIFTS.items():
        there = shift(MEAN)
        found = clone(voter).fit(changed(TRAIN, there), LABELS).predict(changed(TEST, there))
        assert np.mean(found == EXPECTED) > np.mean(before == EXPECTED) - 0.05, name
        if kind in INVARIANT:
            assert np.mean(found == before) > 0.99, name


# --- the whole way ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def signed_network(tmp_path_factory):
    """A network whose output has no activation."""
    path = write_tiny_network(tmp_path_factory.mktemp("network") / "signed.onnx", channels=16)
    model = onnx.load(path)
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info("linear"))
    onnx.save(model, path)
    path.with_suffix(".toml").write_text('output = "linear"\nmean = 120.0\nscale = 60.0\n')
    return str(path)


@pytest.mark.parametrize("voter", ["moment-ridge", "snbnl"])
def test_a_model_of_signed_features_answers_after_export_as_before(voter, signed_network, photo_folder, tmp_path):
    recipe = Recipe(signed_network, Dense(sides=(64, 96)))
    classifier = ImageClassifier(recipe, voter=voter, cache=False).fit(photo_folder)
    assert classifier.model.scorer.settings.get("power", 1) == 1
    export_model(classifier.model, tmp_path / "m.onnx")
    pixels = np.random.default_rng(6).integers(0, 256, (70, 96, 3), dtype=np.uint8)
    evidence = classifier.explain([pixels])
    assert (classifier.extractor([pixels]).values < 0).any()
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = [value.name for value in session.get_outputs()]
    answers = dict(zip(names, session.run(None, {"photo": pixels}), strict=True))
    exact = classifier.model.probability(classifier.extractor([pixels]))  # of numbers that were not rounded
    np.testing.assert_allclose(answers["probability"], exact, atol=1e-4)
    np.testing.assert_allclose(answers["scores"], evidence.decision, atol=1e-4 * np.abs(evidence.votes).max())
    familiarity = classifier.model.judge(classifier.extractor([pixels]))[1]
    if familiarity is not None:
        np.testing.assert_allclose(answers["familiarity"], [familiarity], atol=1e-3)
    total = evidence.map(evidence.ranking[0], 20, 14).sum()
    assert total == pytest.approx(evidence.decision[evidence.number(evidence.ranking[0])], abs=1e-6)
