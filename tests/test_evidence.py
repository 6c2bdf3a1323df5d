"""Evidence: maps of votes, pictures of them, and the training photos that pulled a photo to its class."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNN, Bags, Evidence, ImageClassifier, LocalNBNN, MomentRidge, PatchvoteError, Photo
from patchvote.models.evidence import Match, traced
from patchvote.models.report.picture import draw_matches, glow

TRACING = ("moment-ridge", "nbnn", "local-nbnn")


def some_evidence(count: int = 20, seed: int = 0, boxes: np.ndarray | None = None) -> Evidence:
    rng = np.random.default_rng(seed)
    if boxes is None:
        boxes = np.sort(rng.uniform(0, 1, (count, 2, 2)), axis=1).reshape(count, 4)
    votes = rng.normal(size=(count, 3))
    return Evidence("photo.jpg", ("cat", "dog", "fox"), votes, boxes, np.array([0.2, 0.5, 0.3]))


# --- maps -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000))
def test_a_map_adds_up_to_the_decision_value(width, height, seed):
    evidence = some_evidence(seed=seed)
    for number, label in enumerate(evidence.classes):
        assert evidence.map(label, width, height).sum() == pytest.approx(evidence.decision[number], abs=1e-9)


def test_a_map_is_what_the_definition_says():
    evidence = some_evidence(5)
    expected = np.zeros((12, 16))
    for vote, (left, top, right, bottom) in zip(evidence.votes[:, 1], evidence.boxes, strict=True):
        for y in range(12):
            for x in range(16):
                wide = max(0, min(right, (x + 1) / 16) - max(left, x / 16)) / (right - left)
                high = max(0, min(bottom, (y + 1) / 12) - max(top, y / 12)) / (bottom - top)
                expected[y, x] += vote / 5 * wide * high
    np.testing.assert_allclose(evidence.map("dog", 16, 12), expected, atol=1e-12)
    smaller = some_evidence(1, boxes=np.array([[0.51, 0.51, 0.52, 0.52]]))  # than a pixel: it keeps its vote
    assert smaller.map("cat", 2, 2)[1, 1] == pytest.approx(smaller.votes[0, 0])


def test_contrast_is_the_vote_less_the_strongest_for_another():
    evidence = some_evidence()
    others = evidence.votes[:, [0, 2]].max(axis=1)
    np.testing.assert_allclose(evidence.advantage("dog"), evidence.votes[:, 1] - others)
    assert evidence.contrast("dog", 8, 8).sum() == pytest.approx(evidence.advantage("dog").mean())
    with pytest.raises(PatchvoteError, match="no class 'dgo'. Did you mean 'dog'"):
        evidence.map("dgo", 2, 2)


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_the_photo_is_lit_where_it_speaks_for_the_class_and_dim_elsewhere():
    boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    evidence = Evidence("p", ("cat", "dog"), np.array([[5.0, 0], [0, 5.0]]), boxes, np.array([0.5, 0.5]))
    image = Image.new("RGB", (160, 80), (200, 60, 60))
    lit = np.asarray(glow(evidence, image, "cat"), np.int64)
    assert lit[40, 20, 0] - lit[40, 20, 2] > 80  # red, as the photo is
    assert np.ptp(lit[40, 140]) < 5  # grey
    assert np.ptp(np.asarray(glow(evidence, image, "dog"), np.int64)[40, 20]) < 5


def test_matches_are_drawn_beside_the_parts_that_they_match():
    match = Match((0, 0, 0.5, 0.5), "red.jpg", (0.5, 0.5, 1, 1), 0.1)
    gone = dataclasses.replace(match, name="gone.jpg")
    evidence = dataclasses.replace(some_evidence(), matches=(match, gone))
    other = Image.new("RGB", (100, 100), (255, 0, 0))
    picture = np.asarray(draw_matches(evidence, Image.new("RGB", (100, 100), (0, 0, 255)), {"red.jpg": other}, side=60))
    assert tuple(picture[30, 40]) == (0, 0, 255)
    assert tuple(picture[100, 40]) == (255, 0, 0)
    assert picture.shape[1] < 120  # one column: the photo that is gone is left out


def test_evidence_is_drawn_beside_its_photo_or_without_it_if_that_is_gone(tmp_path):
    path = tmp_path / "p.png"
    Image.effect_noise((90, 60), 80).convert("RGB").save(path)
    evidence = dataclasses.replace(some_evidence(), photo=Photo("p.png", path))
    shown = np.asarray(evidence.plot(["cat"], side=90), float)[12:72, 12:102]
    assert np.abs(shown - np.asarray(Image.open(path))).mean() < 3
    assert evidence._repr_png_()[:4] == b"\x89PNG"
    path.unlink()
    assert evidence.plot(side=80).width > 240


# --- training photos --------------------------------------------------------------------------------------------------


def bags_of(classes: int, each: int = 8) -> tuple[Bags, np.ndarray]:
    rng = np.random.default_rng(0)
    numbers = np.repeat(np.arange(classes), each)
    centres = rng.random((classes, 9)) * 2
    return Bags.of([rng.random((12, 9)) + centres[number] for number in numbers]), np.array(list("abc"))[numbers]


@pytest.mark.parametrize("classes", [2, 3])
def test_what_the_images_of_all_classes_add_is_the_score_beside_that_of_the_average_photo(classes):
    bags, labels = bags_of(classes)
    scorer = MomentRidge(0.01).fit(bags, labels).scorer()
    photo = Bags.of([np.random.default_rng(5).random((12, 9)) + 1])
    mean = scorer.learned.vectors().mean(axis=0, dtype=np.float64)
    score = scorer.scores(photo)[0]
    at_mean = scorer.arrays["linear"] @ mean + scorer.arrays["bias"]
    for number in range(classes):
        # Images of a class count for it by `pulls`; those of the others by what they would add with their own factors.
        own = scorer.arrays["class"]
        every = np.zeros(len(own))
        for other in range(classes):
            scorer.arrays["class"] = np.where(own == other, number, -1)
            every += scorer.pulls(photo, number)
        scorer.arrays["class"] = own
        assert every.sum() == pytest.approx(score[number] - at_mean[number], abs=1e-3)
        assert not scorer.pulls(photo, number)[own != number].any()


def test_local_nbnn_adds_up_the_votes_that_each_image_has_given():
    bags, labels = bags_of(3)
    voter = LocalNBNN(confidence=0).fit(bags, labels)
    photo = Bags.of([np.random.default_rng(5).random((12, 9)) + 1])
    for number in range(3):
        pulls = voter.scorer().pulls(photo, number)
        assert pulls.sum() == pytest.approx(voter.votes(photo)[:, number].sum(), rel=1e-5)
        assert not pulls[[label != "abc"[number] for label in labels]].any()


def test_photos_left_out_by_weight_do_not_shift_the_names_of_others():
    rng, classes = np.random.default_rng(0), np.array(list("abcde"))
    numbers = np.repeat(np.arange(5), 10)
    bags = Bags.of([rng.random((12, 9)) + 2 * np.eye(9)[number] for number in numbers])
    weight = np.tile([0, 0, *[1] * 8], 5)  # 40 photos are learned, and photo 39 is the last of the class d
    voter = NBNN().fit(bags, classes[numbers], sample_weight=weight)
    photo = bags[39:40]
    votes, probability = voter.votes(photo).astype(np.float64), np.array([0.1, 0.1, 0.1, 0.6, 0.1])
    evidence = Evidence("x", tuple(classes), votes, photo.boxes.astype(np.float64), probability)
    (pull,) = traced(evidence, voter.scorer(), [f"photo {n}" for n in range(50)], photo, "d").pulls
    assert (pull.name, pull.label) == ("photo 39", "d")


@pytest.fixture(scope="module")
def coloured():
    """Photos of three colours; the last, a red one, has the label of the blue ones."""
    rng = np.random.default_rng(0)
    shades = {"blue": (30, 30, 200), "green": (30, 200, 30), "red": (200, 30, 30)}
    labels = [label for label in shades for _ in range(8)]
    photos = [
        (rng.integers(0, 50, (64, 64, 3)) + np.array(shades[label])).clip(0, 255).astype(np.uint8)
        for label in [*labels, "red"]
    ]
    return photos, [*labels, "blue"]


def quick(voter="auto") -> ImageClassifier:
    return ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(), cache=False)


@pytest.mark.parametrize("voter", TRACING)
def test_a_wrong_label_is_named_where_it_pulls_a_photo_to_its_class(voter, coloured):
    evidence = quick(voter).fit(*coloured).explain([coloured[0][-1]], "blue")
    assert evidence.pulls[0].name == "image 24"
    assert {pull.label for pull in evidence.pulls} == {"blue"}
    shares = [pull.share for pull in evidence.pulls]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1 + 1e-9


@pytest.mark.parametrize("voter", TRACING)
def test_names_travel_with_the_model_and_grow_when_photos_are_added(voter, coloured, tmp_path):
    photos, labels = coloured
    classifier = quick(voter).fit(photos[:-1], labels[:-1])
    classifier.save(tmp_path / "m.patchvote")
    again = ImageClassifier.load(tmp_path / "m.patchvote", backbone=QuickNetwork(), cache=False)
    assert again.explain([photos[0]]).pulls == classifier.explain([photos[0]]).pulls
    again.add([photos[-1]], ["blue"])
    assert len(again.model.names) == 25
    assert again.explain([photos[-1]], "blue").pulls[0].name == "image 0"


@pytest.mark.parametrize("voter", TRACING)
def test_held_out_mistakes_name_photos_that_were_learned_from_and_never_themselves(voter, coloured, tmp_path):
    photos, labels = coloured
    classifier = quick(voter).fit(photos, labels, held_out=["image 24"])
    (mistake,) = [one for one in classifier.mistakes() if one.name == "image 24"]
    label_of = {f"image {index}": label for index, label in enumerate(labels)}
    assert mistake.pulls
    assert "image 24" not in {pull.name for pull in mistake.pulls}
    assert {label_of[pull.name] for pull in mistake.pulls} == {"red"}


def test_reports_name_them_whatever_they_are_called(coloured, tmp_path):
    for number, (pixels, label) in enumerate(zip(*coloured, strict=True)):
        for folder in (tmp_path / "photos" / label, tmp_path / "test" / label):
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"<b>{number}.png")
    classifier = quick().fit(tmp_path / "photos")
    for kind in ("of fit", "of evaluate"):
        classifier.report(tmp_path / "r.html", title="t", measured=kind)
        page = (tmp_path / "r.html").read_text()
        assert "Training photos that pulled it to" in page, kind
        assert "<b>2" not in page
        labels = np.roll([photo.parent.name for photo in sorted((tmp_path / "test").rglob("*.png"))], 3).tolist()
        classifier.evaluate(sorted((tmp_path / "test").rglob("*.png")), labels)


def test_explain_prints_them_and_says_where_it_cannot(place, command):
    photo = "photos/iris/1.jpg"
    done = command("explain", "m.patchvote", photo)
    assert "training photos that pulled it most to iris:\n" in done.out
    assert re.search(r"\d %  iris/\d.jpg\n", done.out)
    told = json.loads(command("explain", "n.patchvote", photo, "--json").out)
    assert told["pulls"][0] == {"name": "iris/1.jpg", "label": "iris", "share": pytest.approx(1.0)}
    ImageClassifier.load("m.patchvote").save("small.patchvote", memory=False)
    ImageClassifier.load("m.patchvote", cache=False).adapt("photos", insist=True).save("adapted.patchvote")
    ImageClassifier("tiny.onnx", voter="snbnl", cache=False).fit("photos").save("s.patchvote")
    for model, said in (
        ("s", "cannot be told: a model of snbnl keeps what it learned of all photos together."),
        ("adapted", "cannot be told of an adapted model"),
        ("small", "the model was written without its memory"),
    ):
        assert said in command("explain", f"{model}.patchvote", photo).out
