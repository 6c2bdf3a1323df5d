"""Comparisons of voters are paired, and count every photo once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from experiments.page.comparison import compare
from experiments.page.fair import table
from experiments.protocol import Protocol
from experiments.results import Draw, Results, Run
from experiments.splits import Split

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


# --- pairs of domains -------------------------------------------------------------------------------------------------

OFFICE = "office-parts"
PAIRS = ("amazon-webcam", "caltech-webcam", "webcam-amazon")
DOMAINS = {  # by voter; for each pair, the hits of two splits
    "whole-svm": ("1100 1000", "1100 1100", "1000 1100"),
    "pooled-svm(scales=last)": ("1110 1110", "1100 1100", "1100 1100"),
    "snbnl": ("1000 1000", "1111 1111", "1100 1101"),
    "adapted(scales=last)": ("1111 1111", "1111 1111", "1110 1111"),
    "adapted": ("1110 1110", "1111 1111", "1111 1111"),
}
BEST = "pooled-svm(scales=last)"


def office_run(voter: str) -> Run:
    return Run(OFFICE, "unsupervised", voter, "dense", "efficientnet-lite0")


@pytest.fixture
def office(tmp_path):
    results = Results(tmp_path)
    for pair in PAIRS:
        photos = [f"{pair.partition('-')[2]}/{number}" for number in range(4)]
        results.keep_draws(OFFICE, {Draw("unsupervised", pair, split): Split(["x"], photos) for split in (1, 2)})
    for voter, by_pair in DOMAINS.items():
        for pair, splits in zip(PAIRS, by_pair, strict=True):
            for split, hits in enumerate(splits.split(), start=1):
                cell = {"pair": pair, "split": split, "accuracy": 25.0 * hits.count("1"), "hits": hits, "skipped": []}
                cell |= {"calibration_error": 4.0 * split, "rejected": 10.0, "accepted_accuracy": 90.0}
                if voter == "snbnl":  # as if it was not calibrated, or had rejected all photos of a split
                    cell |= {"accepted_accuracy": None if split == 1 else 80.0}
                results.add(office_run(voter), {"drawn": "x"}, cell)
    return results


def test_pairs_of_a_split_are_averaged_before_the_standard_error(office):
    found = compare(office, office_run("snbnl"), office_run(BEST))
    by_pair = [(-50, -50), (50, 50), (0, 25)]  # of two splits
    by_split = np.mean(by_pair, axis=0)
    assert found.difference == pytest.approx(np.mean(by_split))
    assert found.error == pytest.approx(np.std(by_split, ddof=1) / np.sqrt(2))
    assert found.splits == 2
    assert (found.below, found.pairs) == (1, 3)  # -50 both times is beyond noise
    assert compare(office, office_run("snbnl"), office_run(BEST), PAIRS[:1]).difference == -50


def test_a_photo_of_the_target_counts_once_whatever_the_source(office):
    found = compare(office, office_run("snbnl"), office_run(BEST))
    # Webcam, four cells each: photo 0 is right in 4 and 4 of them, 1 in 2 and 4, 2 in 2 and 2, 3 in 2 and 0.
    # Amazon, two cells: photos 0, 1 and 2 are equal, 3 is right in 1 and 0.
    assert (found.first, found.second) == (2, 1)
    assert found.p == binomtest(2, 3).pvalue


def test_a_row_that_adapts_is_compared_with_the_best_pooled_image_that_adapts(office):
    text = table(Protocol.load(OFFICE), office)
    assert "### Office+Caltech-10, parts and the pooled image, unsupervised" in text
    assert "semi-supervised" not in text  # there is no cell
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    header = next(line for line in lines.values() if line.startswith("| voter"))
    assert "| pairs below it |" in header
    assert header.endswith("| calibration error | rejected | accuracy on the rest |")
    assert "| best |" in lines["pooled image + SVM (scales=last)"]
    assert "| best |" in lines["adapted BagSVM (scales=last)"]
    assert "| best |" not in lines["whole image + SVM"]
    assert "| +4.17 ± 4.17 | 1 of 3 | 2 : 1 | 1 | 6.0 | 10.0 | 80.0 |" in lines["CNN-sNBNL"]
    found = compare(office, office_run("adapted"), office_run("adapted(scales=last)"))
    assert f"| {found.difference:+.2f} ± {found.error:.2f} | {found.below} of 3 |" in lines["adapted BagSVM"]
    assert "come from a fifth of the training photos" in text


def test_photos_that_could_not_be_read_are_left_out_of_the_count(office, tmp_path):
    for voter, hits in (("nbnn", "111"), ("local-nbnn", "011")):
        cell = {"pair": PAIRS[0], "split": 1, "accuracy": 0.0, "hits": hits, "skipped": ["webcam/1"]}
        office.add(office_run(voter), {"drawn": "x"}, cell)
    found = compare(office, office_run("nbnn"), office_run("local-nbnn"))
    assert (found.first, found.second, found.error, found.pairs) == (1, 0, 0.0, 0)
