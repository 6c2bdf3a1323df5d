"""Which training photos pulled a photo to its class."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNN, Bags, ImageClassifier, LocalNBNN, ModelError, MomentRidge
from patchvote.models.evidence import Evidence, traced
from patchvote.models.file import read_model, write_model

TRACING = ("moment-ridge", "nbnn", "local-nbnn")


def bags_of(classes: int, each: int = 8, seed: int = 0) -> tuple[Bags, np.ndarray]:
    rng = np.random.default_rng(seed)
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
    voter = LocalNBNN(confidence=0).set_options(calibration=0).fit(bags, labels)
    photo = Bags.of([np.random.default_rng(5).random((12, 9)) + 1])
    for number in range(3):
        pulls = voter.scorer().pulls(photo, number)
        assert pulls.sum() == pytest.approx(voter.votes(photo)[:, number].sum(), rel=1e-5)
        assert not pulls[[label != "abc"[number] for label in labels]].any()


@pytest.fixture(scope="module")
def coloured():
    """Photos of three colours; one of the red ones has the label of the blue ones."""
    rng = np.random.default_rng(0)
    shades = {"blue": (30, 30, 200), "green": (30, 200, 30), "red": (200, 30, 30)}
    photos = [
        (rng.integers(0, 50, (64, 64, 3)) + np.array(shade)).clip(0, 255).astype(np.uint8)
        for shade in shades.values()
        for _ in range(8)
    ]
    labels = [label for label in shades for _ in range(8)]
    wrong = (rng.integers(0, 50, (64, 64, 3)) + np.array(shades["red"])).astype(np.uint8)
    return [*photos, wrong], [*labels, "blue"]


@pytest.mark.parametrize("voter", TRACING)
def test_a_wrong_label_is_named_where_it_pulls_a_photo_to_its_class(voter, coloured):
    photos, labels = coloured
    classifier = ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(), cache=False).fit(photos, labels)
    evidence = classifier.explain([photos[-1]], "blue")
    assert evidence.pulls[0].name == "image 24"
    assert {pull.label for pull in evidence.pulls} == {"blue"}
    shares = [pull.share for pull in evidence.pulls]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1 + 1e-9


@pytest.mark.parametrize("voter", TRACING)
def test_names_travel_with_the_model_and_grow_when_photos_are_added(voter, coloured, tmp_path):
    photos, labels = coloured
    network = QuickNetwork()
    classifier = ImageClassifier(QUICK, voter=voter, backbone=network, cache=False).fit(photos[:-1], labels[:-1])
    classifier.save(tmp_path / "m.patchvote")
    again = ImageClassifier.load(tmp_path / "m.patchvote", backbone=network, cache=False)
    assert again.explain([photos[0]]).pulls == classifier.explain([photos[0]]).pulls
    again.add([photos[-1]], ["blue"])
    assert len(again.model.names) == 25
    assert again.explain([photos[-1]], "blue").pulls[0].name == "image 0"


def test_mistakes_in_reports_name_them(place, command):
    shutil.copy("photos/rose/1.jpg", "photos/iris/wrong.jpg")
    (place / "test" / "iris").mkdir(parents=True)
    (place / "test" / "rose").mkdir()
    shutil.copy("photos/rose/2.jpg", "test/iris/mistaken.jpg")
    shutil.copy("photos/rose/3.jpg", "test/rose/3.jpg")
    words = ("--network", "tiny.onnx", "--no-cache")
    assert command("fit", "photos", "new.patchvote", *words).code == 0
    assert "Training photos that pulled it to" in (place / "new.html").read_text()
    assert command("evaluate", "new.patchvote", "test").code == 0
    page = (place / "new-test.html").read_text()
    assert "Training photos that pulled it to" in page
    assert "rose/2.jpg" in page  # the very photo is among those that were learned


@pytest.mark.parametrize("voter", TRACING)
def test_held_out_mistakes_name_photos_that_were_learned_from_and_never_themselves(voter, coloured):
    photos, labels = coloured
    classifier = ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(), cache=False)
    classifier.fit(photos, labels, held_out=["image 24"])
    (mistake,) = [one for one in classifier._mistakes() if one.name == "image 24"]
    label_of = {f"image {index}": label for index, label in enumerate(labels)}
    assert mistake.pulls
    assert "image 24" not in {pull.name for pull in mistake.pulls}
    assert {label_of[pull.name] for pull in mistake.pulls} == {"red"}


def test_photos_left_out_by_weight_do_not_shift_the_names_of_others():
    rng, classes = np.random.default_rng(0), np.array(list("abcde"))
    numbers = np.repeat(np.arange(5), 10)
    bags = Bags.of([rng.random((12, 9)) + 2 * np.eye(9)[number] for number in numbers])
    weight = np.tile([0, 0, *[1] * 8], 5)  # 40 photos are learned, and photo 39 is the last of the class d
    voter = NBNN().set_options(calibration=0).fit(bags, classes[numbers], sample_weight=weight)
    photo = bags[39:40]
    votes, probability = voter.votes(photo).astype(np.float64), np.array([0.1, 0.1, 0.1, 0.6, 0.1])
    evidence = Evidence("x", tuple(classes), votes, photo.boxes.astype(np.float64), probability)
    (pull,) = traced(evidence, voter.scorer(), [f"photo {n}" for n in range(50)], photo, "d").pulls
    assert (pull.name, pull.label) == ("photo 39", "d")


def test_explain_prints_them_and_says_where_it_cannot(place, command):
    done = command("explain", "m.patchvote", "photos/iris/1.jpg")
    assert "training photos that pulled it most to iris:\n" in done.out
    assert re.search(r"\d %  iris/\d.jpg\n", done.out)
    told = json.loads(command("explain", "n.patchvote", "photos/iris/1.jpg", "--json").out)
    assert told["pulls"][0] == {"name": "iris/1.jpg", "label": "iris", "share": pytest.approx(1.0)}
    assert command("fit", "photos", "s.patchvote", "--voter", "snbnl", "--network", "tiny.onnx", "--no-cache").code == 0
    done = command("explain", "s.patchvote", "photos/iris/1.jpg")
    assert "cannot be told: a model of snbnl keeps what it learned of all photos together." in done.out
    classifier = ImageClassifier.load("m.patchvote", cache=False).adapt("photos", insist=True)
    classifier.save("adapted.patchvote")
    assert classifier.model.names == ()
    done = command("explain", "adapted.patchvote", "photos/iris/1.jpg")
    assert "cannot be told of an adapted model" in done.out


def test_a_model_without_memory_explains_without_names(place, command):
    write_model(read_model("m.patchvote").without_memory(), "small.patchvote")
    done = command("explain", "small.patchvote", "photos/iris/1.jpg")
    assert done.code == 0
    assert "the model was written without its memory" in done.out


def test_a_model_with_names_of_other_photos_than_it_holds_is_refused(place):
    model = read_model("m.patchvote")
    with pytest.raises(ModelError, match="it has the names of 11 photos, but learned from 12"):
        dataclasses.replace(model, names=model.names[:-1])


def test_a_photo_in_a_report_may_have_any_name(tmp_path, coloured):
    folder = tmp_path / "photos"
    for number, (pixels, label) in enumerate(zip(*coloured, strict=True)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / label / f"<b>{number}.png")
    classifier = ImageClassifier(QUICK, backbone=QuickNetwork(), cache=False).fit(folder)
    classifier.report(tmp_path / "r.html", title="t", measured="m")
    page = (tmp_path / "r.html").read_text()
    assert "pulled it to" in page
    assert "<b>2" not in page
