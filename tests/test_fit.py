"""Which photos are held out of a fit, what is said of them, and whether more photos would help."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNN, Bags, ImageClassifier, MomentRidge, PatchvoteError, find_photos
from patchvote.models.about import check_about
from patchvote.models.learning_curve import enough_sentence, expected_gain, learning_curve
from patchvote.models.report.page import _drawn

LABELS = ["dark", "grey", "light"]


def shades(count: int, each: tuple[int, ...] | None = None):
    """Photos of three shades in turn, or so many of each, and their labels."""
    numbers = np.arange(count) % 3 if each is None else np.repeat(np.arange(3), each)
    rng = np.random.default_rng(0)
    photos = [(rng.integers(0, 90, (64, 64, 3)) + 75 * number).astype(np.uint8) for number in numbers.tolist()]
    return photos, [LABELS[number] for number in numbers.tolist()]


def classifier(voter="auto") -> ImageClassifier:
    return ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(), cache=False)


def numbers_of(scores) -> list[int]:
    return sorted(int(name.removeprefix("image ")) for name in scores.names)


@pytest.mark.parametrize("count", [12, 60])
def test_the_default_voter_leaves_every_photo_out_and_any_other_a_fifth_of_every_class(count):
    photos, labels = shades(count)
    assert numbers_of(classifier().fit(photos, labels).scores) == list(range(count))
    held_out = classifier("nbnn").fit(photos, labels).scores
    np.testing.assert_array_equal(np.bincount(held_out.expected), max(1, round(0.2 * count / 3)))


@pytest.mark.parametrize("voter", ["auto", "snbnl"])
def test_a_share_or_names_are_held_out_together(voter):
    photos, labels = shades(60)
    half = classifier(voter).fit(photos, labels, held_out=0.5).scores
    np.testing.assert_array_equal(np.bincount(half.expected), 10)
    names = [f"image {index}" for index in (3, 7, 50)]
    assert sorted(classifier(voter).fit(photos, labels, held_out=iter(names)).scores.names) == sorted(names)
    without = classifier(voter).fit(photos, labels, held_out=0)
    assert without.scores is None
    assert "no photo was held out. `patchvote evaluate` measures it" in without.model.card


def test_answers_for_named_photos_are_those_of_a_voter_that_learned_the_others():
    photos, labels = shades(60)
    out = list(range(0, 60, 4))
    left_out = classifier().fit(photos, labels, held_out=[f"image {index}" for index in out]).scores
    kept = [index for index in range(60) if index not in out]
    others = classifier().fit([photos[index] for index in kept], [labels[index] for index in kept])
    predicted = dict(zip(left_out.names, np.array(left_out.classes)[left_out.predicted], strict=True))
    assert [predicted[f"image {index}"] for index in out] == others.predict([photos[index] for index in out]).tolist()


def test_names_that_leave_nothing_of_a_class_or_that_no_photo_has_are_refused():
    with pytest.raises(PatchvoteError, match="held_out leaves no photo of the class of image 0 to learn from"):
        classifier().fit(*shades(12), held_out=[f"image {index}" for index in range(0, 12, 3)])
    asked = classifier()
    with pytest.raises(PatchvoteError, match="held_out has 1 name that no photo has, the first is 'image 99'. The fi"):
        asked.fit(*shades(12), held_out=["image 0", "image 99"])
    assert asked.backbone.calls == 0


@pytest.mark.parametrize("voter", ["auto", "nbnn"])
def test_a_class_with_one_photo_keeps_it_and_one_photo_per_class_leaves_nothing_to_hold_out(voter):
    fitted = classifier(voter).fit(*shades(0, each=(6, 6, 1)))
    assert 12 not in numbers_of(fitted.scores)
    assert fitted.model.about.held_out["classes"]["light"]["images"] == 0
    assert fitted.model.about.held_out["left_out"] == {"light": "it has one photo"}
    few = classifier(voter).fit(*shades(3))
    assert few.scores is few.model.familiarity is few.model.about.held_out is None
    assert "no photo was held out. Two per class that" in few.model.card
    assert "Fewer than 10 photos were seen of" in few.model.card


@pytest.mark.parametrize("voter", ["auto", "nbnn"])
def test_copies_are_held_out_together(voter):
    rng = np.random.default_rng(0)
    photos = [rng.integers(0, 256, (64, 64, 3)).astype(np.uint8) for _ in range(10)] * 4
    labels = [LABELS[index % 2] for index in range(10)] * 4  # labels of noise: whoever has seen a copy knows them
    scores = classifier(voter).fit(photos, labels).scores
    held_out = set(numbers_of(scores))
    for index in held_out:
        assert {index % 10 + 10 * copy for copy in range(4)} <= held_out
    assert voter == "nbnn" or scores.accuracy < 0.8  # by chance, the two that nbnn is asked about may be right


@pytest.mark.parametrize(("voter", "count"), [("auto", 60), ("nbnn", 12)])
def test_the_held_out_accuracy_is_that_of_photos_never_trained_on(voter, count):
    # Labels of noise tell nothing: whoever has seen a photo knows its label, and nobody else can.
    rng = np.random.default_rng(0)
    photos = [rng.integers(0, 256, (64, 64, 3)).astype(np.uint8) for _ in range(60)]
    labels = rng.permutation(["heads", "tails"] * 30).tolist()
    fitted = classifier(voter).fit(photos, labels)
    assert len(set(fitted.scores.names)) == len(fitted.scores) == count
    assert fitted.scores.accuracy < 0.75
    assert voter == "auto" or np.mean(fitted.predict(photos) == labels) == 1.0


def test_held_out_answers_are_those_of_voters_that_never_saw_the_photo():
    fitted = classifier(NBNN(normalise=False)).fit(*shades(30))
    for evidence in fitted.mistakes():
        assert evidence.name not in {match.name for match in evidence.matches}
    assert set(fitted.model.scorer.arrays["image"]) == set(range(30))  # in the end, all are learned


def test_the_threshold_rejects_the_share_that_the_voter_was_made_with():
    for share in (0.05, 0.4):
        model = classifier(MomentRidge(rejection=share)).fit(*shades(60)).model
        assert model.limit() == model.familiarity.rejection == share


def test_the_order_of_the_photos_does_not_matter():
    photos, labels = shades(30)
    order = np.random.default_rng(1).permutation(30)
    one = classifier().fit(photos, labels).model.scorer.arrays
    other = classifier().fit([photos[i] for i in order], [labels[i] for i in order]).model.scorer.arrays
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


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
    assert ">1.5</text>" in _drawn(few)


def test_a_point_of_the_curve_is_the_accuracy_of_a_voter_that_learned_so_many_photos():
    bags, numbers = collection(60)
    curve, voter, _ = curve_of(60)
    shares = []
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(60)
        half = np.flatnonzero(np.isin(np.arange(240) % 60, order[:30]))
        rest = np.setdiff1d(np.arange(240), half)
        each = [MomentRidge(float(alpha), class_weight="balanced") for alpha in voter.alphas_]
        scores = sum(one.fit(bags[half], numbers[half]).decision_function(bags[rest]) for one in each)
        shares.append(np.mean(scores.argmax(axis=1) == numbers[rest]))
    assert curve[1]["accuracy"] == pytest.approx(np.mean(shares), abs=0.05)


def test_the_expected_gain_repeats_the_factor_of_the_errors():
    assert expected_gain(HARD) == pytest.approx(0.1)
    assert expected_gain([{"photos": 5, "accuracy": 0.9}, {"photos": 10, "accuracy": 0.8}]) == 0
    assert expected_gain([{"photos": 5, "accuracy": 1.0}, {"photos": 10, "accuracy": 1.0}]) == 0


@pytest.mark.parametrize(
    ("curve", "classes", "few", "said"),
    [
        (curve_of(30, spread=3.0)[0], {}, [], "would probably help: learning from half"),
        (curve_of(30, spread=0.1)[0], {}, [], "would probably help little"),
        (EASY, {}, ["elm"], "; of elm (fewer than 10 photos), that is less certain."),
        (HARD, {"oak": {"images": 20, "found": 0.7}, "fir": {"images": 9, "found": 0.9}}, [], "of oak (6 of 20 photos"),
        (HARD, {"oak": {"images": 20, "found": 0.7}}, ["oak", "elm"], "missed) and of elm (fewer than 10 photos)"),
        (HARD, {"owl": {"images": 0, "found": None}}, ["elm"], ", above all of elm (fewer than 10 photos)"),
        (HARD, {"cat": {"images": 3, "found": 1.0}}, [], "10.0 points more."),
        ([], {"cat": {"images": 40, "found": 0.5}}, [], "known of the default voter alone"),
        ([], {"cat": {"images": 4, "found": 0.5}}, ["elm"], "30 are the least. If you add some, begin with elm (fewer"),
    ],
)
def test_a_sentence_says_whether_more_photos_would_help_and_of_which_class(curve, classes, few, said):
    assert said in enough_sentence(curve, classes, few=few)


def test_the_model_keeps_the_curve_and_the_report_draws_it_or_says_why_there_is_none(photo_folder, tmp_path):
    fitted = classifier().fit(photo_folder)
    fitted.save(tmp_path / "m.patchvote")
    again = ImageClassifier.load(tmp_path / "m.patchvote", backbone=QuickNetwork())
    assert again.model.about.curve == fitted.model.about.curve
    assert fitted.model.about.curve[-1]["accuracy"] == pytest.approx(fitted.scores.accuracy)
    for found, drawn in ((fitted, True), (classifier().fit(find_photos(photo_folder)[::4]), False)):
        found.report(tmp_path / "r.html", title="t", measured="held out")
        page = (tmp_path / "r.html").read_text()
        assert ('<svg class="growth"' in page) == drawn
        assert ("photos were held out, and 30 are the least." in page) != drawn


@pytest.mark.parametrize("curve", [[{"photos": -1, "accuracy": 0.5}], [{"photos": 1, "accuracy": 2}], [{}], "x"])
def test_a_curve_in_a_file_is_checked(curve):
    assert check_about({"curve": curve}) is not None
    none = [{"photos": 0, "accuracy": 0.5}, {"photos": 0, "accuracy": 0.6}]
    assert check_about({"curve": none}) is None
    assert _drawn(none).startswith('<svg class="growth"')
