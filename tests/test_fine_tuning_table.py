"""The page on fine-tuning: its table and its figures are those of the records."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from patchvote import find_photos
from patchvote.nn import TuningSettings, fine_tune

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def benchmark_module():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("fine_tune")


@pytest.fixture(scope="module")
def records():
    return json.loads((ROOT / "results/bench/fine-tune.json").read_text(encoding="utf-8"))


def test_the_page_has_the_table_of_the_records(benchmark_module, records):
    page = (ROOT / "docs/fine-tuning.md").read_text(encoding="utf-8")
    start, end = (f"<!-- {words}{benchmark_module.NAME} -->" for words in ("", "end of "))
    shown = page.partition(start)[2].partition(end)[0].strip().splitlines()
    assert shown == benchmark_module.lines_of(records)


def test_every_method_has_the_same_seeds_and_a_curve_of_each(benchmark_module, records):
    counts = {way: len(benchmark_module.by_seed(records, way)) for way in benchmark_module.WAYS}
    assert len(set(counts.values())) == 1
    assert min(counts.values()) >= 1
    assert all(line for way in counts for line in benchmark_module.by_pass(records, way))


def test_the_table_lists_the_best_method_first_with_its_seeds_and_mean(benchmark_module):
    values = {"tuned, votes": (90.0, 92.0), "frozen, votes": (80.0, 81.0)}
    others = {way: (1.0, 2.0) for way in benchmark_module.WAYS if way not in values}
    records = [
        {"name": f"{way}, seed {seed}", "value": value}
        for way, both in (values | others).items()
        for seed, value in enumerate(both)
    ]
    lines = benchmark_module.lines_of(records)
    assert lines[0] == "| method | seed 0 | seed 1 | mean |"
    assert lines[2] == "| last stage and votes | 90.00 | 92.00 | 91.00 ± 1.41 |"
    assert lines[3].startswith("| votes only, network frozen | 80.00 | 81.00 |")


def test_a_training_that_shares_the_trunk_gives_what_it_gives_alone(benchmark_module, demo_photos):
    photos = find_photos(demo_photos / "train")[::3]
    settings = TuningSettings(passes=2, variants=2, batch=8)

    def history(**changed):
        changed = dataclasses.replace(settings, **changed)
        return fine_tune("efficientnet-lite0", photos, [str(photo.label) for photo in photos], settings=changed).history

    alone = history()
    with benchmark_module.shared_trunk():
        history(rate=0.0)
        shared = history()
    assert [one["held_out_accuracy"] for one in shared] == [one["held_out_accuracy"] for one in alone]
    assert [one["loss"] for one in shared] == pytest.approx([one["loss"] for one in alone], rel=1e-4)
