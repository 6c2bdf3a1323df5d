"""Every benchmark runs on a few synthetic photos or bags, and tables of pages are those of its records."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS, RECORDS = ROOT / "benchmarks", ROOT / "results" / "bench"
PHOTOS = {
    "costs": "--photos",
    "extract": "--photos",
    "growth": "--photos",
    "serve": "--photos",
    "fine_tune": "--data",
    "peers": "--photos",
    "peers_draws": "--photos",
}
OTHERS = ("evidence", "mislabelled", "rejection", "scale", "search", "suggest")
SHARED = (
    "adaptation",  # it needs the image sets
    "common",
    "evidence_classifiers",
    "evidence_measures",
    "evidence_pictures",
    "evidence_table",
    "labelled",
    "peers_table",
    "rejection_photos",
    "rejection_table",
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Three classes of 8 small photos."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for label, shade in (("bright", 140), ("dark", 0), ("grey", 70)):
        (folder / label).mkdir()
        for index in range(8):
            pixels = rng.integers(0, 110, (64, 64, 3)) + shade
            Image.fromarray(pixels.astype(np.uint8)).save(folder / label / f"{index}.jpg")
    return folder


def test_no_benchmark_is_left_out():
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == {*PHOTOS, *OTHERS, *SHARED}


@pytest.mark.parametrize("name", [*PHOTOS, *OTHERS])
def test_a_quick_run_writes_its_records(name, photos, tmp_path):
    pytest.importorskip({"fine_tune": "torch", "serve": "fastapi"}.get(name, "numpy"))
    words = [sys.executable, BENCHMARKS / f"{name}.py", "--quick", "--json", tmp_path / "records.json"]
    words += [PHOTOS[name], photos] if name in PHOTOS else []
    environment = os.environ | {"PATCHVOTE_CACHE": str(tmp_path / "cache"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    records = json.loads((tmp_path / "records.json").read_text())
    assert records
    assert [record["name"] for record in records if record["name"].startswith("did not run")] == []
    for record in records:
        assert record.keys() == {"name", "value", "unit", "goal", "peer"}
        assert np.isfinite(record["value"])


def test_the_examples_in_docstrings_hold():
    result = doctest.testmod(importlib.import_module("evidence_measures"), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


# --- tables of pages --------------------------------------------------------------------------------------------------


def shown(page: str, name: str) -> str:
    """Return what stands between two marks of a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- end of {name} -->")[0]


def records(name: str) -> list[dict]:
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def test_the_pages_have_the_tables_of_the_records():
    peers, draws, tables = map(importlib.import_module, ("peers_table", "peers_draws", "rejection_table"))
    assert shown("peers.md", "peers") == peers.table(records("peers"))
    assert shown("peers.md", "draws") == "\n".join(draws.lines_of(records("peers-draws")))
    fine_tune = importlib.import_module("fine_tune")
    assert shown("fine-tuning.md", fine_tune.NAME).strip() == "\n".join(fine_tune.lines_of(records("fine-tune")))
    trials = tables.read_trials(ROOT / "results" / "rejection" / tables.FILE)
    page = (ROOT / "docs" / "rejection.md").read_text(encoding="utf-8")
    assert tables.auroc_table(trials) in page


def test_the_readme_has_figures_of_the_records_and_admits_who_is_ahead():
    rows = importlib.import_module("peers_table").rows_of(records("peers"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (.*) \| (\**[\d.]+ ± [\d.]+\**) \| (.*) \|$", readme, re.MULTILINE)
    assert 0 < len(found) <= 6
    figures = {(accuracy.strip("*"), rest) for _, accuracy, rest in found}
    assert figures <= {(cells[0], " | ".join(cells[2:])) for cells in rows.values()}
    assert max(cells[0] for name, cells in rows.items()) in {accuracy for accuracy, _ in figures}


@pytest.mark.parametrize("name", ["peers", "peers-amazon"])
def test_single_answers_add_up_to_the_records(name):
    values = {one["name"]: one["value"] for one in records(name)}
    methods, *photos = map(json.loads, (RECORDS / f"{name}.answers.jsonl").read_text(encoding="utf-8").splitlines())
    right = {method: [one["right"][k] for one in photos] for k, method in enumerate(methods["methods"])}
    for method, hits in right.items():
        assert values[f"accuracy, {method}"] == pytest.approx(100 * hits.count("1") / len(photos))
        if method != "patchvote":
            pairs = list(zip(hits, right["patchvote"], strict=True))
            assert (values[f"won, {method}"], values[f"lost, {method}"]) == (
                pairs.count(("1", "0")),
                pairs.count(("0", "1")),
            )


def test_the_sign_test_counts_photos_that_only_one_of_both_has_right():
    peers = importlib.import_module("peers")
    figures = dict.fromkeys(importlib.import_module("peers_table").COLUMNS, 1.0)
    ours = peers.Result(figures, (1.0, 1.0), {"a/1": True, "a/2": True, "b/1": True, "b/2": False, "b/3": True})
    other = peers.Result(figures, (1.0, 1.0), {"a/1": False, "a/2": False, "b/1": False, "b/2": True, "b/3": True})
    found = {one["name"]: one["value"] for one in peers.records_of("other", other, ours)}
    assert (found["won, other"], found["lost, other"]) == (1, 3)
    assert found["p, other"] == pytest.approx(2 * 5 / 16)


def test_every_peer_has_its_script_and_a_name_of_its_own():
    peers = importlib.import_module("peers")
    assert len({method.name for method in peers.METHODS}) == len(peers.METHODS)
    assert {method.script for method in peers.METHODS} - {None} == {path.name for path in peers.SCRIPTS.glob("*.py")}


def test_sources_of_strangers_count_the_same_however_many_trials_they_have():
    tables = importlib.import_module("rejection_table")

    def trial(source, auroc):
        figures = {"known": {"rejected": 0.04, "auroc": 0.5}, "near": {"rejected": 0.6, "auroc": auroc}}
        return {"voter": "v", "source": source, "per_class": 10, "seed": 1, "scores": {"familiarity": figures}}

    trials = [trial("amazon", 0.9), trial("amazon", 0.8), trial("webcam", 0.95)]
    assert tables.mean_of(trials, "familiarity", "near", "auroc") == pytest.approx((0.85 + 0.95) / 2)
