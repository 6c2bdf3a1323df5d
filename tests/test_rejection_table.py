"""The tables on rejection: made from the records of trials, and those of the page are those of the records."""

from __future__ import annotations

import collections
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("rejection_table", ROOT / "benchmarks" / "rejection_table.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def trial(voter="bag-svm", source="amazon", auroc=0.9, **more):
    figures = {"known": {"rejected": 0.04, "auroc": 0.5}, "near": {"rejected": 0.6, "auroc": auroc}}
    scores = dict.fromkeys(("probability", "logit", "energy", "margin", "neighbour", "class mean"), figures)
    scores |= {"familiarity": figures, "before": figures}
    return {"voter": voter, "source": source, "per_class": 10, "seed": 1, "scores": scores, **more}


def test_sources_count_the_same_however_many_trials_they_have(tables):
    trials = [trial(auroc=0.9), trial(auroc=0.8), trial(source="webcam", auroc=0.95)]
    assert tables.mean_of(trials, "familiarity", "near", "auroc") == pytest.approx((0.85 + 0.95) / 2)
    assert "| bag-svm | 3 | **familiarity** | 0.900 | - | - | - |" in tables.auroc_table(trials)
    assert "| bag-svm | as before: probability | 4.0 | - | 60.0 | - | - | - |" in tables.rejection_table(trials)


def test_the_page_has_the_tables_of_the_records(tables):
    page = (ROOT / "docs" / "rejection.md").read_text(encoding="utf-8")
    records = ROOT / "results" / "rejection"
    trials = tables.read_trials(records / tables.FILE)
    assert len(trials) > 40
    for table in (
        tables.auroc_table(trials),
        tables.rejection_table(trials),
        tables.source_table(trials, "bag-svm"),
    ):
        assert table in page


def test_in_the_kept_trials_familiarity_is_as_good_as_the_best_of_the_three_scores(tables):
    """On every kind of strangers, for every voter with enough trials, to half a hundredth."""
    trials = tables.read_trials(ROOT / "results" / "rejection" / tables.FILE)
    counts = collections.Counter(one["voter"] for one in trials)
    voters = [voter for voter, count in counts.items() if count >= 20]
    assert "bag-svm" in voters
    for voter in voters:
        own = [one for one in trials if one["voter"] == voter]
        for kind in tables.KINDS:
            ours = tables.mean_of(own, "familiarity", kind, "auroc")
            best = max(tables.mean_of(own, score, kind, "auroc") for score in ("probability", "logit", "neighbour"))
            assert ours > best - 0.005, (voter, kind)
