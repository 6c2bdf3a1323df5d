"""Answers and measurements go from photo to photo: what is held does not grow with the number of photos."""

from __future__ import annotations

import tracemalloc
import weakref

import numpy as np
import pytest
from patchvote.protocols.joined_store import JoinedStore
from patchvote.protocols.memory import test_bags as bags_of_tests

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNN, Bags, BagSVM, ImageClassifier, Patch, PatchvoteError, Recipe, Store
from patchvote.bags.entries import Entry
from patchvote.bags.extract import _Pipeline
from patchvote.bags.shard_writing import write_shard
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


@pytest.mark.parametrize("voter", ["bag-svm", "nbnn"])
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


@pytest.mark.parametrize("voter", [NBNN(calibration=0), BagSVM()], ids=str)
def test_a_store_is_predicted_block_by_block(voter, tmp_path, monkeypatch):
    store, loaded = make_store(tmp_path), []
    voter.fit(store)
    expected = voter.predict_proba(store.load()[0])
    original = Store._load

    def spy(self, chosen, dtype):
        loaded.append(int(self.sizes[chosen].sum()))
        return original(self, chosen, dtype)

    monkeypatch.setattr(Store, "_load", spy)
    monkeypatch.setattr(base, "_AT_ONCE", 100)
    np.testing.assert_allclose(voter.predict_proba(store), expected, atol=1e-6)
    assert (max(loaded), sum(loaded)) == (100, 1200)


# --- protocols --------------------------------------------------------------------------------------------------------


def patches(folder, photos: int, dim: int, seed: int, shift: float = 0.0) -> Store:
    """A store of patches of random photos; all stores have them at the same positions, but for a shift."""
    rng, boxes = np.random.default_rng(seed), np.random.default_rng(9).uniform(0, 0.4, (40, 2))
    boxes = np.concatenate([boxes + shift, boxes + shift + 0.3], axis=1)
    folder.mkdir()
    bags = [Bags(rng.random((40, dim)).astype(np.float16), [0, 40], boxes) for _ in range(photos)]
    entries = [Entry(f"{index:04d}", "ab"[index % 2], str(index)) for index in range(photos)]
    write_shard(folder, Recipe(sampling=Patch()), "f", entries, bags)
    return Store.open(folder)


def test_descriptors_of_several_networks_are_joined_a_few_photos_at_a_time(tmp_path, monkeypatch):
    parts = [patches(tmp_path / str(dim), 60, dim, seed=dim) for dim in (200, 300)]
    store = JoinedStore(parts)
    expected = np.concatenate([part.load()[0].values for part in parts], axis=1)
    for dims in (slice(0, 200), slice(200, 500)):
        expected[:, dims] /= np.linalg.norm(expected[:, dims], axis=1, keepdims=True)
    monkeypatch.setattr("patchvote.protocols.joined_store._AT_ONCE", 200)
    tracemalloc.start()
    try:
        bags, labels = store.load()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(bags.values, expected, rtol=1e-5)
    assert labels.tolist() == store.labels.tolist()
    result = bags.values.nbytes + bags.boxes.nbytes + bags.level.nbytes
    assert peak < 1.5 * result  # 2.5 times, if all photos of all networks are in memory
    chosen, some = store.load([7, 3])
    np.testing.assert_array_equal(chosen.values, bags[[7, 3]].values)
    assert some.tolist() == ["b", "b"]


def test_networks_that_look_at_other_places_are_not_joined(tmp_path):
    parts = [patches(tmp_path / "one", 6, 4, seed=1), patches(tmp_path / "other", 6, 4, seed=2, shift=0.1)]
    with pytest.raises(PatchvoteError, match="networks can be joined only where their descriptors are at the same"):
        JoinedStore(parts).load()


def test_test_photos_beyond_the_budget_come_in_blocks_of_a_quarter_of_it(tmp_path):
    store = make_store(tmp_path)
    budget = 4 * 100 * (4 * 8 + 18)  # four blocks of 100 descriptors
    (tests,) = bags_of_tests([store], budget)
    assert [len(bags.values) for bags in tests.blocks()] == [100] * 12
    (kept,) = bags_of_tests([store], 100 * budget)
    assert [len(bags.values) for bags in kept.blocks()] == [1200]
