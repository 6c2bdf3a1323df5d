from __future__ import annotations

import csv

import pytest

from helpers.command import Command
from patchvote import ImageClassifier
from patchvote.cli import demo


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a demonstration with few test crops, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_TEST", 5)
        printed: list[object] = []
        patch.setattr(demo, "show", printed.append)
        demo.run(folder, demo.Machine())
    return folder, "\n".join(map(str, printed))


def test_the_demo_writes_model_predictions_evidence_and_report(made):
    folder, printed = made
    names = {path.name for path in folder.iterdir()}
    assert names >= {"model.patchvote", "predictions.csv", "evidence.png", "report.html", "photos"}
    rows = list(csv.DictReader((folder / "predictions.csv").open()))
    assert len(rows) == 5 * len(demo.PHOTOS)
    right = [row["file"].split("/")[0] == row["label"] for row in rows]
    assert sum(right) / len(rows) > 0.9
    assert "36 crops of the left sides to learn from, 30 crops of the right sides to test on" in printed
    assert "photos of your own will be harder" in printed


def test_the_evidence_of_the_collage_points_at_the_right_parts(made):
    evidence = ImageClassifier.load(made[0] / "model.patchvote").explain(made[0] / "photos" / "collage.png")
    for index, label in enumerate(demo.COLLAGE):
        votes = evidence.contrast(label, 32, 32).clip(0)
        row, column = divmod(index, 2)
        quarter = votes[16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
        assert quarter.sum() / votes.sum() > 0.6  # a quarter would be chance
    page = (made[0] / "report.html").read_text()
    assert "crops of the right sides of photos whose left sides it had learned from" in page


def test_a_folder_is_written_into_again_only_if_the_demo_made_it_or_by_force(tmp_path, monkeypatch, command: Command):
    monkeypatch.setattr(demo, "run", lambda folder, machine: demo.make_photos(folder / "photos"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.txt").write_text("years of work")
    for folder, options, code in (("new", (), 0), ("new", (), 0), (".", (), 1), (".", ("--force",), 0)):
        assert command("demo", folder, *options).code == code, (folder, options)
