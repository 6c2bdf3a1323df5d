"""Kept results: means, fair comparisons, and the page that is made of them."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from experiments.datasets import read_dataset
from experiments.page.fair import compare, table
from experiments.protocol import PROTOCOLS, Protocol
from experiments.results import Draw, Results, Run, read_draws
from experiments.runner import Runner, Selection, plan
from experiments.splits import Split
from experiments.stores import Stores

ROOT = Path(__file__).parent.parent


def add(results: Results, protocol: str, setting: str, voter: str, by_pair: dict, **more) -> Run:
    """Store cells of a voter: for each pair, the hits of its splits."""
    run = Run(protocol, setting, voter, "dense", "efficientnet-lite0")
    for pair, splits in by_pair.items():
        for split, hits in enumerate(splits, start=1):
            cell = {"pair": pair, "split": split, "hits": hits, "accuracy": 100 * hits.count("1") / len(hits)}
            results.add(run, {"drawn": "x"}, cell | more)
    return run


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path)


# --- comparisons ------------------------------------------------------------------------------------------------------


def test_a_photo_of_two_splits_counts_once_for_the_voter_that_had_it_right_more_often(results):
    photos = {1: ["a", "b", "c", "d"], 2: ["b", "c", "d", "e"]}
    results.keep_draws("scene15", {Draw("random", None, k): Split(["x"], test) for k, test in photos.items()})
    voters = {"snbnl": ["1111", "1110"], "pooled-svm(scales=each)": ["1010", "0110"], "whole-svm": ["1000", "0000"]}
    voters |= {"covariance-svm": ["1111", "1111"]}
    snbnl, pooled, *_ = (add(results, "scene15", "random", one, {None: hits}) for one, hits in voters.items())
    found = compare(results, snbnl, pooled)
    # a, c and e: equal. b: right in both splits against none. d: right in both against one.
    assert (found.first, found.second, found.p) == (2, 0, binomtest(2, 2).pvalue)
    differences = [100 - 50, 75 - 50]
    assert found.difference == pytest.approx(np.mean(differences))
    assert found.error == pytest.approx(np.std(differences, ddof=1) / np.sqrt(2))
    protocol = Protocol.load("scene15")
    lines = table(protocol, protocol.settings[0], results).splitlines()[2:]
    assert lines == [
        "|CNN-sNBNL, lambda 1e-4|+37.50±12.50 (2); 2:0; p=0.5|-12.50±12.50 (2); 0:1; p=1|",
        "|the best mean-pooled image|pooled image (scales=each)||",
    ]


PAIRS = ("amazon-webcam", "caltech-webcam", "webcam-amazon")
DOMAINS = {  # by voter; for each pair, the hits of two splits
    "pooled-svm(scales=each)": ("1110 1110", "1100 1100", "1100 1100"),
    "snbnl": ("1000 1000", "1111 1111", "1100 1101"),
}


def test_pairs_of_a_split_are_averaged_and_a_photo_of_the_target_counts_once_whatever_the_source(results):
    for pair in PAIRS:
        photos = [f"{pair.partition('-')[2]}/{number}" for number in range(4)]
        results.keep_draws("office-caltech", {Draw("unsupervised", pair, k): Split(["x"], photos) for k in (1, 2)})
    runs = []
    for voter, by_pair in DOMAINS.items():
        hits = {pair: splits.split() for pair, splits in zip(PAIRS, by_pair, strict=True)}
        runs.append(add(results, "office-caltech", "unsupervised", voter, hits))
    second, first = runs
    found = compare(results, first, second)
    by_split = np.mean([(-50, -50), (50, 50), (0, 25)], axis=0)  # differences of each pair, in two splits
    assert found.difference == pytest.approx(np.mean(by_split))
    assert found.error == pytest.approx(np.std(by_split, ddof=1) / np.sqrt(2))
    # Webcam, four cells each: photo 0 is right in 4 and 4 of them, 1 in 2 and 4, 2 in 2 and 2, 3 in 2 and 0.
    # Amazon, two cells: photos 0, 1 and 2 are equal, 3 is right in 1 and 0.
    assert (found.first, found.second, found.p) == (2, 1, binomtest(2, 3).pvalue)
    assert compare(results, first, second, PAIRS[:1]).difference == -50
    assert compare(results, first, dataclasses.replace(first, voter="nbnn")) is None


# --- the records of the repository ------------------------------------------------------------------------------------


def test_the_page_of_results_is_made_from_the_records(tmp_path):
    pytest.importorskip("matplotlib")
    from experiments.page.page import write_results

    page = ROOT / "docs" / "results.md"
    shutil.copy(page, tmp_path)
    write_results(Results(ROOT / "results"), tmp_path)
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    assert {path.name for path in (tmp_path / "results").iterdir()} <= {
        path.name for path in (ROOT / "docs" / "results").iterdir()
    }


def test_the_records_belong_to_the_splits_of_today():
    results = Results(ROOT / "results")
    for protocol in map(Protocol.load, PROTOCOLS):
        plan(protocol, Selection(), results)  # compares how splits are drawn
    selected = Selection(recipes=("dense",), voters=("bag-svm", "adapted"))
    assert plan(Protocol.load("office-caltech"), selected, results) == ([], 2 * 10 * (16 + 12))


@pytest.mark.data
@pytest.mark.slow
def test_a_fresh_run_reproduces_the_records(data, tmp_path):
    protocol, committed = Protocol.load("office-caltech"), Results(ROOT / "results")
    dataset = read_dataset(protocol.layout, data / "office_caltech")
    stores = Stores(tmp_path / "bags", {photo.name: photo for photo in dataset.photos})
    at_work = Runner(protocol, dataset, stores, Results(tmp_path / "results"))
    voters = ("snbnl", "whole-svm")
    selection = Selection(("unsupervised",), ("webcam-dslr",), voters, ("dense",), splits=1)
    groups, _ = plan(protocol, selection, at_work.results)
    fresh = {voter: cell["accuracy"] for _, voter, cell in at_work.compute(groups)}
    for voter in voters:
        kept = committed.read(groups[0].run(protocol, voter))
        (old,) = (c["accuracy"] for c in kept["cells"] if (c["pair"], c["split"]) == ("webcam-dslr", 1))
        assert fresh[voter] == pytest.approx(old, abs=0.2), voter
    draw = Draw("unsupervised", "webcam-dslr", 1)
    kept, now = (read_draws(root / "office-caltech")[draw] for root in (ROOT / "results", tmp_path / "results"))
    assert kept == now
