"""Adapting must not make a model confidently wrong: strangers stay rejected, and what looks unsafe is not done."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import onnxruntime
import pytest
from patchvote.voters.doubts import AdaptationWarning, collapsed, unlike
from patchvote.voters.veto import limited
from PIL import Image
from test_bag_svm import photos

from helpers.small_models import remade
from patchvote import Adapted, BagSVM, Dense, ImageClassifier, ModelError, Recipe
from patchvote.models.export import export_model
from patchvote.models.file import read_model, write_model
from patchvote.photos.decode import load_image
from patchvote.photos.find import find_photos
from patchvote.voters.votes import NONE
from test_cli import patchvote

SMALL = Recipe(sampling=Dense(sides=(96,)))
OTHER_CAMERA = np.array([1.0, 9.0, 0.5, 1.0, 4.0, 1.0])


def strangers(count: int = 25, seed: int = 5) -> list[np.ndarray]:
    """Bags with strong features that no class has."""
    rng = np.random.default_rng(seed)
    other = 2.5 / 3 * np.array([0, 0, 0, 1, 1, 1])
    return [rng.random((int(rng.integers(3, 12)), 6)) ** 3 + other for _ in range(count)]


@pytest.fixture(scope="module")
def source():
    return photos(120, seed=1)


def test_strangers_stay_rejected_and_take_no_part_where_known_photos_are_adapted_to(source):
    known, expected = photos(60, seed=2)
    plain, other = BagSVM(0.3).fit(*source), strangers()
    assert (plain.predict_or_none(other) == NONE).all()
    adapted = Adapted().fit(*source, known + other)
    assert adapted.refusal_ is None
    assert (adapted.predict_or_none(other) == NONE).all()
    assert (adapted.predict_or_none(known)[plain.predict_or_none(known) == NONE] == NONE).all()
    assert adapted.predict_proba(other).max() < adapted.voter_.rejection_threshold_
    assert adapted.score(known, expected) >= plain.score(known, expected)
    assert adapted.unlike_[60:].mean() > 0.8
    learned = {row.tobytes() for row in adapted.voter_.vectors_[120:]}
    left_out = [bag for bag, strange in zip(known + other, adapted.unlike_, strict=True) if strange]
    assert len(learned) == adapted.history_[-1]["taken"] > 0
    assert not learned & {bag.mean(axis=0).astype(np.float32).tobytes() for bag in left_out}


def test_photos_unlike_anything_learned_are_not_adapted_to_unless_one_insists(source):
    other = strangers()
    with pytest.warns(AdaptationWarning, match="not adapted: 2[0-9] of the 25 photos are .*--insist"):
        careful = Adapted().fit(*source, other)
    plain = BagSVM(0.3).fit(*source)
    np.testing.assert_allclose(careful.predict_proba(other), plain.predict_proba(other))
    assert careful.history_ == []
    insisting = Adapted(insist=True).fit(*source, other)
    assert insisting.refusal_ is None
    assert insisting.history_[-1]["taken"] > 0
    assert not np.allclose(insisting.decision_function(other), plain.decision_function(other))
    assert (insisting.predict_or_none(other) == NONE).all()


class Collapsing(BagSVM):
    """A voter that names everything alike once it has learned from photos that it named itself."""

    def fit(self, X, y=None):
        super().fit(X, y)
        self.bias_[0] += 100.0 * (len(self.vectors_) > 120)
        return self


def test_a_collapse_is_noticed_and_the_plain_answers_are_given(source):
    target, _ = photos(60, seed=2)
    with pytest.warns(AdaptationWarning, match="would name 60 of the 60 photos 'land', where .* finds 3 classes"):
        adapted = Adapted(Collapsing(0.3)).fit(*source, target)
    assert adapted.predict(target).tolist() == BagSVM(0.3).fit(*source).predict(target).tolist()
    insisting = Adapted(Collapsing(0.3), insist=True).fit(*source, target)
    assert set(insisting.predict(target)) == {"land"}
    assert insisting.predict_proba(target).max(axis=1).mean() < 0.4  # both agree on a third of the photos


def test_a_few_photos_are_not_taken_for_another_camera(source):
    target, _ = photos(9, seed=2)
    with pytest.warns(AdaptationWarning, match="photos near the model's classes are too few"):
        adapted = Adapted().fit(*source, target)
    np.testing.assert_allclose(
        adapted.decision_function(target), BagSVM(0.3).fit(*source).decision_function(target), atol=1e-9
    )
    assert Adapted(insist=True).fit(*source, target).history_


def test_a_target_of_one_class_is_no_collapse():
    assert collapsed(np.array(["mug"] * 30 + ["cup"] * 2), np.array(["mug"] * 32)) is None
    assert collapsed(np.array(["mug", "cup", "jar"] * 9), np.array(["mug"] * 25 + ["cup"] * 2)) is not None
    assert unlike(np.array([], bool), np.array([], bool)) is None
    assert unlike(np.arange(10) < 7, np.arange(10) < 5) is None
    assert "7 of the 10 photos" in str(unlike(np.arange(10) < 7, np.arange(10) < 6))
    assert "8 of the 10 photos" in str(unlike(np.arange(10) < 8, np.zeros(10, bool)))


def test_the_gain_under_another_lamp_is_kept_and_probabilities_are_no_larger_than_they_should_be():
    sure, right = [], []
    for seed in range(4):
        known, labels = photos(150, strength=0.2, seed=seed)
        target, expected = photos(150, strength=0.2, seed=10 + seed)
        fresh, named = photos(150, strength=0.2, seed=20 + seed)
        other = [bag * OTHER_CAMERA for bag in target]
        adapted = Adapted().fit(known, labels, other)
        assert adapted.score(other, expected) > BagSVM(0.3).fit(known, labels).score(other, expected) + 0.2
        probability = adapted.predict_proba([bag * OTHER_CAMERA for bag in fresh])
        sure.append(probability.max(axis=1).mean())
        right.append(np.mean(adapted.classes_[probability.argmax(axis=1)] == named))
    assert np.mean(right) > np.mean(sure) - 0.01
    assert np.mean(right) < np.mean(sure) + 0.15


def test_a_veto_draws_probabilities_below_the_threshold_and_leaves_the_order():
    rng = np.random.default_rng(0)
    probability, before = rng.dirichlet(np.ones(5) / 3, 200), rng.dirichlet(np.ones(5), 200)
    after = limited(probability, before, 0.6, 0.7)
    rejected = before.max(axis=1) < 0.6
    assert (after.max(axis=1)[rejected] < 0.7).all()
    np.testing.assert_allclose(after[~rejected], probability[~rejected])
    np.testing.assert_allclose(after.sum(axis=1), 1)
    assert (after.argmax(axis=1) == probability.argmax(axis=1)).all()


# --- with photos ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_photos(real_photos, tmp_path_factory):
    """Crops of photos of something else than the model's classes."""
    folder = tmp_path_factory.mktemp("strangers")
    rng = np.random.default_rng(1)
    for name in ("chelsea.png", "ihc.png", "page.png"):
        image = Image.open(real_photos / name).convert("RGB")
        for index in range(4):
            left, top = int(rng.integers(image.width - 100)), int(rng.integers(image.height - 100))
            image.crop((left, top, left + 100, top + 100)).save(folder / f"{name[:-4]}{index}.png")
    return folder


@pytest.fixture(scope="module")
def model(photo_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    ImageClassifier(SMALL, cache=False).fit(photo_folder).save(folder / "m.patchvote")
    return folder / "m.patchvote"


def test_predict_says_in_a_sentence_why_it_does_not_adapt_and_gives_the_plain_answers(model, other_photos):
    plain = patchvote("predict", model, other_photos)
    careful = patchvote("predict", model, other_photos, "--adapt", "--quiet")
    assert careful.returncode == 0, careful.stderr
    answers = [list(csv.DictReader(io.StringIO(done.stdout))) for done in (careful, plain)]
    for one, other in zip(*answers, strict=True):
        assert [one["file"], one["label"]] == [other["file"], other["label"]]
        # Bags to adapt to are stored in float16.
        sure = [float(row["likeliest_probability"]) for row in (one, other)]
        assert sure[0] == pytest.approx(sure[1], abs=5e-4)
    (said,) = careful.stderr.splitlines()
    assert said.startswith("not adapted: ")
    assert "--insist" in said
    insisting = patchvote("predict", model, other_photos, "--adapt", "--insist", "--quiet")
    assert insisting.stderr == ""
    assert insisting.stdout != plain.stdout
    was, now = ([line.split(",")[1] for line in done.stdout.splitlines()] for done in (plain, insisting))
    assert all(after == NONE for before, after in zip(was, now, strict=True) if before == NONE)


def test_rejection_stays_in_force_in_a_model_that_was_adapted_saved_and_taught_more(
    model, photo_folder, other_photos, tmp_path
):
    classifier = ImageClassifier.load(model, cache=False)
    before = [answer.rejected for answer in classifier.answers(other_photos)]
    assert sum(before) > 6
    classifier.adapt(photo_folder)
    assert classifier.refusal is None
    classifier.save(tmp_path / "a.patchvote")
    again = ImageClassifier.load(tmp_path / "a.patchvote", cache=False)
    for _ in range(2):
        answers = list(again.answers(other_photos))
        assert all(answer.rejected for answer, was in zip(answers, before, strict=True) if was)
        evidence = again.explain(sorted(other_photos.iterdir())[0])
        assert evidence.probability.max() == pytest.approx(answers[0].likeliest_probability, abs=1e-6)
        again.adapt(photo_folder)  # the first model's rejection holds, however often it is adapted
    known = sorted(other_photos.glob("page*"))
    again.add(known, ["page"] * 4)  # a class that the first model did not know has no veto, the others have
    assert [answer.likeliest for answer in again.answers(known)] == ["page"] * 4
    bag = again._extractor([known[0]])
    votes = again.model.scorer.votes(bag).mean(axis=0) / again.model.temperature
    assert again.predict_proba(known[:1])[0].max() == pytest.approx(np.exp(votes.max()) / np.exp(votes).sum(), abs=1e-6)
    assert [again.classes[i] for i in again.model.scorer.arrays["unadapted_class"]] == list(classifier.classes)


def test_who_knows_that_there_are_no_strangers_gets_a_class_for_every_photo_by_threshold_zero(model, other_photos):
    some, every = (
        patchvote("predict", model, other_photos, "--adapt", "--insist", "--quiet", *more)
        for more in ((), ("--threshold", "0"))
    )
    labels = [[row["label"] for row in csv.DictReader(io.StringIO(done.stdout))] for done in (some, every)]
    assert NONE in labels[0]
    assert len(labels[1]) == len(labels[0])
    assert NONE not in labels[1]


def test_an_exported_graph_rejects_what_the_adapted_model_rejects(model, photo_folder, other_photos, tmp_path):
    classifier = ImageClassifier.load(model, cache=False).adapt(photo_folder)
    export_model(classifier.model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    photos = [*find_photos(other_photos), *find_photos(photo_folder)[::8]]
    for photo in photos:
        (told,) = session.run(["probability"], {"photo": np.asarray(load_image(photo))})
        (expected,) = classifier.predict_proba([photo])
        np.testing.assert_allclose(told, expected, atol=1e-4)
        assert (told.max() < classifier.model.threshold) == (expected.max() < classifier.model.threshold)


def test_a_damaged_veto_is_refused(model, photo_folder, tmp_path):
    classifier = ImageClassifier.load(model, cache=False).adapt(photo_folder)
    good = classifier.model
    write_model(good, tmp_path / "good.patchvote")
    assert "unadapted_linear" in read_model(tmp_path / "good.patchvote").scorer.arrays
    for change in (
        {"unadapted_class": np.array([0, 1, 2, 9])},
        {"unadapted_class": np.array([0, 1])},
        {"unadapted_threshold": np.array([2.0])},
        {"unadapted_bias": np.full(4, np.nan)},
        {"unadapted_linear": np.zeros((4, 3))},
    ):
        with pytest.raises(ModelError):
            remade(good, arrays=good.scorer.arrays | change)
    with pytest.raises(ModelError, match="missing"):
        remade(good, arrays={k: v for k, v in good.scorer.arrays.items() if k != "unadapted_class"})


def test_evaluate_shows_before_and_after_adapting(model, photo_folder, tmp_path):
    page = tmp_path / "r.html"
    done = patchvote("evaluate", model, photo_folder, "--adapt", "--report", page)
    assert done.returncode == 0, done.stderr
    assert "before adapting 100.0 % classified correctly, " in done.stdout
    assert "; after adapting " in done.stdout
    assert "before adapting 100.0 % classified correctly" in page.read_text()
    told = json.loads(patchvote("evaluate", model, photo_folder, "--adapt", "--no-report", "--json").stdout)
    assert told["adapted"] is True
    assert told["refusal"] is None
    assert told["before"]["accuracy"] == 1.0
    assert told["rejected"] >= told["before"]["rejected"]


def test_fit_keeps_the_plain_model_where_the_target_is_unlike_anything_learned(photo_folder, other_photos, tmp_path):
    with pytest.warns(AdaptationWarning):
        classifier = ImageClassifier(SMALL, cache=tmp_path / "c").fit(photo_folder, target=other_photos)
    assert "not adapted" in str(classifier.refusal)
    assert classifier.model.about.adapted is None
    assert classifier.scores is not None
    next(classifier.answers(other_photos))
    assert classifier.refusal is None  # this call was not asked to adapt
    insisting = ImageClassifier(SMALL, cache=tmp_path / "c").fit(photo_folder, target=other_photos, insist=True)
    assert insisting.refusal is None
    assert insisting.model.about.adapted["rejected"] > 6
