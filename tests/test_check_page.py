"""The page on checking photos has the tables of the records."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def benchmark(monkeypatch):
    """Import a benchmark by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def load(name):
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize("name", ["mislabelled", "suggest"])
def test_the_page_has_the_tables_of_the_records(benchmark, name):
    module = benchmark(name)
    trials = module.read_trials(ROOT / "results" / "check" / f"{name}.jsonl")
    assert "\n".join(module.tables(trials)) in (ROOT / "docs" / "check.md").read_text(encoding="utf-8")


def test_labels_saved_are_those_at_the_accuracy_of_random_choice(benchmark):
    module = benchmark("suggest")
    trials = [
        {"set": "s", "rule": "random", "labels": [10, 20, 30, 40], "accuracy": [50, 60, 70, 80]},
        {"set": "s", "rule": "suggest", "labels": [10, 20, 30, 40], "accuracy": [50, 75, 85, 90]},
        {"set": "s", "rule": "uncertain", "labels": [10, 20, 30, 40], "accuracy": [50, 55, 60, 70]},
    ]
    assert module.saved(trials, "s", "suggest") == pytest.approx(100 * (1 - 25 / 40))
    assert module.saved(trials, "s", "uncertain") == 0
