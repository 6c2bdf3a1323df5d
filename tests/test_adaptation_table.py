from __future__ import annotations

from pathlib import Path

from adaptation_table import read_trials, summary, table

ROOT = Path(__file__).parent.parent


TRIAL = {
    "group": "pairs",
    "name": "amazon-webcam",
    "photos": 295,
    "plain": 90.0,
    "insisting": 96.0,
    "adapted": 95.0,
    "rejected_before": 40.0,
    "rejected_after": 41.0,
    "strangers_before": None,
    "strangers_after": None,
    "error_before": 9.0,
    "error_after": 5.0,
    "confidence": 91.0,
    "refused": False,
}


def test_the_table_has_a_row_per_target_with_means_over_trials_and_says_what_was_refused():
    alone = {"plain": None, "insisting": None, "adapted": None, "rejected_before": None, "rejected_after": None}
    stranger = {"group": "strangers", "name": "scenes", "strangers_before": 100.0, "strangers_after": 100.0}
    trials = [
        TRIAL,
        TRIAL | {"adapted": 97.0},
        TRIAL | {"name": "webcam-amazon", "refused": True, "adapted": 90.0},
        TRIAL | stranger | alone | {"refused": True},
    ]
    lines = table(trials).splitlines()
    assert "| amazon-webcam | 2 | 90.00 | 96.00 | 96.00 |  | 40.0 | 41.0 |  |  | 9.0 | 5.0 |" in lines
    assert "| webcam-amazon | 1 | 90.00 | 96.00 | 90.00 | 1 of 1 | 40.0 | 41.0 |  |  | 9.0 | 5.0 |" in lines
    assert "| **mean** | 3 | 90.00 | 96.00 | 93.00 | 1 of 3 | 40.0 | 41.0 |  |  | 9.0 | 5.0 |" in lines
    assert "| scenes | 1 |  |  |  | 1 of 1 |  |  | 100.0 | 100.0 | 9.0 | 5.0 |" in lines


def test_in_the_kept_trials_adapting_never_costs_more_than_a_point_and_lets_no_stranger_in():
    rows = summary(read_trials(ROOT / "results" / "adaptation"))
    assert {row["group"] for row in rows} >= {"pairs", "styles", "strangers", "mixtures", "few classes", "few photos"}
    asked = [row for row in rows if row["adapted"] is not None]
    assert min(row["adapted"] - row["plain"] for row in asked) >= -1
    six = [row for row in rows if row["group"] == "pairs"]
    assert sum(row["adapted"] - row["insisting"] for row in six) / 6 >= -0.3
    assert len(six) == 6
    strange = [row for row in rows if row["strangers_before"] is not None]
    assert all(row["strangers_after"] >= row["strangers_before"] for row in strange)
