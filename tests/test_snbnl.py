from __future__ import annotations

import math

import numpy as np
import pytest

from patchvote import SNBNL, Bags, Recipe, Store
from patchvote.bags.shards import Entry, write_shard
from test_stoml3 import literal_pseudocode
from test_voters import make_bags


def test_a_full_batch_fit_is_the_pseudocode_on_standardised_descriptors():
    bags, labels = make_bags(12)
    voter = SNBNL(2, alpha=0.1, batch_size=10**6, max_iter=30, min_steps=0, calibration=0, curvature=4.0).fit(
        bags, labels
    )
    x = np.concatenate(bags)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = np.repeat(np.unique(labels, return_inverse=True)[1], [len(bag) for bag in bags])
    start = SNBNL(2, max_iter=1, min_steps=0, batch_size=10**6, calibration=0, alpha=0.1, curvature=4.0)
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


def test_one_prototype_votes_with_a_rectified_linear_function():
    bags, labels = make_bags(12)
    voter = SNBNL(1).fit(bags, labels)
    x = (bags[0] - voter.mean_) * voter.scale_
    np.testing.assert_allclose(voter.votes([bags[0]]), np.maximum(x @ voter.weights_[0].T, 0), rtol=1e-6, atol=1e-9)


def test_several_prototypes_tell_apart_what_one_cannot():
    """Two classes, each in two opposite corners: no linear function names them, two prototypes a class do."""
    rng = np.random.default_rng(0)
    corner = rng.choice([-1.0, 1.0], size=(400, 2))
    labels = np.where(corner[:, 0] * corner[:, 1] > 0, "same", "different")
    points = corner + rng.normal(scale=0.2, size=corner.shape)
    started = {"start": "kmeans", "start_scale": 0.1}  # random starts may fall into the same corner
    one, two = (SNBNL(k, **started).fit(points, labels).score(points, labels) for k in (1, 2))
    assert one < 0.85
    assert two > 0.98


def test_a_store_and_its_bags_give_the_same_voter_and_blocks_a_like_one(tmp_path):
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
    in_blocks = SNBNL(block=100, batch_size=50).fit(store)
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
    assert SNBNL(4, start=start, start_scale=0.05).fit(bags, labels).score(test, expected) > 0.85


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


def test_partial_fit_continues_the_steps_of_fit():
    bags, labels = make_bags(30)
    voter = SNBNL(2).fit(bags, labels)
    steps = voter.steps_
    voter.partial_fit(bags, labels)
    assert voter.steps_ == steps + 1


def test_classes_can_be_announced():
    bags, labels = make_bags(30)
    voter = SNBNL(2).partial_fit(bags, labels, classes=["moon", "land", "sea", "sky"])
    assert voter.classes_.tolist() == ["land", "moon", "sea", "sky"]
    assert voter.predict_proba(bags).shape == (30, 4)


def test_dead_prototypes_are_counted_and_seeded_anew():
    bags, labels = make_bags(60)
    x = [np.abs(bag) for bag in bags]  # all features positive: a prototype of negative numbers is never excited
    voter = SNBNL(3, standardise=False, batch_size=100, max_iter=3, min_steps=0, calibration=0)
    voter._first_prototypes = lambda data, rng: np.full((3, 3, 8), -0.1)
    voter.fit(x, labels)
    assert voter.history_[0]["dead"] == 9
    assert voter.history_[-1]["dead"] < 9
    assert voter.weights_.max() > 0


def test_dead_prototypes_are_counted_when_more_is_learned():
    bags, labels = make_bags(60)
    x = [np.abs(bag) for bag in bags]
    voter = SNBNL(3, standardise=False, calibration=0).fit(x, labels)
    voter.weights_[0] = -1e6  # one prototype of each class is never excited
    assert voter.partial_fit(x, labels).dead_prototypes_ >= 3


def test_weights_of_classes_and_images_shift_the_decision():
    bags, labels = make_bags(60, classes=2)
    plain = SNBNL(2, calibration=0).fit(bags, labels)
    heavy = SNBNL(2, calibration=0, class_weight={"land": 50, "sea": 1}).fit(bags, labels)
    assert (heavy.predict(bags) == "land").sum() >= (plain.predict(bags) == "land").sum()
    assert heavy.decision_function(bags).mean() < plain.decision_function(bags).mean()
    weights = np.where(labels == "land", 50.0, 1.0)
    same = SNBNL(2, calibration=0).fit(bags, labels, sample_weight=weights)
    np.testing.assert_allclose(same.decision_function(bags), heavy.decision_function(bags), rtol=1e-6)
    with pytest.raises(ValueError, match="must not be negative"):
        SNBNL().fit(bags, labels, sample_weight=-weights)


def test_balanced_weights_count_only_the_classes_and_images_that_are_there():
    bags, labels = make_bags(60)
    voter = SNBNL(2, calibration=0, class_weight="balanced")
    voter.partial_fit(bags, labels, classes=["moon", "land", "sea", "sky"])
    some = labels != "sea"
    voter.partial_fit([bag for bag, chosen in zip(bags, some, strict=True) if chosen], labels[some])
    assert voter.classes_.tolist() == ["land", "moon", "sea", "sky"]
    used = np.ones(60)
    used[np.flatnonzero(labels == "land")[3:]] = 0
    left = np.flatnonzero(used)
    all_but_unused = SNBNL(2, calibration=0, class_weight="balanced").fit(bags, labels, used)
    without = SNBNL(2, calibration=0, class_weight="balanced").fit([bags[i] for i in left], labels[left])
    np.testing.assert_allclose(all_but_unused.weights_, without.weights_)


def test_held_out_images_stop_the_training_and_the_best_prototypes_stay():
    bags, labels = make_bags(90)
    voter = SNBNL(2, validation_fraction=0.3, max_iter=40, min_steps=0, batch_size=50, calibration=0).fit(bags, labels)
    accuracy = [told["held_out_accuracy"] for told in voter.history_]
    assert len(accuracy) < 40
    assert max(accuracy) == accuracy[-3]  # two passes without a better one end it


def test_a_callback_sees_every_pass_and_can_end_it():
    bags, labels = make_bags(30)
    told = []
    SNBNL(2, max_iter=5, min_steps=0, calibration=0, callback=told.append).fit(bags, labels)
    assert [part["pass"] for part in told] == [1, 2, 3, 4, 5]
    assert told[-1]["loss"] < told[0]["loss"]
    voter = SNBNL(2, max_iter=5, min_steps=0, calibration=0, callback=lambda part: part["pass"] == 2).fit(bags, labels)
    assert len(voter.history_) == 2


def test_averaging_gives_the_mean_of_the_last_pass():
    bags, labels = make_bags(30)
    settings = {"max_iter": 3, "min_steps": 0, "batch_size": 10**6, "calibration": 0}
    last, mean = (SNBNL(2, average=average, **settings).fit(bags, labels).weights_ for average in (False, True))
    np.testing.assert_allclose(mean, last)  # one step a pass: the mean of one
    several = SNBNL(2, average=True, max_iter=3, min_steps=0, batch_size=20, calibration=0).fit(bags, labels)
    plain = SNBNL(2, average=False, max_iter=3, min_steps=0, batch_size=20, calibration=0).fit(bags, labels)
    assert not np.allclose(several.weights_, plain.weights_)


def test_probabilities_are_calibrated_on_held_out_images():
    bags, labels = make_bags(600)
    test, expected = make_bags(600, seed=2)
    calibrated, raw = SNBNL(2).fit(bags, labels), SNBNL(2, calibration=0).fit(bags, labels)
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
        ("validation_fraction", 1.0, "validation_fraction of SNBNL"),
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
