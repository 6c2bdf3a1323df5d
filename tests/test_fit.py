"""Which photos are held out of a fit, what is said of them, and whether more photos would help."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.quick_network import loaded, noise, quick, shades
from patchvote import Bags, MomentRidge, PatchvoteError, find_photos
from patchvote.models.about import About
from patchvote.models.learning_curve import enough_sentence, expected_gain, learning_curve
from patchvote.models.report.card import accuracy_of


def numbers_of(scores) -> list[int]:
    return sorted(int(name.removeprefix("image ")) for name in scores.names)


@pytest.mark.parametrize("count", [12, 60])
def test_the_default_voter_leaves_every_photo_out_and_any_other_a_fifth_of_every_class(count):
    photos, labels = shades(count)
    assert numbers_of(quick().fit(photos, labels).scores) == list(range(count))
    other = quick("nbnn").fit(photos, labels)
    np.testing.assert_array_equal(np.bincount(other.scores.expected), max(1, round(0.2 * count / 3)))
    assert set(other.model.scorer.arrays["image"]) == set(range(count))  # in the end, all are learned


@pytest.mark.parametrize("voter", ["auto", "snbnl"])
def test_a_share_or_names_are_held_out_together(voter):
    photos, labels = shades(60)
    half = quick(voter).fit(photos, labels, held_out=0.5).scores
    np.testing.assert_array_equal(np.bincount(half.expected), 10)
    names = [f"image {index}" for index in (3, 7, 50)]
    assert sorted(quick(voter).fit(photos, labels, held_out=iter(names)).scores.names) == sorted(names)
    assert quick(voter).fit(photos, labels, held_out=0).scores is None


def test_answers_for_named_photos_are_those_of_a_voter_that_learned_the_others():
    photos, labels = shades(60)
    out = list(range(0, 60, 4))
    left_out = quick().fit(photos, labels, held_out=[f"image {index}" for index in out]).scores
    kept = [index for index in range(60) if index not in out]
    others = quick().fit([photos[index] for index in kept], [labels[index] for index in kept])
    predicted = dict(zip(left_out.names, np.array(left_out.classes)[left_out.predicted], strict=True))
    assert [predicted[f"image {index}"] for index in out] == others.predict([photos[index] for index in out]).tolist()


def test_names_that_leave_nothing_of_a_class_or_that_no_photo_has_are_refused():
    asked = quick()
    with pytest.raises(PatchvoteError, match="no photo of the class of image 0"):
        asked.fit(*shades(12), held_out=[f"image {index}" for index in range(0, 12, 3)])
    asked.backbone.calls = 0
    with pytest.raises(PatchvoteError, match="'image 99'"):
        asked.fit(*shades(12), held_out=["image 0", "image 99"])
    assert asked.backbone.calls == 0


@pytest.mark.parametrize("voter", ["auto", "nbnn"])
def test_a_class_with_one_photo_keeps_it_and_one_photo_per_class_leaves_nothing_to_hold_out(voter):
    fitted = quick(voter).fit(*shades(0, each=(6, 6, 1)))
    assert 12 not in numbers_of(fitted.scores)
    assert fitted.model.about.held_out["classes"]["light"]["images"] == 0
    assert list(fitted.model.about.held_out["left_out"]) == ["light"]
    few = quick(voter).fit(*shades(3))
    assert few.scores is few.model.familiarity is few.model.about.held_out is None
    assert "Fewer than 10 photos" in few.model.card


@pytest.mark.parametrize(("voter", "copies"), [("auto", 1), ("auto", 4), ("nbnn", 1), ("nbnn", 4)])
def test_the_held_out_accuracy_is_that_of_photos_never_trained_on_nor_their_copies(voter, copies):
    # Labels of noise tell nothing: whoever has seen a photo knows its label, and nobody else can.
    distinct = 60 // copies
    photos = noise(distinct) * copies
    labels = np.random.default_rng(0).permutation(["heads", "tails"] * 30)[:distinct].tolist() * copies
    fitted = quick(voter).fit(photos, labels)
    held_out = numbers_of(fitted.scores)
    assert len(set(held_out)) == len(held_out)
    assert {index % distinct + distinct * copy for index in held_out for copy in range(copies)} == set(held_out)
    assert fitted.scores.accuracy < 0.8
    assert voter == "auto" or np.mean(fitted.predict(photos) == labels) == 1.0


# --- would more photos help -------------------------------------------------------------------------------------------

HARD = [{"photos": 20, "accuracy": 0.6}, {"photos": 40, "accuracy": 0.8}]
EASY = [{"photos": 20, "accuracy": 0.99}, {"photos": 40, "accuracy": 0.99}]


def collection(per_class, classes=4, spread=1.6):
    numbers = np.repeat(np.arange(classes), per_class)
    centres = np.random.default_rng(1).normal(size=(classes, 40))
    values = centres[numbers] + spread * np.random.default_rng(0).normal(size=(len(numbers), 40))
    return Bags.of([row[None].astype(np.float32) for row in values]), numbers


def curve_of(per_class, **settings):
    bags, numbers = collection(per_class, **settings)
    groups = np.arange(len(numbers))
    voter = MomentRidge(class_weight="balanced").fit(bags, numbers, groups=groups)
    return learning_curve(voter, numbers, groups, 0), voter, numbers


def test_points_are_a_quarter_half_and_all_of_the_photos_of_every_class():
    curve, voter, numbers = curve_of(30)
    assert [point["photos"] for point in curve] == [7.5, 15, 30]
    assert curve[-1]["accuracy"] == np.mean(voter.left_out_.argmax(axis=1) == numbers)
    assert curve_of(6)[0] == []  # too few photos
    few = curve_of(3, classes=30)[0]
    assert [point["photos"] for point in few] == [1.5, 3]  # none of less than one photo per class


def test_a_point_of_the_curve_is_the_accuracy_of_a_voter_that_learned_so_many_photos():
    bags, numbers = collection(60)
    curve, voter, _ = curve_of(60)
    shares = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(60)
        half = np.flatnonzero(np.isin(np.arange(240) % 60, order[:30]))
        rest = np.setdiff1d(np.arange(240), half)
        each = [MomentRidge(float(alpha), class_weight="balanced") for alpha in voter.alphas_]
        scores = sum(one.fit(bags[half], numbers[half]).decision_function(bags[rest]) for one in each)
        shares.append(np.mean(scores.argmax(axis=1) == numbers[rest]))
    assert curve[1]["accuracy"] == pytest.approx(np.mean(shares), abs=0.05)


@pytest.mark.parametrize(
    ("curve", "classes", "few", "said"),
    [
        (curve_of(30, spread=3.0)[0], {}, [], "probably help: "),
        (curve_of(30, spread=0.1)[0], {}, [], "help little"),
        (HARD, {"oak": {"images": 20, "found": 0.7}}, ["oak", "elm"], "missed) and of elm (fewer"),
        (HARD, {"owl": {"images": 0, "found": None}}, ["elm"], "above all of elm"),
        ([], {"cat": {"images": 4, "found": 0.5}}, ["elm"], "begin with elm"),
    ],
)
def test_a_sentence_says_whether_more_photos_would_help_and_of_which_class(curve, classes, few, said):
    assert said in enough_sentence(curve, classes, few=few)
    assert expected_gain(HARD) == pytest.approx(0.1)  # the factor of the errors, once more
    for accuracies in ((0.9, 0.8), (1.0, 1.0)):
        assert expected_gain([{"photos": 5 + 5 * n, "accuracy": accuracies[n]} for n in (0, 1)]) == 0


def test_the_model_keeps_the_curve_and_the_report_draws_it(photo_folder, tmp_path):
    fitted = quick().fit(photo_folder)
    fitted.save(tmp_path / "m.patchvote")
    assert loaded(tmp_path / "m.patchvote").model.about.curve == fitted.model.about.curve
    assert fitted.model.about.curve[-1]["accuracy"] == pytest.approx(fitted.scores.accuracy)
    for found, drawn in ((fitted, True), (quick().fit(find_photos(photo_folder)[::4]), False)):
        found.report(tmp_path / "r.html", title="t", measured="held out")
        assert ("photos&nbsp;per&nbsp;class" in (tmp_path / "r.html").read_text()) == drawn


# --- what is said -----------------------------------------------------------------------------------------------------


HELD_OUT = {"interval": [0.5, 0.9], "accuracy": 0.8, "images": 10}


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"adapted": {"photos": 3}}, "measured before it was adapted"),
        ({"added": [{"date": "", "images": {"c": 1}, "new_classes": ["c"]}]}, "1 photo was added (among them the new"),
        ({"held_out": None, "images": {"a": 1, "b": 1}}, "Two per class"),
        ({"held_out": HELD_OUT | {"classes": {"a": {"images": 0}}, "left_out": {"a": "so"}}}, "nothing of a (so)"),
    ],
)
def test_the_accuracy_is_told_with_what_was_not_measured_and_what_happened_since(about, said):
    told = accuracy_of(About(**{"held_out": HELD_OUT} | about))
    assert said in told
    assert ("measured before" in told) == ("added" in about or "adapted" in about)


QUIETLY = ("--network", "tiny.onnx", "--no-cache", "--no-report", "--force")


def test_photos_that_cannot_be_read_by_their_type_are_counted_and_named(place, command):
    for name in ("iris/IMG_1.NEF", "iris/IMG_2.nef", "rose/raw.cr2", "rose/notes.txt"):
        (place / "photos" / name).write_bytes(b"photo")
    (place / "photos" / "oak" / "old").mkdir(parents=True)
    for words in (
        ("fit", "photos", "new.patchvote", *QUIETLY),
        ("add", "m.patchvote", "photos", "--no-cache"),
        ("predict", "m.patchvote", "photos"),
    ):
        done = command(*words, "--json")
        assert "2 with .nef, 1 with .cr2" in done.err, words
        assert done.code == 3, words
        told = json.loads(done.out.splitlines()[-1])
        if words[0] != "predict":
            assert (told["passed_over"]["types"], told["passed_over"]["empty"]) == ({".nef": 2, ".cr2": 1}, ["oak"])
