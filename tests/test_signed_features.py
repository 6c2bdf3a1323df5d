"""Signed features, as tokens of transformers have them: every voter is right and good for them.

Features of a rectified network are shifted feature by feature, so that they get signs and offsets and tell no less than
before. Voters that subtract means give the same answers; all others name as many photos.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from patchvote import Bags
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
