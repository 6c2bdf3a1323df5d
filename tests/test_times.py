"""Accuracy over training time: a speed-up is read at equal accuracy."""

from __future__ import annotations

import dataclasses

import pytest

from experiments.page.speed import Budget, budget_table, budgets, sentence
from experiments.protocol import Protocol
from experiments.results import Results, Run

NAME = "scene15-time"


def snbnl(rounds: int, seconds: float, accuracy: float, error: float = 0.2) -> Budget:
    return Budget("snbnl", rounds, 3, seconds, accuracy, error)


def nbnl(rounds: int, seconds: float, accuracy: float) -> Budget:
    return Budget("nbnl", rounds, 3, seconds, accuracy, 0.2)


def test_the_speed_up_is_read_where_both_reach_the_same_accuracy():
    found = [
        snbnl(1, 2, 93),
        snbnl(2, 4, 93.9),
        snbnl(3, 6, 94),
        nbnl(1, 8, 92),
        nbnl(5, 40, 93.8),
        nbnl(30, 240, 94.5),
    ]
    words = sentence(found)
    # 94 - 0.2 is reached by sNBNL in 2 passes and by NBNL in 5 rounds, not in 3 and 30.
    assert "sNBNL takes 4.0 s of training (passes: 2) and NBNL 40.0 s (rounds: 5)" in words
    assert words.endswith("at equal accuracy sNBNL is 10.0 times as fast.")
    assert "every budget" not in words  # NBNL has the best accuracy, and sNBNL the shortest training


def test_a_voter_that_leads_at_every_budget_is_said_to():
    slow = [snbnl(1, 10, 90), snbnl(3, 30, 91)]
    ahead = sentence([*slow, nbnl(1, 5, 90.5), nbnl(2, 6, 92)])
    assert ahead.startswith("NBNL is ahead at every budget")
    assert ahead.endswith("NBNL is 5.0 times as fast.")  # 91 - 0.2 after 30 s and 6 s
    behind = sentence([*slow, nbnl(1, 50, 89), nbnl(2, 60, 90)])
    assert behind.startswith("NBNL is behind at every budget")
    assert behind.endswith("NBNL does not reach sNBNL's best accuracy, 91.00 ± 0.20 % in up to 60.0 s of training.")
    assert sentence(slow) == ""


def test_a_single_split_is_given_no_standard_error():
    found = [Budget("snbnl", 3, 1, 12.0, 94.8, 0.0), Budget("nbnl", 10, 1, 80.0, 94.4, 0.0)]
    found.append(Budget("nbnl", 30, 1, 240.0, 94.9, 0.0))
    words = sentence(found)
    assert words.startswith("To reach sNBNL's best accuracy, 94.80 % on one split, sNBNL takes 12.0 s")
    assert "sNBNL is 20.0 times as fast. One split has no standard error" in words
    assert "±" not in words
    assert "94.80 % on one split in up to 80.0 s" in sentence(found[:2])


def test_budgets_are_means_over_the_splits_that_all_have(tmp_path):
    results = Results(tmp_path)
    cells = {"snbnl(max_iter=3)": [90.0, 92.0, 10.0], "nbnl(max_iter=30)": [91.0, 94.0], "snbnl": [0.0, 0.0]}
    for voter, accuracies in cells.items():
        for split, accuracy in enumerate(accuracies, start=1):
            cell = {"pair": None, "split": split, "accuracy": accuracy, "train_seconds": 2.0 * split}
            results.add(Run(NAME, "random", voter, "dense", "efficientnet-lite0"), {}, cell)
    first, second = (
        dataclasses.replace(one, error=round(one.error, 9)) for one in budgets(Protocol.load(NAME), results)
    )
    assert first == Budget("snbnl", 3, 2, 3.0, 91.0, 1.0)
    assert second == Budget("nbnl", 30, 2, 3.0, 92.5, 1.5)
    assert "| CNN-NBNL | 30 | 2 | 3.0 | 92.50 ± 1.50 |" in budget_table([first, second])


def test_the_page_has_the_curve_the_sentence_and_the_table(tmp_path):
    pytest.importorskip("matplotlib")
    from experiments.page.page import write_results

    results = Results(tmp_path / "results")
    for voter, accuracy, seconds in (("snbnl(max_iter=1)", 90.0, 1.0), ("nbnl(max_iter=1)", 90.0, 3.0)):
        cell = {"pair": None, "split": 1, "accuracy": accuracy, "train_seconds": seconds, "hits": "1", "duplicates": 0}
        results.add(Run(NAME, "random", voter, "dense", "efficientnet-lite0"), {}, cell)
    page = write_results(results, tmp_path / "docs").read_text(encoding="utf-8")
    assert "## Scene-15, accuracy over training time" in page
    assert "sNBNL is 3.0 times as fast" in page
    assert (tmp_path / "docs" / "results" / f"{NAME}.png").exists()
