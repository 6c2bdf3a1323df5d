"""Comparisons of voters are paired, and count every photo once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from patchvote.protocols.cells import Run
from patchvote.protocols.draws import Draw
from patchvote.protocols.page.fair import compare, table
from patchvote.protocols.protocol import Protocol
from patchvote.protocols.results import Results
from patchvote.protocols.splits import Split

NAME = "scene15-parts"
HITS = {  # by voter and split; photos of split 2 are b, c, d, e
    "snbnl": {1: "1111", 2: "1110"},
    "pooled-svm(scales=last)": {1: "1010", 2: "0110"},
    "whole-svm": {1: "1000", 2: "0000"},
}


@pytest.fixture
def results(tmp_path):
    results = Results(tmp_path)
    draws = {
        Draw("random", None, 1): Split(["x"], ["a", "b", "c", "d"]),
        Draw("random", None, 2): Split(["y"], ["b", "c", "d", "e"]),
    }
    results.keep_draws(NAME, draws)
    for voter, splits in HITS.items():
        for split, hits in splits.items():
            accuracy = 100 * hits.count("1") / len(hits)
            cell = {"pair": None, "split": split, "accuracy": accuracy, "hits": hits, "duplicates": 0}
            results.add(run(voter), {"drawn": "x"}, cell)
    return results


def run(voter: str) -> Run:
    return Run(NAME, "random", voter, "dense", "efficientnet-lite0")


def test_a_photo_of_two_splits_counts_once_for_the_voter_that_had_it_right_more_often(results):
    found = compare(results, run("snbnl"), run("pooled-svm(scales=last)"))
    # a, c and e: equal. b: right in both splits against none. d: right in both against one.
    assert (found.first, found.second) == (2, 0)
    assert found.p == binomtest(2, 2).pvalue
    differences = [100 - 50, 75 - 50]
    assert found.difference == pytest.approx(np.mean(differences))
    assert found.error == pytest.approx(np.std(differences, ddof=1) / np.sqrt(2))
    assert compare(results, run("snbnl"), run("nbnn")) is None


def test_the_table_compares_with_the_best_baseline_without_parts(results):
    lines = table(Protocol.load(NAME), results).splitlines()[2:]
    whole, pooled, parts = (next(line for line in lines if line.startswith(f"| {name}")) for name in NAMES)
    assert "12.50 ± 17.68" in whole
    assert "| best |" in pooled
    assert "| +37.50 ± 12.50 | 2 : 0 | 0.5 |" in parts


NAMES = ("whole image + SVM", "pooled image + SVM (scales=last)", "CNN-sNBNL")
