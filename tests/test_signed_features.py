"""Signed features, as tokens of transformers have them: every voter is right and good for them.

Features of a rectified network are shifted feature by feature, so that they get signs and offsets and tell no less than
before. Voters that subtract means give the same answers; all others name as many photos.
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patchvote.voters.gains import moved
from sklearn.base import clone

from conftest import write_tiny_network
from experiments.da.voter import DANBNN
from experiments.voters import make_voter
from patchvote import (
    NBNL,
    NBNN,
    SNBNL,
    Adapted,
    Bags,
    BagSVM,
    Dense,
    ImageClassifier,
    LocalNBNN,
    MomentSVM,
    Recipe,
)
from patchvote.bags.copies import copy_groups
from patchvote.models.export import export_model
from patchvote.voters.familiarity import Familiarity, HeldOut
from patchvote.voters.registry import OWN

DIM = 24
VOTERS = {
    "bag-svm": BagSVM(calibration=0),
    "moment-svm": MomentSVM(calibration=0, pairs=8),
    "snbnl": SNBNL(3, calibration=0),
    "nbnl": NBNL(3, calibration=0, max_iter=4),
    "nbnn": NBNN(calibration=0),
    "local-nbnn": LocalNBNN(calibration=0),
}
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


def changed(bags: Bags, shift: np.ndarray | float, factor: np.ndarray | float = 1.0) -> Bags:
    return Bags((bags.values * factor + shift).astype(np.float32), bags.offsets, bags.boxes, bags.level)


def test_every_voter_of_the_registry_is_tried():
    assert set(VOTERS) == set(OWN)


@pytest.mark.parametrize("kind", VOTERS)
def test_a_voter_names_as_many_photos_by_shifted_features(kind):
    plain = clone(VOTERS[kind]).fit(TRAIN, LABELS)
    before = plain.predict(TEST)
    assert np.mean(before == EXPECTED) > 0.8
    for name, shift in SHIFTS.items():
        there = shift(MEAN)
        found = clone(VOTERS[kind]).fit(changed(TRAIN, there), LABELS).predict(changed(TEST, there))
        assert np.mean(found == EXPECTED) > np.mean(before == EXPECTED) - 0.05, name
        if kind in INVARIANT:
            assert np.mean(found == before) > 0.99, name


@pytest.mark.parametrize("kind", VOTERS)
def test_votes_of_signed_features_add_up_and_do_not_cancel(kind):
    """The mean vote is the score, and votes are not much larger than it, as shares of roots near 0 would be."""
    voter = clone(VOTERS[kind]).fit(changed(TRAIN, -MEAN), LABELS)
    bags = changed(TEST, -MEAN)
    scorer, votes = voter.scorer(), voter.votes(bags)
    means = np.add.reduceat(votes, bags.offsets[:-1]) / bags.sizes[:, None]
    np.testing.assert_allclose(means, scorer.scores(bags), atol=1e-4 * np.abs(votes).max())
    margin = np.ptp(means, axis=1).mean()
    assert np.ptp(votes, axis=1).mean() < 2.1 * margin  # with roots of means, BagSVM has 2.2 here


def test_roots_are_for_features_that_are_never_negative():
    for voter in (BagSVM(calibration=0), MomentSVM(calibration=0), SNBNL(2, power="auto"), NBNN(power="auto")):
        assert clone(voter).fit(TRAIN, LABELS).power_ == 0.5
        assert clone(voter).fit(changed(TRAIN, -MEAN), LABELS).power_ == 1


@given(st.integers(0, 1000), st.floats(-5, 5))
@settings(max_examples=10, deadline=None)
def test_nearest_neighbours_do_not_depend_on_where_the_origin_is(seed, size):
    shift = size * np.random.default_rng(seed).standard_normal(DIM)
    plain = NBNN(calibration=0).fit(TRAIN, LABELS).votes(TEST[:10])
    votes = NBNN(calibration=0).fit(changed(TRAIN, shift), LABELS).votes(changed(TEST[:10], shift))
    np.testing.assert_allclose(votes, plain, atol=1e-3)


# --- another domain ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bag-svm", "moment-svm", "snbnl", "nbnn"])
def test_a_voter_is_adapted_to_a_domain_whose_signed_features_are_shifted(kind):
    rng = np.random.default_rng(3)
    source, shift = changed(TRAIN, -MEAN), 3 * MEAN.mean() * rng.choice([-1, 1], DIM)
    target = changed(TEST, shift - MEAN)
    voter = clone(VOTERS[kind])
    plain = clone(voter).fit(source, LABELS).score(target, EXPECTED)
    adapted = Adapted(voter).fit(source, LABELS, target)
    assert adapted.refusal_ is None
    assert adapted.score(target, EXPECTED) > max(0.8, plain + 0.1)


def test_da_nbnn_learns_from_signed_features():
    shift = np.where(np.arange(DIM) % 2, -0.3, 0.3)
    voter = DANBNN(exchanged=4, n_components=8, max_iter=4)
    found = voter.fit(changed(TRAIN, -MEAN), LABELS, changed(TEST, shift - MEAN)).predict(changed(TEST, shift - MEAN))
    assert np.mean(found == EXPECTED) > 0.8


def test_signed_features_are_shifted_to_the_means_of_the_target_and_those_beside_them_too():
    signed = np.arange(DIM) % 3 == 0
    source = changed(TRAIN, np.where(signed, -MEAN, 0.0))
    target = changed(TEST, np.where(signed, 1 - MEAN, 0.0), np.where(signed, 1.0, 2.0))
    there = target.means().mean(axis=0, dtype=np.float64)
    balanced = moved(source, LABELS, LABELS, there)
    np.testing.assert_allclose(balanced.means().mean(axis=0), there, atol=1e-4)
    difference = balanced.values - source.values
    np.testing.assert_allclose(difference, np.tile(difference[0], (len(difference), 1)), atol=1e-4)


# --- what is measured beside the votes --------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", SHIFTS)
def test_strangers_are_unfamiliar_by_signed_features(shift):
    there = SHIFTS[shift](MEAN)
    numbers = np.unique(LABELS, return_inverse=True)[1]
    train, test = changed(TRAIN, there), changed(TEST, there)
    rng = np.random.default_rng(4)
    strange = np.maximum(3 * rng.gamma(0.4, 1.0, DIM) + 0.9 * rng.standard_normal((300, DIM)), 0) + there
    strangers = Bags.of([part.astype(np.float32) for part in np.split(strange, 30)])
    voter, images = BagSVM(calibration=0).fit(train, LABELS), np.arange(60)
    folds = []
    for fold in (images[:20], images[20:40], images[40:]):
        kept = np.setdiff1d(images, fold)
        other = BagSVM(calibration=0).fit(train[kept], LABELS[kept])
        folds.append(HeldOut(kept, fold, other.predict_proba(train[fold])))
    familiarity, _ = Familiarity.learned(train.means(), numbers, folds)
    known = familiarity.of(voter.predict_proba(test), test.means())
    unknown = familiarity.of(voter.predict_proba(strangers), strangers.means())
    assert np.mean(known >= 0.05) > 0.85
    assert np.mean(unknown[:, None] < known) > 0.9


def test_copies_are_found_by_signed_features():
    rng = np.random.default_rng(5)
    means = rng.standard_normal((40, 128)) + 4  # much in common, as tokens have
    means[1::4] = means[::4] + 0.01 * rng.standard_normal((10, 128))
    for shift in (0.0, -4.0):
        groups = copy_groups((means + shift).astype(np.float32))
        assert (groups[1::4] == groups[::4]).all()
        assert len(np.unique(groups)) == 30


@pytest.mark.parametrize("name", ["pooled-svm(scales=each)", "pooled-svm(scales=all)", "adapted(scales=each)"])
def test_the_pooled_image_is_as_good_a_baseline_by_signed_features(name):
    """A weak baseline would make parts look good."""

    def accuracy(shift: np.ndarray | float) -> float:
        train, test = (Bags(*two_levels(changed(bags, shift))) for bags in (TRAIN, TEST))
        voter = make_voter(name)
        if name.startswith("adapted"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                voter.fit(train, LABELS, [test], [None] * len(test))
        else:
            voter.fit(train, LABELS)
        return float(np.mean(voter.predict(test) == EXPECTED))

    rectified = accuracy(0.0)
    assert rectified > 0.8
    assert min(accuracy(shift(MEAN)) for shift in SHIFTS.values()) > rectified - 0.05


def two_levels(bags: Bags):
    """Return the fields of bags whose first four descriptors are of the first scale, and all others of the second."""
    return bags.values, bags.offsets, bags.boxes, np.where(np.arange(len(bags.values)) % 10 < 4, 1, 2).astype(np.int16)


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


@pytest.mark.parametrize("voter", ["bag-svm", "moment-svm", "snbnl"])
def test_a_model_of_signed_features_answers_after_export_as_before(voter, signed_network, photo_folder, tmp_path):
    recipe = Recipe(signed_network, Dense(sides=(64, 96)))
    classifier = ImageClassifier(recipe, voter=voter, cache=False).fit(photo_folder)
    assert classifier.model.scorer.settings.get("power", 1) == 1
    export_model(classifier.model, tmp_path / "m.onnx")
    pixels = np.random.default_rng(6).integers(0, 256, (70, 96, 3), dtype=np.uint8)
    evidence = classifier.explain([pixels])
    assert (classifier._extractor([pixels]).values < 0).any()
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = [value.name for value in session.get_outputs()]
    answers = dict(zip(names, session.run(None, {"photo": pixels}), strict=True))
    np.testing.assert_allclose(answers["probability"], evidence.probability, atol=1e-4)
    np.testing.assert_allclose(answers["scores"], evidence.decision, atol=1e-4 * np.abs(evidence.votes).max())
    if evidence.familiarity is not None:
        np.testing.assert_allclose(answers["familiarity"], [evidence.familiarity], atol=1e-3)
    total = evidence.map(evidence.ranking[0], 20, 14).sum()
    assert total == pytest.approx(evidence.decision[evidence.number(evidence.ranking[0])], abs=1e-6)
