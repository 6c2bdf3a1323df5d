"""Answers and measurements go from photo to photo: what is held does not grow with the number of photos."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNN, Bags, ImageClassifier, MomentRidge, Store
from patchvote.bags.extract import _Pipeline
from patchvote.models.scores import WORST
from patchvote.voters import base
from test_scale import make_store


@pytest.fixture
def alive(monkeypatch):
    """Numbers of bags of photos in memory, each time that one more is made."""
    living: weakref.WeakSet[Bags] = weakref.WeakSet()
    counts: list[int] = []
    original = _Pipeline._bag

    def made(self, *what):
        bag = original(self, *what)
        living.add(bag)
        counts.append(len(living))
        return bag

    monkeypatch.setattr(_Pipeline, "_bag", made)
    return counts


def photos(count: int) -> tuple[list[np.ndarray], list[str]]:
    rng, labels = np.random.default_rng(0), ["dark", "light"] * (count // 2)
    return [(rng.integers(0, 160, (64, 64, 3)) + 90 * (label == "light")).astype(np.uint8) for label in labels], labels


@pytest.mark.parametrize("voter", ["moment-ridge", "nbnn"])
def test_predicting_and_evaluating_hold_as_many_bags_for_many_photos_as_for_few(voter, alive):
    classifier = ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(), cache=False, jobs=1).fit(*photos(12))
    most = {}
    for count in (40, 160):
        many, labels = photos(count)
        alive.clear()
        classifier.predict(many)
        assert len(alive) == count
        most["predict", count] = max(alive)
        alive.clear()
        for _ in classifier.answers(many):
            pass
        most["answers", count] = max(alive)
        alive.clear()
        wrong = ["light" if label == "dark" else "dark" for label in labels]  # every photo is a mistake
        classifier.evaluate(many, wrong)
        most["evaluate", count] = max(alive)
    assert max(most["predict", 160], most["answers", 160]) <= 4
    assert most["evaluate", 40] == most["evaluate", 160] <= WORST + 4


@pytest.mark.parametrize("voter", [NBNN().set_options(calibration=0), MomentRidge()], ids=str)
def test_a_store_is_predicted_block_by_block(voter, tmp_path, monkeypatch):
    store, loaded = make_store(tmp_path), []
    voter.fit(store)
    expected = voter.predict_proba(store.load()[0])
    original = Store.load

    def spy(self, indices=None, dtype=np.float32):
        bags, labels = original(self, indices, dtype)
        loaded.append(len(bags.values))
        return bags, labels

    monkeypatch.setattr(Store, "load", spy)
    monkeypatch.setattr(base, "_AT_ONCE", 100)
    np.testing.assert_allclose(voter.predict_proba(store), expected, atol=1e-6)
    assert (max(loaded), sum(loaded)) == (100, 1200)
