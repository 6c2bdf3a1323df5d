"""Parts vote by what they show, where they stand and what else they show; the bag is trained as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from patchvote import (
    Adapted,
    Bags,
    BagSVM,
    Dense,
    ImageClassifier,
    ModelError,
    MomentSVM,
    PatchvoteError,
    Recipe,
    Store,
    export_model,
)
from patchvote import find_photos as photos_of
from patchvote.models.file import read_model, write_model
from patchvote.models.model import voter_of
from patchvote.photos.decode import load_image
from patchvote.voters.linear_svm import fit_linear
from patchvote.voters.moment_features import moment_vectors, moments, pair_count, places
from patchvote.voters.moment_votes import MomentVotes
from test_export import run


def make_bags(images: int = 8, seed: int = 0, shift: float = 1.5) -> tuple[Bags, np.ndarray]:
    """Bags of three classes: each has a feature of its own, in some of its parts."""
    rng = np.random.default_rng(seed)
    bags = []
    for number in np.repeat([0, 1, 2], images):
        size = int(rng.integers(6, 12))
        values = rng.gamma(1.0, 1.0, (size, 5)) + shift * np.eye(5)[number] * (rng.random((size, 1)) < 0.5)
        corner = rng.random((size, 2)) * 0.8
        boxes = np.hstack([corner, corner + 0.2]).astype(np.float32)
        bags.append(Bags(values.astype(np.float32), np.array([0, size]), boxes))
    return Bags.join(bags), np.repeat(["a", "b", "c"], images)


@pytest.fixture(scope="module")
def fitted() -> MomentSVM:
    return MomentSVM(pairs=3, calibration=0).fit(*make_bags())


# --- the definition -------------------------------------------------------------------------------------------------


def test_moments_equal_the_loops_of_the_definition():
    bags, _ = make_bags(2)
    rng = np.random.default_rng(1)
    directions, offset = rng.normal(size=(5, 3)), rng.normal(size=5)
    fast = moments(bags, 0.5, directions, offset)
    for number, bag in enumerate(bags):
        expected = np.zeros(4 * 5 + pair_count(3))
        for values, (left, top, right, bottom) in zip(bag.values, bag.boxes, strict=True):
            r = np.sqrt(values)
            a = (top + bottom) - 1  # -1 at the top, 1 at the bottom
            b = 4 * abs((left + right) / 2 - 0.5) - 1  # -1 in the middle, 1 at the edges
            y = (r - offset) @ directions
            products = [y[j] * y[k] * (1 if j == k else np.sqrt(2)) for j in range(3) for k in range(j, 3)]
            expected += np.concatenate([r, a * r, b * r, a * b * r, products])
        np.testing.assert_allclose(fast[number], expected / len(bag.values), rtol=2e-4, atol=1e-5)


def test_the_score_of_a_bag_is_the_mean_of_the_votes_of_its_parts(fitted):
    bags, _ = make_bags(4, seed=3)
    votes = fitted.votes(bags)
    means = [votes[start:stop].mean(axis=0) for start, stop in zip(bags.offsets[:-1], bags.offsets[1:], strict=True)]
    np.testing.assert_allclose(means, fitted.decision_function(bags), atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_order_of_parts_does_not_matter(fitted, seed):
    bags, _ = make_bags(1, seed=5)
    bag = bags[0]
    order = np.random.default_rng(seed).permutation(len(bag.values))
    mixed = Bags(bag.values[order], bag.offsets, bag.boxes[order])
    np.testing.assert_allclose(fitted.decision_function(mixed), fitted.decision_function(bag), atol=1e-5)


def test_brightness_of_a_photo_does_not_matter_without_products():
    bags, labels = make_bags()
    voter = MomentSVM(pairs=0, calibration=0).fit(bags, labels)
    brighter = Bags(bags.values * 3, bags.offsets, bags.boxes)
    np.testing.assert_allclose(voter.decision_function(brighter), voter.decision_function(bags), atol=1e-5)


# --- what parts know that a pooled image does not --------------------------------------------------------------------


def test_it_knows_where_a_part_stands():
    rng = np.random.default_rng(0)
    bags, labels = [], []
    for label in ("sky above", "sky below") * 12:
        y = rng.random(10).astype(np.float32) * 0.8
        above = y < 0.4
        sky = above if label == "sky above" else ~above
        values = np.stack([sky, ~sky], axis=1) + 0.1 * rng.random((10, 2))
        boxes = np.stack([np.full(10, 0.4), y, np.full(10, 0.6), y + 0.2], axis=1).astype(np.float32)
        bags.append(Bags(values, np.array([0, 10]), boxes))
        labels.append(label)
    train, test = Bags.join(bags[:16]), Bags.join(bags[16:])
    assert MomentSVM(calibration=0).fit(train, labels[:16]).score(test, labels[16:]) == 1
    assert MomentSVM(layout=0, calibration=0).fit(train, labels[:16]).score(test, labels[16:]) < 1


def test_it_knows_which_features_a_part_shows_together():
    rng = np.random.default_rng(0)
    together, apart = np.array([[1, 1], [0, 0]] * 5), np.array([[1, 0], [0, 1]] * 5)
    bags = [parts + 0.1 * rng.random((10, 2)) for _ in range(12) for parts in (together, apart)]
    labels = ["together", "apart"] * 12
    assert MomentSVM(calibration=0).fit(bags[:16], labels[:16]).score(bags[16:], labels[16:]) == 1
    assert BagSVM(calibration=0).fit(bags[:16], labels[:16]).score(bags[16:], labels[16:]) < 1
    assert MomentSVM(pairs=0, calibration=0).fit(bags[:16], labels[:16]).score(bags[16:], labels[16:]) < 1


# --- more images, other domains ------------------------------------------------------------------------


def test_the_places_of_a_box_are_those_of_its_centre():
    boxes = np.array([[0, 0, 1, 1], [0.4, 0.9, 0.6, 1.1], [0, 0.2, 0, 0.2]], np.float32)
    found = places(Bags(np.ones((3, 1)), np.array([0, 3]), boxes), slice(None))
    np.testing.assert_allclose(found, [[1, 0, -1, 0], [1, 1, -1, -1], [1, -0.6, 1, -0.6]], atol=1e-6)


def test_learning_in_two_parts_gives_the_function_of_learning_at_once():
    bags, labels = make_bags()
    voter = MomentSVM(pairs=0, calibration=0).fit(bags, labels)
    order = np.random.default_rng(0).permutation(len(bags))
    first, second = order[:12], order[12:]
    parts = MomentSVM(pairs=0, calibration=0).fit(bags[first], labels[first]).partial_fit(bags[second], labels[second])
    other, _ = make_bags(5, seed=9)
    np.testing.assert_allclose(parts.decision_function(other), voter.decision_function(other), atol=2e-2)


def test_a_new_class_is_learned_later():
    bags, labels = make_bags(shift=3)
    known = labels != "c"
    voter = MomentSVM(pairs=3, calibration=0).fit(bags[known], labels[known])
    voter.partial_fit(bags[~known], labels[~known])
    assert voter.classes_.tolist() == ["a", "b", "c"]
    test, expected = make_bags(10, seed=2, shift=3)
    assert voter.score(test, expected) > 0.8


def reddish_target() -> tuple[Bags, np.ndarray]:
    """Bags of another camera, which sees one of the features six times as strong."""
    target, labels = make_bags(25, seed=4, shift=3)
    return Bags(target.values * np.array([1, 1, 6, 1, 1], np.float32), target.offsets, target.boxes), labels


def test_its_model_is_adapted_as_a_bag_svm_of_the_same_photos():
    bags, labels = make_bags(25, shift=3)
    target, expected = reddish_target()
    plain = MomentSVM(C=0.5, pairs=3, class_weight="balanced").fit(bags, labels)
    task = plain.to_adapt()
    pooled = BagSVM(C=0.5, class_weight="balanced").fit(bags, labels)
    np.testing.assert_allclose(task.unadapted.decision_function(target), pooled.decision_function(target), atol=2e-2)
    assert task.unadapted.rejection_threshold_ == pytest.approx(pooled.rejection_threshold_, abs=2e-2)
    adapted = Adapted(task.voter).fit(task.bags, task.labels, target, unadapted=task.unadapted)
    assert adapted.score(target, expected) > plain.score(target, expected)
    assert adapted.scorer().kind == "bag-svm"


def test_what_the_model_of_means_rejects_stays_rejected_once_it_is_adapted():
    bags, labels = make_bags(25, shift=3)
    target, _ = reddish_target()
    task = MomentSVM(pairs=3).fit(bags, labels).to_adapt()
    adapted = Adapted(task.voter).fit(task.bags, task.labels, target, unadapted=task.unadapted)
    rejected = task.unadapted.predict_proba(target).max(axis=1) < task.unadapted.rejection_threshold_
    assert rejected.any()
    assert (adapted.predict_proba(target)[rejected].max(axis=1) < adapted.rejection_threshold_).all()


def test_a_model_of_few_photos_can_reject_when_it_is_adapted():
    bags, labels = make_bags(6, shift=3)
    task = MomentSVM(pairs=3).fit(bags, labels).to_adapt()
    assert 0.3 < task.unadapted.rejection_threshold_ < 1
    single = MomentSVM(pairs=3).fit(bags[::6], labels[::6]).to_adapt()  # nothing can be held out
    assert single.unadapted.rejection_threshold_ == 0


def test_photos_that_are_learned_later_are_adapted_as_well():
    bags, labels = make_bags(20, shift=3)
    order = np.random.default_rng(0).permutation(len(bags))
    first, second = order[:30], order[30:]
    voter = MomentSVM(pairs=3, calibration=0).fit(bags[first], labels[first]).partial_fit(bags[second], labels[second])
    np.testing.assert_allclose(voter.to_adapt().bags.values, bags[order].means(), rtol=2e-3, atol=1e-3)


def test_a_model_of_an_earlier_version_says_why_it_cannot_be_adapted(fitted):
    arrays = {name: values for name, values in fitted.scorer().arrays.items() if name != "means"}
    scorer = MomentVotes(arrays, fitted.scorer().settings, 3)
    scorer.check_all()
    voter = MomentSVM.from_scorer(scorer, np.array(["a", "b", "c"]))
    with pytest.raises(PatchvoteError, match="fit it again"):
        voter.to_adapt()


def test_weights_of_photos_count_when_the_model_is_adapted():
    bags, labels = make_bags(30, shift=3)
    wrong = np.arange(len(labels)) % 2 == 0
    mixed = np.where(wrong, np.roll(labels, 30), labels)
    task = MomentSVM(pairs=3).fit(bags, mixed, np.where(wrong, 1e-6, 1.0)).to_adapt()
    test, expected = make_bags(10, seed=2, shift=3)
    assert task.unadapted.score(test, expected) > 0.9
    assert task.weight is not None
    assert task.weight.min() < 1e-5


def test_copies_of_few_photos_do_not_make_it_surer_when_it_is_adapted():
    bags, _ = make_bags(4, shift=0)
    labels = np.random.default_rng(3).permutation(np.repeat(["a", "b", "c"], 4))
    once = MomentSVM(pairs=3).fit(bags, labels).to_adapt().unadapted
    twice = MomentSVM(pairs=3).fit(Bags.join([bags, bags]), np.tile(labels, 2)).to_adapt().unadapted
    assert twice.temperature_ > 0.8 * once.temperature_


# --- odd features ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-30, 1e-8, 1.0, 1e8])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_size_of_features_does_not_matter(factor, sign):
    bags, labels = make_bags(20, shift=3)
    values = (bags.values * sign * (factor if sign > 0 else max(factor, 1e-15))).astype(np.float32)
    scaled = Bags(values, bags.offsets, bags.boxes)
    assert MomentSVM(calibration=0).fit(scaled, labels).score(scaled, labels) > 0.95


def test_a_large_offset_of_features_hides_neither_classes_nor_evidence():
    bags, labels = make_bags(20, shift=3)
    moved = Bags(bags.values + 1e4, bags.offsets, bags.boxes)
    voter = MomentSVM(calibration=0).fit(moved, labels)
    assert voter.vectors_.dtype == np.float32  # which float16 would hide
    assert voter.score(moved, labels) > 0.9
    votes = voter.votes(moved)
    means = np.stack([votes[a:b].mean(axis=0) for a, b in zip(bags.offsets[:-1], bags.offsets[1:], strict=True)])
    assert (means.argmax(axis=1) == voter.decision_function(moved).argmax(axis=1)).mean() > 0.95


def test_photos_that_all_look_the_same_get_the_same_scores():
    voter = MomentSVM().fit([np.zeros((5, 4))] * 6, list("aabbcc"))
    assert np.ptp(voter.predict_proba([np.zeros((5, 4))])) < 0.01
    assert MomentSVM().fit([np.full((5, 4), 0.1)] * 6, list("aabbcc")).predict([np.ones((5, 4))]).shape == (1,)


def test_features_that_are_too_large_for_products_are_refused():
    bags, labels = make_bags(4)
    with pytest.raises(ValueError, match="too large for products"):
        MomentSVM(calibration=0).fit(Bags(-1e25 * bags.values, bags.offsets, bags.boxes), labels)


def test_negative_features_of_the_last_photos_of_a_store_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("patchvote.voters.moment_svm._AT_ONCE", 60)
    bags, labels = make_bags(8)
    values = bags.values.copy()
    values[-20:] -= 3
    signed = Bags(values, bags.offsets, bags.boxes)

    class Blocks(Store):
        def __init__(self) -> None:
            self.names, self.sizes = [str(number) for number in range(len(signed))], signed.sizes

        dim, dtype = 5, np.float32

        def blocks(self, descriptors, *, indices, dtype, seed=None):
            for start in range(0, len(indices), 6):
                yield signed[indices[start : start + 6]], None

    read = MomentSVM(calibration=0).fit(Blocks(), labels)
    held = MomentSVM(calibration=0).fit(signed, labels)
    assert read.power_ == held.power_ == 1
    np.testing.assert_allclose(read.decision_function(signed), held.decision_function(signed), atol=1e-3)


# --- the solver -----------------------------------------------------------------------------------------------------


def test_coordinates_among_the_images_change_nothing():
    rng = np.random.default_rng(0)
    vectors, numbers, classes = rng.normal(size=(30, 40)), np.arange(30) % 3, np.array(["a", "b", "c"])
    wide = np.hstack([vectors, np.zeros((30, 5))])
    narrow = vectors[:, :20]
    for one in (wide, narrow):
        found = fit_linear(one, numbers, classes, 1.0, None, np.ones(30), 0)
        expected = LinearSVC(C=1.0, max_iter=100_000, tol=1e-6).fit(one, numbers)
        np.testing.assert_allclose(one @ found[0].T + found[1], expected.decision_function(one), atol=0.02)


# --- models ---------------------------------------------------------------------------------------------------------

SMALL = Recipe(sampling=Dense(sides=(64, 96)))


@pytest.fixture(scope="module")
def classifier(photo_folder, tmp_path_factory) -> ImageClassifier:
    voter = MomentSVM(pairs=16)
    return ImageClassifier(SMALL, voter=voter, cache=tmp_path_factory.mktemp("cache")).fit(photo_folder)


def test_a_model_is_written_and_read_again(classifier, tmp_path, photo_folder):
    write_model(classifier.model, tmp_path / "m.patchvote")
    again = read_model(tmp_path / "m.patchvote")
    assert again.kind == "moment-svm"
    photos = photos_of(photo_folder)[:4]
    loaded = ImageClassifier.load(tmp_path / "m.patchvote")
    np.testing.assert_allclose(loaded.predict_proba(photos), classifier.predict_proba(photos), atol=1e-9)
    assert isinstance(voter_of(again), MomentSVM)


def test_the_exported_graph_answers_as_the_model_does(classifier, tmp_path, photo_folder):
    export_model(classifier.model, tmp_path / "m.onnx")
    for photo in photos_of(photo_folder)[::7]:
        told = run(tmp_path / "m.onnx", np.asarray(load_image(photo)))
        evidence = classifier.explain([photo])
        np.testing.assert_allclose(told["probability"], evidence.probability, atol=1e-4)
        np.testing.assert_allclose(told["scores"], evidence.votes.mean(axis=0), atol=1e-4)
        rows = np.concatenate([told[f"votes_{side}"].reshape(4, -1).T for side in (64, 96)])
        np.testing.assert_allclose(rows, evidence.votes[1:], atol=2e-4 * np.abs(evidence.votes).max())


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("linear", lambda a: a[:, :-1], "do not fit"),
        ("directions", lambda a: a[:-1], "does not fit|do not fit"),
        ("offset", lambda a: a[:-1], "does not fit"),
        ("vectors", lambda a: a[:, :-1], "moments of its photos"),
        ("means", lambda a: a[:, :-1], "means of its photos"),
        ("class", lambda a: a * 0, "no training data"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(fitted, name, change, words):
    scorer = fitted.scorer()
    arrays = scorer.arrays | {name: change(scorer.arrays[name])}
    with pytest.raises(ModelError, match=words):
        MomentVotes(arrays, scorer.settings, 3).check_all()


def test_wrong_settings_are_refused():
    bags, labels = make_bags()
    with pytest.raises(ValueError, match="pairs of MomentSVM"):
        MomentSVM(pairs=-1).fit(bags, labels)
    with pytest.raises(ValueError, match="layout of MomentSVM"):
        MomentSVM(layout=-0.5).fit(bags, labels)


def test_vectors_of_bags_without_any_feature_are_zero():
    empty = Bags(np.zeros((3, 2)), np.array([0, 3]))
    stats = moments(empty, 0.5, np.zeros((2, 0)), np.zeros(2))
    assert (moment_vectors(stats, 2) == 0).all()
