from __future__ import annotations

import math

import numpy as np
import pytest

from patchvote import SNBNL, Recipe, Store
from patchvote.bags.bags import Bags
from patchvote.bags.shards import Entry, write_shard
from test_ml3 import literal_pseudocode
from test_scale import make_store
from test_voters import make_bags


def quick(prototypes=2, *, callback=None, **settings) -> SNBNL:
    return SNBNL(prototypes, **settings).set_options(callback=callback)


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(SNBNL, "min_steps", 0)


@pytest.fixture
def not_standardised(monkeypatch):
    def standardise(self, data):
        self.mean_, self.scale_ = np.zeros(data.dim), np.ones(data.dim)

    monkeypatch.setattr(SNBNL, "_standardise", standardise)


def test_a_full_batch_fit_is_the_pseudocode_on_standardised_descriptors(few_steps):
    bags, labels = make_bags(12)
    settings = {"alpha": 0.1, "batch_size": 10**6, "curvature": 4.0}
    voter, starts = quick(max_iter=30, **settings), []
    original = voter._first_prototypes
    voter._first_prototypes = lambda data, rng: starts.append(original(data, rng)) or starts[0].copy()
    voter.fit(bags, labels)
    x = np.concatenate(bags)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = np.repeat(np.unique(labels, return_inverse=True)[1], [len(bag) for bag in bags])
    expected = literal_pseudocode(starts[0].transpose(1, 0, 2), [(x, y)] * 30, 0.1, 2, 4.0).transpose(1, 0, 2)
    np.testing.assert_allclose(voter.weights_, expected, atol=1e-8)


@pytest.mark.parametrize("q", [1, 2, math.inf])
def test_votes_are_phi_of_the_products_with_the_prototypes(q):
    bags, labels = make_bags(12)
    voter = SNBNL(3, q=q).fit(bags, labels)
    for vote, descriptor in zip(voter.votes([bags[0]]), (bags[0] - voter.mean_) * voter.scale_, strict=True):
        z = np.maximum(voter.weights_ @ descriptor, 0)
        expected = z.max(axis=0) if q == math.inf else (z**q).sum(axis=0) ** (1 / q)
        np.testing.assert_allclose(vote, expected, rtol=1e-6, atol=1e-9)


def test_several_prototypes_tell_apart_what_one_cannot():
    """Two classes, each in two opposite corners: no linear function names them, two prototypes per class do."""
    rng = np.random.default_rng(0)
    corner = rng.choice([-1.0, 1.0], size=(400, 2))
    labels = np.where(corner[:, 0] * corner[:, 1] > 0, "same", "different")
    points = corner + rng.normal(scale=0.2, size=corner.shape)
    # Random starts may fall into the same corner.
    one, two = (SNBNL(k, start="kmeans").fit(points, labels).score(points, labels) for k in (1, 2))
    assert one < 0.85
    assert two > 0.98


@pytest.mark.parametrize("start", ["random", "data", "kmeans"])
def test_a_store_and_its_bags_give_the_same_voter_and_blocks_a_like_one_with_every_start(start, tmp_path, monkeypatch):
    store, test = make_store(tmp_path / "train"), make_store(tmp_path / "test", seed=2)
    from_store, from_bags = quick(start=start).fit(store), quick(start=start).fit(*store.load())
    if start == "random":  # others are drawn from descriptors in the order in which they are read
        np.testing.assert_allclose(from_store.decision_function(test), from_bags.decision_function(test), rtol=1e-4)
    assert from_store.score(test, test.labels) > 0.85
    monkeypatch.setattr("patchvote.voters.snbnl.most_in_memory", lambda *_: 600)
    assert quick(start=start, batch_size=50).fit(store).score(test, test.labels) > 0.85


def test_a_store_with_an_unlabelled_photo_names_it(tmp_path):
    bags, _ = make_bags(2)
    entries = [Entry("a.jpg", "sea", "1"), Entry("b.jpg", None, "2")]
    write_shard(tmp_path, Recipe(), "f", entries, [Bags.of([bag.astype(np.float16)]) for bag in bags])
    for labels, says in ((None, "b.jpg"), (["sea", "land", None], "one type")):
        with pytest.raises(ValueError, match=says):
            SNBNL().fit(Store.open(tmp_path), labels)


def test_partial_fit_takes_images_in_portions_and_new_classes_later():
    bags, labels = make_bags(240, classes=4)
    test, expected = make_bags(60, classes=4, seed=2)
    early = np.flatnonzero(np.isin(labels, ["land", "sky"]))
    voter = SNBNL(2, batch_size=100)
    for index in range(0, 120, 30):
        chosen = early[index : index + 30]
        voter.partial_fit([bags[i] for i in chosen], labels[chosen])
    assert voter.classes_.tolist() == ["land", "sky"]
    for _ in range(6):
        voter.partial_fit(bags, labels)
    assert voter.classes_.tolist() == ["land", "sea", "sky", "town"]
    assert voter.weights_.shape == (2, 4, 8)
    assert voter.partial_fit([bags[0]], labels[:1]).score(test, expected) > 0.85


def test_dead_prototypes_are_counted_and_seeded_anew(few_steps, not_standardised):
    bags, labels = make_bags(60)
    x = [np.abs(bag) for bag in bags]  # all features positive: a prototype of negative numbers is never excited
    voter = quick(3, batch_size=100, max_iter=3)
    voter._first_prototypes = lambda data, rng: np.full((3, 3, 8), -0.1)
    voter.fit(x, labels)
    assert voter.history_[0]["dead"] == 9
    assert voter.history_[-1]["dead"] < 9
    assert voter.weights_.max() > 0
    voter.weights_[0] = -1e6  # one prototype of each class is never excited
    assert voter.partial_fit(x, labels).dead_prototypes_ >= 3


def test_balanced_weights_count_only_the_classes_and_images_that_are_there():
    bags, labels = make_bags(60)
    voter = quick(class_weight="balanced")
    voter.partial_fit(bags, labels, classes=["moon", "land", "sea", "sky"])
    assert voter.classes_.tolist() == ["land", "moon", "sea", "sky"]
    used = np.ones(60)
    used[np.flatnonzero(labels == "land")[3:]] = 0
    left = np.flatnonzero(used)
    without = quick(class_weight="balanced").fit([bags[i] for i in left], labels[left])
    np.testing.assert_allclose(quick(class_weight="balanced").fit(bags, labels, used).weights_, without.weights_)
