from __future__ import annotations

import csv

from helpers.command import Command
from patchvote import ImageClassifier
from patchvote.cli import demo


def test_the_demo_writes_answers_and_a_report_and_its_evidence_points_at_the_right_parts(tmp_path, monkeypatch):
    folder = tmp_path
    monkeypatch.setattr(demo, "_TEST", 5)
    demo.run(folder, demo.Machine())
    names = {path.name for path in folder.iterdir()}
    assert names >= {"model.patchvote", "predictions.csv", "evidence.png", "report.html", "photos"}
    rows = list(csv.DictReader((folder / "predictions.csv").open()))
    assert len(rows) == 5 * len(demo.PHOTOS)
    right = [row["file"].split("/")[0] == row["label"] for row in rows]
    assert sum(right) / len(rows) > 0.9
    evidence = ImageClassifier.load(folder / "model.patchvote").explain(folder / "photos" / "collage.png")
    for index, label in enumerate(demo.COLLAGE):
        votes = evidence.contrast(label, 32, 32).clip(0)
        row, column = divmod(index, 2)
        quarter = votes[16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
        assert quarter.sum() / votes.sum() > 0.6  # a quarter would be chance


def test_a_folder_is_written_into_again_only_if_the_demo_made_it_or_by_force(tmp_path, monkeypatch, command: Command):
    monkeypatch.setattr(demo, "run", lambda folder, machine: demo.make_photos(folder / "photos"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.txt").write_text("years of work")
    for folder, options, code in (("new", (), 0), ("new", (), 0), (".", (), 1), (".", ("--force",), 0)):
        assert command("demo", folder, *options).code == code, (folder, options)
