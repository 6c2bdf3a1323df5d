"""Probabilities in protocols: every voter is calibrated on held-out training images where a protocol says so."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.page.tables import NETWORK
from experiments.results import Results, Run
from experiments.voters import VOTERS, make_voter
from patchvote import Bags
from patchvote.voters import registry
from patchvote.voters.calibration import fit_temperature, threshold_for
from patchvote.voters.labels import hold_out
from patchvote.voters.votes import softmax
from test_protocols import OWN, run

POOLED = ("whole-svm", "whole-logistic", "mean-svm", "pooled-svm", "mop(features=4,centres=3)", "bag-svm")


def scenes(count: int = 90, seed: int = 0, classes: int = 3) -> tuple[Bags, np.ndarray]:
    """Images of classes that overlap: a whole image, 2 cells of a first scale and 4 of a second."""
    rng = np.random.default_rng(seed)
    numbers = np.arange(count) % classes
    level = np.tile([0, 1, 1, 2, 2, 2, 2], count).astype(np.int16)
    values = rng.random((7 * count, 6)) + 0.5 * np.eye(6)[np.repeat(numbers, 7)]
    return Bags(values.astype(np.float32), np.arange(count + 1) * 7, None, level), np.array(["a", "b", "c"])[numbers]


@pytest.mark.parametrize("name", POOLED)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_baseline_is_calibrated_as_the_definition_says(name, classes):
    bags, labels = scenes(classes=classes)
    voter = make_voter(name, calibrated=True).fit(bags, labels)
    _, numbers = np.unique(labels, return_inverse=True)
    keep, out = hold_out(np.arange(len(labels)), numbers, 0.2, 0)
    vectors = voter._vectors(bags)
    values = voter._learned(vectors[keep], labels[keep]).decision_function(vectors[out])
    if classes == 2:
        values = np.column_stack([-values / 2, values / 2]) if values.ndim == 1 else values
    temperature = fit_temperature(values, numbers[out])
    assert voter.temperature_ == pytest.approx(temperature)
    expected = threshold_for(softmax(values / temperature), numbers[out], 0.05)
    assert voter.rejection_threshold_ == pytest.approx(expected)
    probability = voter.predict_proba(bags)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert (voter.classes_[probability.argmax(axis=1)] == voter.predict(bags)).all()
    assert (probability.max(axis=1) < voter.rejection_threshold_).any()  # some of the overlapping images are rejected


def test_calibration_does_not_change_the_answers_of_a_baseline():
    bags, labels = scenes()
    for name in POOLED:
        plain, calibrated = make_voter(name).fit(bags, labels), make_voter(name, calibrated=True).fit(bags, labels)
        assert (plain.predict(bags) == calibrated.predict(bags)).all()
        assert (plain.temperature_, plain.rejection_threshold_) == (1.0, 0.0)


def test_every_voter_holds_images_out_in_a_calibrated_protocol_and_only_there():
    # DA-NBNN has no probabilities, and the default voter knows its answers for photos that are left out.
    for name in {*VOTERS, *registry.OWN} - {"da-nbnn", "default", registry.DEFAULT}:
        plain, calibrated = (make_voter(name, calibrated=one) for one in (False, True))
        held_out = [getattr(voter, "options", voter).calibration for voter in (plain, calibrated)]
        assert held_out == [0, 0.2]


def test_few_images_leave_a_baseline_uncalibrated():
    bags, labels = scenes(30)
    assert make_voter("whole-svm", calibrated=True).fit(bags, labels).rejection_threshold_ == 0


def test_cells_say_whether_their_protocol_calibrates(photo_folder, tmp_path):
    (tmp_path / "textures.toml").write_text(
        OWN.replace("train = 5", "train = 7")
        .replace("test = 4", "test = 3")
        .replace("title", "calibrated = true\ntitle")
    )
    names = ("whole-svm", "snbnl")
    cells = {
        voter: cell
        for _, voter, cell in run(
            tmp_path / "textures.toml", photo_folder, tmp_path / "bags", tmp_path / "r", voters=names, splits=1
        )
    }
    keys = {"calibration_error", "rejected", "accepted_accuracy"}
    assert not any(keys & cell.keys() for cell in cells.values())  # 28 images are too few
    kept = Results(tmp_path / "r").read(Run("textures", "random", "snbnl", "dense-64", NETWORK))
    assert kept["calibrated"] is True
