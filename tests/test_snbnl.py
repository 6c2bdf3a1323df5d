from __future__ import annotations

import math

import numpy as np
import pytest

from patchvote import SNBNL, Bags, Recipe, Store
from patchvote.bags.shards import Entry, write_shard
from patchvote.voters.minibatches import Limits
from test_ml3 import literal_pseudocode
from test_voters import make_bags


def not_standardised(self, data):
    self.mean_, self.scale_ = np.zeros(data.dim), np.ones(data.dim)


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(SNBNL, "min_steps", 0)


def test_a_full_batch_fit_is_the_pseudocode_on_standardised_descriptors(few_steps):
    bags, labels = make_bags(12)
    settings = {"alpha": 0.1, "batch_size": 10**6, "curvature": 4.0}
    voter = SNBNL(2, max_iter=30, **settings).set_options(calibration=0).fit(bags, labels)
    x = np.concatenate(bags)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = np.repeat(np.unique(labels, return_inverse=True)[1], [len(bag) for bag in bags])
    start = SNBNL(2, max_iter=1, **settings).set_options(calibration=0)
    starts: list[np.ndarray] = []
    original = start._first_prototypes
    start._first_prototypes = lambda data, rng: starts.append(original(data, rng).copy()) or starts[0].copy()
    start.fit(bags, labels)
    expected = literal_pseudocode(starts[0].transpose(1, 0, 2), [(x, y)] * 30, 0.1, 2, 4.0).transpose(1, 0, 2)
    np.testing.assert_allclose(voter.weights_, expected, atol=1e-8)


def test_votes_are_phi_of_the_products_with_the_prototypes():
    bags, labels = make_bags(12)
    for q in (1, 2, math.inf):
        voter = SNBNL(3, q=q).fit(bags, labels)
        x = (bags[0] - voter.mean_) * voter.scale_
        for row, descriptor in enumerate(x):
            z = np.maximum(voter.weights_ @ descriptor, 0)
            expected = z.max(axis=0) if q == math.inf else (z**q).sum(axis=0) ** (1 / q)
            np.testing.assert_allclose(voter.votes([bags[0]])[row], expected, rtol=1e-6, atol=1e-9)


def test_several_prototypes_tell_apart_what_one_cannot():
    """Two classes, each in two opposite corners: no linear function names them, two prototypes a class do."""
    rng = np.random.default_rng(0)
    corner = rng.choice([-1.0, 1.0], size=(400, 2))
    labels = np.where(corner[:, 0] * corner[:, 1] > 0, "same", "different")
    points = corner + rng.normal(scale=0.2, size=corner.shape)
    started = {"start": "kmeans"}  # random starts may fall into the same corner
    one, two = (SNBNL(k, **started).fit(points, labels).score(points, labels) for k in (1, 2))
    assert one < 0.85
    assert two > 0.98


def test_a_store_and_its_bags_give_the_same_voter_and_blocks_a_like_one(tmp_path, monkeypatch):
    bags, labels = make_bags(60)
    half = [bag.astype(np.float16) for bag in bags]
    for start in range(0, 60, 20):
        part = range(start, start + 20)
        entries = [Entry(f"{index:03d}", str(labels[index]), f"{index}") for index in part]
        boxes = [np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (len(half[i]), 1)) for i in part]
        made = [Bags(half[i], [0, len(half[i])], box) for i, box in zip(part, boxes, strict=True)]
        write_shard(tmp_path, Recipe(), "f", entries, made)
    store = Store.open(tmp_path)
    loaded, names = store.load()
    test, expected = make_bags(60, seed=2)
    from_store = SNBNL().fit(store)
    from_bags = SNBNL().fit(loaded, names)
    np.testing.assert_allclose(from_store.decision_function(test), from_bags.decision_function(test), rtol=1e-4)
    monkeypatch.setattr("patchvote.voters.snbnl.limits", lambda *_, **__: Limits(100, 100))
    in_blocks = SNBNL(batch_size=50).fit(store)
    assert in_blocks.score(test, expected) > 0.85


def test_a_store_with_an_unlabelled_photo_names_it(tmp_path):
    bags, _ = make_bags(2)
    entries = [Entry("a.jpg", "sea", "1"), Entry("b.jpg", None, "2")]
    write_shard(tmp_path, Recipe(), "f", entries, [Bags.of([bag.astype(np.float16)]) for bag in bags])
    with pytest.raises(ValueError, match="b.jpg has no label"):
        SNBNL().fit(Store.open(tmp_path))
    with pytest.raises(ValueError, match="labels must be all of one type"):
        SNBNL().fit(Store.open(tmp_path), ["sea", "land", None])


@pytest.mark.parametrize("start", ["random", "data", "kmeans"])
def test_every_start_learns(start):
    bags, labels = make_bags(60)
    test, expected = make_bags(60, seed=2)
    assert SNBNL(4, start=start).fit(bags, labels).score(test, expected) > 0.85


def test_partial_fit_takes_images_in_portions_and_new_classes_later():
    bags, labels = make_bags(240, classes=4)
    test, expected = make_bags(60, classes=4, seed=2)
    early = np.isin(labels, ["land", "sky"])
    voter = SNBNL(2, batch_size=100)
    for index in range(0, 120, 30):
        chosen = np.flatnonzero(early)[index : index + 30]
        voter.partial_fit([bags[i] for i in chosen], labels[chosen])
    assert voter.classes_.tolist() == ["land", "sky"]
    before = voter.weights_.copy()
    voter.partial_fit(bags, labels)
    assert voter.classes_.tolist() == ["land", "sea", "sky", "town"]
    assert voter.weights_.shape == (2, 4, 8)
    assert not np.array_equal(voter.weights_[:, [0, 2]], before)
    for _ in range(5):
        voter.partial_fit(bags, labels)
    assert voter.score(test, expected) > 0.85
    assert voter.partial_fit([bags[0]], labels[:1]).score(test, expected) > 0.85


def test_dead_prototypes_are_counted_and_seeded_anew(few_steps, monkeypatch):
    bags, labels = make_bags(60)
    x = [np.abs(bag) for bag in bags]  # all features positive: a prototype of negative numbers is never excited
    monkeypatch.setattr(SNBNL, "_standardise", not_standardised)
    voter = SNBNL(3, batch_size=100, max_iter=3).set_options(calibration=0)
    voter._first_prototypes = lambda data, rng: np.full((3, 3, 8), -0.1)
    voter.fit(x, labels)
    assert voter.history_[0]["dead"] == 9
    assert voter.history_[-1]["dead"] < 9
    assert voter.weights_.max() > 0


def test_dead_prototypes_are_counted_when_more_is_learned(monkeypatch):
    bags, labels = make_bags(60)
    x = [np.abs(bag) for bag in bags]
    monkeypatch.setattr(SNBNL, "_standardise", not_standardised)
    voter = SNBNL(3).set_options(calibration=0).fit(x, labels)
    voter.weights_[0] = -1e6  # one prototype of each class is never excited
    assert voter.partial_fit(x, labels).dead_prototypes_ >= 3


def test_weights_of_classes_and_images_shift_the_decision():
    bags, labels = make_bags(60, classes=2)
    plain = SNBNL(2).set_options(calibration=0).fit(bags, labels)
    heavy = SNBNL(2, class_weight={"land": 50, "sea": 1}).set_options(calibration=0).fit(bags, labels)
    assert (heavy.predict(bags) == "land").sum() >= (plain.predict(bags) == "land").sum()
    assert heavy.decision_function(bags).mean() < plain.decision_function(bags).mean()
    weights = np.where(labels == "land", 50.0, 1.0)
    same = SNBNL(2).set_options(calibration=0).fit(bags, labels, sample_weight=weights)
    np.testing.assert_allclose(same.decision_function(bags), heavy.decision_function(bags), rtol=1e-6)
    with pytest.raises(ValueError, match="must not be negative"):
        SNBNL().fit(bags, labels, sample_weight=-weights)


def test_balanced_weights_count_only_the_classes_and_images_that_are_there():
    bags, labels = make_bags(60)
    voter = SNBNL(2, class_weight="balanced").set_options(calibration=0)
    voter.partial_fit(bags, labels, classes=["moon", "land", "sea", "sky"])
    some = labels != "sea"
    voter.partial_fit([bag for bag, chosen in zip(bags, some, strict=True) if chosen], labels[some])
    assert voter.classes_.tolist() == ["land", "moon", "sea", "sky"]
    used = np.ones(60)
    used[np.flatnonzero(labels == "land")[3:]] = 0
    left = np.flatnonzero(used)
    all_but_unused = SNBNL(2, class_weight="balanced").set_options(calibration=0).fit(bags, labels, used)
    without = SNBNL(2, class_weight="balanced").set_options(calibration=0).fit([bags[i] for i in left], labels[left])
    np.testing.assert_allclose(all_but_unused.weights_, without.weights_)


def test_a_callback_sees_every_pass_and_can_end_it(few_steps):
    bags, labels = make_bags(30)
    told = []
    SNBNL(2, max_iter=5).set_options(calibration=0, callback=told.append).fit(bags, labels)
    assert [part["pass"] for part in told] == [1, 2, 3, 4, 5]
    assert told[-1]["loss"] < told[0]["loss"]
    voter = SNBNL(2, max_iter=5).set_options(calibration=0, callback=lambda part: part["pass"] == 2).fit(bags, labels)
    assert len(voter.history_) == 2


def test_probabilities_are_calibrated_on_held_out_images():
    bags, labels = make_bags(600)
    test, expected = make_bags(600, seed=2)
    calibrated, raw = SNBNL(2).fit(bags, labels), SNBNL(2).set_options(calibration=0).fit(bags, labels)
    np.testing.assert_allclose(calibrated.weights_, raw.weights_)  # the final training uses all images

    def log_loss(voter):
        probability = voter.predict_proba(test)
        return -np.log(probability[np.arange(600), np.searchsorted(voter.classes_, expected)]).mean()

    assert log_loss(calibrated) < log_loss(raw)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("n_prototypes", 0, "n_prototypes of SNBNL must be a whole number of at least 1, got 0"),
        ("n_prototypes", 2.5, "n_prototypes of SNBNL must be a whole number"),
        ("q", 0.5, "q of SNBNL must be a number from 1 to 1e[+]30, got 0.5"),
        ("alpha", -1, "alpha of SNBNL"),
        ("curvature", 0, "curvature of SNBNL"),
        ("batch_size", 0, "batch_size of SNBNL"),
        ("start", "middle", "start of SNBNL must be one of 'random', 'data', 'kmeans', got 'middle'"),
        ("alpha", math.nan, "alpha of SNBNL"),
    ],
)
def test_impossible_settings_are_refused_by_name(setting, value, says):
    bags, labels = make_bags(12)
    with pytest.raises(ValueError, match=says):
        SNBNL(**{setting: value}).fit(bags, labels)


@pytest.mark.data
def test_scene_photos_are_named(data):
    from patchvote import Extractor, find_photos

    photos = [photo for photo in find_photos(data / "scene15") if photo.label in ("bedroom", "coast", "forest")]
    chosen = [
        photo for label in ("bedroom", "coast", "forest") for photo in [p for p in photos if p.label == label][:20]
    ]
    labels = np.array([photo.label for photo in chosen])
    bags = Extractor()(chosen)
    train = np.arange(60) % 20 < 10
    assert SNBNL().fit(bags[train], labels[train]).score(bags[~train], labels[~train]) > 0.9
