"""The section "Evidence, measured" of the page of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evidence_table import MEASURES, read_trials, section
from experiments.results import Results, Run

ROOT = Path(__file__).parent.parent


def trial(part: str, classifier: str, kind: str, value: float, lead: float = 0.0, **more) -> dict:
    """One line as the benchmark writes it."""
    line = {"set": "scene15", "part": part, "classifier": classifier, "map": kind, "count": 40}
    for measure in MEASURES[part]:
        line |= {measure: value, f"{measure}_error": 0.012}
        line |= {f"{measure}_lead": lead, f"{measure}_lead_error": 0.3 * abs(lead)}
    return line | ({"right": 0.875} if part == "photos" else {}) | more


TRIALS = [
    trial("collages", "bag-svm", "less the strongest other", 0.8),
    trial("collages", "bag-svm", "softmax", 0.7, -0.1),
    trial("collages", "bag-svm", "occlusion", 0.5, -0.3),
    trial("collages", "bag-svm", "random", 0.25, -0.55),
    trial("collages", "pooled map + linear head", "Grad-CAM", 0.6),
    trial("collages", "pooled map + linear head", "random", 0.25, -0.35),
    trial("photos", "bag-svm", "less the strongest other", 0.4),
    trial("photos", "bag-svm", "softmax", 0.45, 0.05),
    trial("photos", "bag-svm", "centre", 0.5, 0.1),
]


def test_the_tables_have_a_row_per_map_with_errors_and_the_default_map_in_bold():
    lines = section(TRIALS).splitlines()
    assert "| **bag-svm: less the strongest other** | 80.0 ± 1.2 | 80.0 ± 1.2 | 80.0 ± 1.2 | 40 |" in lines
    assert f"| bag-svm: occlusion{3 * ' | 50.0 (-30.0 ± 9.0)'} | 40 |" in lines
    assert "| **pooled map + linear head: Grad-CAM** | 60.0 ± 1.2 | 60.0 ± 1.2 | 60.0 ± 1.2 | 40 |" in lines
    assert "| **bag-svm: less the strongest other** | 40.0 ± 1.2 | 40.0 ± 1.2 | 40 | 88 |" in lines
    assert f"| bag-svm: centre{2 * ' | 50.0 (+10.0 ± 3.0)'} | 40 | 88 |" in lines
    (last,) = [index for index, line in enumerate(lines) if line.startswith("| any classifier: random | 25.0")]
    assert lines[last + 1] == ""


def test_other_maps_of_the_votes_are_shown_by_their_leads_over_the_default_one():
    (row,) = [line for line in section(TRIALS).splitlines() if line.startswith("| bag-svm: softmax |")]
    assert row == "| bag-svm: softmax" + 3 * " | -10.0 ± 3.0" + 2 * " | +5.0 ± 1.5" + " |"


def test_every_set_has_tables_of_its_own():
    text = section([*TRIALS, trial("collages", "snbnl", "less the strongest other", 0.9, set="mine")])
    assert [line for line in text.splitlines() if "collages of four" in line] == [
        "**Scene-15: collages of four photos** (per cent; chance is 25)",
        "**mine: collages of four photos** (per cent; chance is 25)",
    ]


def test_without_a_file_there_are_no_trials(tmp_path):
    assert read_trials(tmp_path / "trials.jsonl") == []


def test_the_page_of_results_has_the_section_and_its_notes(tmp_path):
    pytest.importorskip("matplotlib")
    from experiments.page.page import write_results

    results = Results(tmp_path / "results")
    cell = {"pair": None, "split": 1, "hits": "10", "accuracy": 50.0, "duplicates": 0}
    results.add(Run("scene15", "random", "nbnn", "dense", "efficientnet-lite0"), {}, cell)
    assert "Evidence" not in write_results(results, tmp_path / "docs").read_text(encoding="utf-8")
    folder = tmp_path / "results" / "evidence"
    folder.mkdir()
    (folder / "trials.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in TRIALS))
    (folder / "table.md").write_text(section(TRIALS))
    (folder / "notes.md").write_text("What the numbers say.\n")
    page = write_results(results, tmp_path / "docs").read_text(encoding="utf-8")
    assert f"## Evidence, measured\n\n{section(TRIALS)}\n\nWhat the numbers say.\n" in page


def test_in_the_kept_trials_every_voter_finds_the_right_quarter_better_than_grad_cam_and_occlusion():
    trials = read_trials(ROOT / "results" / "evidence" / "trials.jsonl")
    rows = {(one["set"], one["classifier"], one["map"]): one for one in trials if one["part"] == "collages"}
    sets = {name for name, _, _ in rows}
    assert sets == {"scene15", "amazon"}
    for name in sets:
        peer = rows[name, "pooled map + linear head", "Grad-CAM"]["share"]
        for kind in ("bag-svm", "snbnl", "nbnl", "nbnn", "local-nbnn"):
            assert rows[name, kind, "less the strongest other"]["share"] > peer
            assert rows[name, kind, "occlusion"]["share_lead"] < 0
