"""Adapting must not make a model confidently wrong: strangers stay rejected, and what looks unsafe is not done."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image

from helpers.command import patchvote
from patchvote import Dense, ImageClassifier, Recipe
from patchvote.voters.votes import NONE

SMALL = Recipe(sampling=Dense(sides=(96,)))


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
    insisting = patchvote("predict", model, other_photos, "--adapt", "--insist", "--quiet")
    answers = [list(csv.DictReader(io.StringIO(done.stdout))) for done in (careful, plain, insisting)]
    for one, other, insisted in zip(*answers, strict=True):
        assert [one["file"], one["label"]] == [other["file"], other["label"]]
        # Bags to adapt to are stored in float16.
        sure = [float(row["likeliest_probability"]) for row in (one, other)]
        assert sure[0] == pytest.approx(sure[1], abs=5e-4)
        assert insisted["label"] != NONE
    (said,) = careful.stderr.splitlines()
    assert (said.startswith("not adapted: "), "--insist" in said, insisting.stderr) == (True, True, "")


def test_rejection_stays_in_force_in_a_model_that_was_adapted_and_saved(model, photo_folder, other_photos, tmp_path):
    classifier = ImageClassifier.load(model, cache=False)
    before = [answer.rejected for answer in classifier.answers(other_photos)]
    assert sum(before) > 6
    classifier.adapt(photo_folder)
    assert classifier.refusal is None
    classifier.save(tmp_path / "a.patchvote")
    again = ImageClassifier.load(tmp_path / "a.patchvote", cache=False)
    answers = list(again.answers(other_photos))
    assert [answer.rejected for answer in answers] == before
    evidence = again.explain(sorted(other_photos.iterdir())[0])
    assert evidence.probability.max() == pytest.approx(answers[0].likeliest_probability, abs=2e-3)  # 8 bits


def test_evaluate_shows_before_and_after_adapting(model, photo_folder, tmp_path):
    told = json.loads(
        patchvote("evaluate", model, photo_folder, "--adapt", "--report", tmp_path / "r.html", "--json").stdout
    )
    assert "before adapting 100.0 % classified correctly" in (tmp_path / "r.html").read_text()
    assert (told["adapted"], told["refusal"], told["before"]["accuracy"]) == (True, None, 1.0)
    assert told["rejected"] >= told["before"]["rejected"]


def test_both_directions_of_what_adapting_changes_are_counted(model, photo_folder):
    def rejected(*more):
        lines = patchvote("predict", model, photo_folder, "--json", *more).stdout.splitlines()
        return {answer["file"]: answer["label"] == "none of these" for answer in map(json.loads, lines)}

    plain, adapted = rejected(), rejected("--adapt")
    made = sum(adapted[name] and not plain[name] for name in plain)
    named = sum(plain[name] and not adapted[name] for name in plain)
    said = patchvote("predict", model, photo_folder, "--adapt").stderr
    assert f'adapting made {made} "none of these", and gave {named} that were a class.' in said
    said = patchvote("evaluate", model, photo_folder, "--adapt", "--no-report").stdout
    assert f"of which {made} are newly so; {named} that were" in said
