"""Whether more photos would help: the learning curve of `fit`."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import Bags, ImageClassifier, MomentRidge, find_photos
from patchvote.models.about import check_about
from patchvote.models.learning_curve import enough_sentence, expected_gain, learning_curve
from patchvote.models.report.page import _drawn


def collection(per_class, classes=4, features=40, spread=1.6, seed=0):
    rng = np.random.default_rng(seed)
    numbers = np.repeat(np.arange(classes), per_class)
    centres = np.random.default_rng(1).normal(size=(classes, features))
    values = centres[numbers] + spread * rng.normal(size=(len(numbers), features))
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


def test_a_point_of_the_curve_is_the_accuracy_of_a_voter_that_learned_so_many_photos():
    bags, numbers = collection(60)
    curve, voter, _ = curve_of(60)
    shares = []
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(60)
        half = np.flatnonzero(np.isin(np.arange(240) % 60, order[:30]))
        rest = np.setdiff1d(np.arange(240), half)
        learned = MomentRidge(voter.alpha_, class_weight="balanced").fit(bags[half], numbers[half])
        shares.append(np.mean(learned.predict(bags[rest]) == numbers[rest]))
    assert curve[1]["accuracy"] == pytest.approx(np.mean(shares), abs=0.05)


def test_a_hard_problem_wants_more_photos_and_an_easy_one_does_not():
    hard = curve_of(30, spread=3.0)[0]
    easy = curve_of(30, spread=0.1)[0]
    assert "would probably help: learning from half" in enough_sentence(hard, {})
    assert "would probably help little" in enough_sentence(easy, {})


def test_the_expected_gain_repeats_the_factor_of_the_errors():
    curve = [{"photos": 5, "accuracy": 0.6}, {"photos": 10, "accuracy": 0.8}]
    assert expected_gain(curve) == pytest.approx(0.1)
    assert expected_gain([{"photos": 5, "accuracy": 0.9}, {"photos": 10, "accuracy": 0.8}]) == 0
    assert expected_gain([{"photos": 5, "accuracy": 1.0}, {"photos": 10, "accuracy": 1.0}]) == 0


def test_the_class_with_the_most_missed_photos_is_named():
    curve = [{"photos": 5, "accuracy": 0.6}, {"photos": 10, "accuracy": 0.8}]
    classes = {
        "cat": {"images": 10, "found": 0.9},
        "dog": {"images": 20, "found": 0.7},
        "owl": {"images": 0, "found": None},
    }
    assert "above all of dog (6 of 20 photos missed)" in enough_sentence(curve, classes)
    assert "above all" not in enough_sentence(curve, {"cat": {"images": 3, "found": 1.0}})


def test_without_photos_there_is_no_curve():
    assert curve_of(6)[0] == []


def test_fit_keeps_the_curve_in_the_model_and_draws_it(photo_folder, tmp_path):
    classifier = ImageClassifier(QUICK, backbone=QuickNetwork(), cache=False).fit(photo_folder)
    curve = classifier.model.about.curve
    assert [point["photos"] for point in curve] == sorted(point["photos"] for point in curve)
    assert curve[-1]["accuracy"] == pytest.approx(classifier.scores.accuracy)
    classifier.save(tmp_path / "m.patchvote")
    again = ImageClassifier.load(tmp_path / "m.patchvote", backbone=QuickNetwork())
    assert again.model.about.curve == curve
    classifier.report(tmp_path / "r.html", title="t", measured="held out")
    page = (tmp_path / "r.html").read_text()
    assert "Would more photos help?" in page
    assert '<svg class="growth"' in page


def test_without_a_curve_the_report_says_why(photo_folder, tmp_path):
    settings = {"backbone": QuickNetwork(), "cache": False}
    few = find_photos(photo_folder)[::4]
    classifier = ImageClassifier(QUICK, **settings).fit(few)
    assert len(classifier.scores) < 30
    classifier.report(tmp_path / "r.html", title="t", measured="held out")
    page = (tmp_path / "r.html").read_text()
    assert f"cannot be told: {len(classifier.scores)} photos were held out, and 30 are the least." in page
    assert '<svg class="growth"' not in page
    classes = {"cat": {"images": 40, "found": 0.5}}
    assert "was not measured" in enough_sentence([], classes)


def test_fit_speaks_of_more_photos_with_one_voice(place, command):
    out = command("fit", "photos", "few.patchvote", "--network", "tiny.onnx", "--no-cache", "--no-report").out
    about_more = [line for line in out.splitlines() if "more" in line or "Fewer" in line]
    assert about_more == [
        "Whether more photos would help cannot be told: 12 photos were held out, and 30 are the least. If you add "
        "some, begin with iris, rose (fewer than 10 photos)."
    ]


def test_a_class_of_few_photos_is_part_of_the_sentence_on_more_photos():
    easy = [{"photos": 20, "accuracy": 0.99}, {"photos": 40, "accuracy": 0.99}]
    hard = [{"photos": 20, "accuracy": 0.6}, {"photos": 40, "accuracy": 0.8}]
    assert enough_sentence(easy, {}, few=["elm"]).endswith("; of elm (fewer than 10 photos), that is less certain.")
    classes = {"oak": {"images": 20, "found": 0.7}}
    assert enough_sentence(hard, classes, few=["oak", "elm"]).endswith(
        ", above all of oak (6 of 20 photos missed) and of elm (fewer than 10 photos)."
    )
    assert enough_sentence(hard, {}, few=["elm"]).endswith(", above all of elm (fewer than 10 photos).")


@pytest.mark.parametrize("curve", [[{"photos": -1, "accuracy": 0.5}], [{"photos": 1, "accuracy": 2}], [{}], "x"])
def test_a_curve_in_a_file_is_checked(curve):
    assert check_about({"curve": [{"photos": 3, "accuracy": 0.5}]}) is None
    assert check_about({"curve": curve}) is not None


def test_a_curve_of_no_photos_in_a_file_is_drawn_as_any_other():
    curve = [{"photos": 0, "accuracy": 0.5}, {"photos": 0, "accuracy": 0.6}, {"photos": 8, "accuracy": 1.0}]
    for points in (curve, curve[:2]):
        assert check_about({"curve": points}) is None
        assert _drawn(points).startswith('<svg class="growth"')


def test_no_point_is_of_less_than_one_photo_per_class():
    curve = curve_of(3, classes=30)[0]
    assert [point["photos"] for point in curve] == [1.5, 3]
    one = [{"photos": 1.3, "accuracy": 0.5}]
    assert enough_sentence(one, {}) == (
        "Whether more photos would help cannot be told: while others were held out, it learned from 1.3 photos per "
        "class, and half of that is less than one photo."
    )
    assert ">1.5</text>" in _drawn(curve)
