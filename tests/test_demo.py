from __future__ import annotations

import csv

import pytest

from patchvote import ImageClassifier
from patchvote.cli.demo import COLLAGE, PHOTOS, in_own_quarter, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    run(folder)
    return folder


def test_the_demo_writes_model_predictions_evidence_and_report(folder):
    names = {path.name for path in folder.iterdir()}
    assert names >= {"model.patchvote", "predictions.csv", "evidence.png", "report.html", "photos"}
    rows = list(csv.DictReader((folder / "predictions.csv").open()))
    assert len(rows) == 20 * len(PHOTOS)
    right = [row["file"].split("/")[0] == row["label"] for row in rows]
    assert sum(right) / len(rows) > 0.9


def test_the_evidence_of_the_collage_points_at_the_right_parts(folder):
    evidence = ImageClassifier.load(folder / "model.patchvote").explain(folder / "photos" / "collage.png")
    shares = in_own_quarter(evidence)
    assert set(shares) == set(COLLAGE)
    assert min(shares.values()) > 0.6  # a quarter would be chance


def test_the_report_says_what_the_test_crops_are_and_shows_photos_with_their_evidence(folder):
    page = (folder / "report.html").read_text()
    assert "crops of the right sides of photos whose left sides it had learned from" in page
    examples = page[page.index("Where the evidence is") : page.index("Would more photos help?")]
    assert examples.count("<li") == 1 + len(PHOTOS)
    assert examples.count("<img") >= 1 + len(COLLAGE) + 2 * len(PHOTOS)


def test_the_demo_can_be_run_again_in_its_folder(folder, capsys):
    run(folder)
    said = capsys.readouterr().out
    assert "36 crops of the left sides to learn from, 120 crops of the right sides to test on" in said
    assert "photos of your own will be harder" in said
