"""Every benchmark runs on a few synthetic photos or bags, and tables of pages are those of its records."""

from __future__ import annotations

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
    "classifier": "--photos",
    "extract": "--photos",
    "growth": "--photos",
    "serve": "--photos",
    "fine_tune": "--data",
    "peers": "--photos",
}
OTHERS = ("evidence", "mislabelled", "rejection", "scale", "search", "suggest")
SHARED = ("accuracy", "adaptation", "common", "labelled")  # the first two need image sets


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


def test_measures_of_evidence_find_the_right_quarter():
    evidence = importlib.import_module("evidence")
    for quarter in range(4):
        perfect = np.where(evidence.quarter_mask(quarter), 1.0, -1.0)
        assert [evidence.own_share(perfect, one) for one in range(4)] == [float(one == quarter) for one in range(4)]
        assert evidence.points_at(perfect, quarter) == 1
    assert evidence.own_share(-np.ones((14, 14)), 0) == evidence.points_at(np.ones((14, 14)), 0) == 0.25
    masks = evidence.windows(4, 2)
    assert masks.any(axis=0).all()
    drops = np.array([mask[0, 0] for mask in masks], float)  # one square alone hides what matters
    found = evidence.occlusion_map(drops, masks)
    assert found[0, 0] == found.max() == 1
    assert found[5, 5] == 0


def test_in_the_kept_trials_every_voter_finds_the_right_quarter_better_than_grad_cam_and_occlusion():
    lines = (ROOT / "results" / "evidence" / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    trials = [trial for trial in map(json.loads, lines) if trial["part"] == "collages"]
    rows = {(one["set"], one["classifier"], one["map"]): one for one in trials}
    for name in ("scene15", "amazon"):
        peer = rows[name, "pooled map + linear head", "Grad-CAM"]["share"]
        for kind in ("bag-svm", "snbnl", "nbnl", "nbnn", "local-nbnn"):
            assert rows[name, kind, "less the strongest other"]["share"] > peer
            assert rows[name, kind, "occlusion"]["share_lead"] < 0


# --- tables of pages --------------------------------------------------------------------------------------------------


def shown(page: str, name: str) -> str:
    """Return what stands between two marks of a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- end of {name} -->")[0]


def records(name: str) -> list[dict]:
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def test_the_page_of_peers_has_the_table_of_the_records():
    assert shown("peers.md", "peers") == importlib.import_module("peers").table(records("peers"))


def test_the_readme_has_figures_of_the_records_and_admits_who_is_ahead():
    rows = importlib.import_module("peers").rows_of(records("peers"))
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
    figures = dict.fromkeys(peers.COLUMNS, 1.0)
    ours = peers.Result(figures, (1.0, 1.0), {"a/1": True, "a/2": True, "b/1": True, "b/2": False, "b/3": True})
    other = peers.Result(figures, (1.0, 1.0), {"a/1": False, "a/2": False, "b/1": False, "b/2": True, "b/3": True})
    found = {one["name"]: one["value"] for one in peers.records_of("other", other, ours)}
    assert (found["won, other"], found["lost, other"]) == (1, 3)
    assert found["p, other"] == pytest.approx(2 * 5 / 16)


def test_every_peer_has_its_script_and_a_name_of_its_own():
    peers = importlib.import_module("peers")
    assert len({method.name for method in peers.METHODS}) == len(peers.METHODS)
    assert {method.script for method in peers.METHODS} - {None} == {path.name for path in peers.SCRIPTS.glob("*.py")}


def test_labels_saved_are_those_at_the_accuracy_of_random_choice():
    curves = {"random": [50, 60, 70, 80], "suggest": [50, 75, 85, 90], "uncertain": [50, 55, 60, 70]}
    trials = [{"set": "s", "rule": rule, "labels": [10, 20, 30, 40], "accuracy": curves[rule]} for rule in curves]
    saved = importlib.import_module("suggest").saved
    assert saved(trials, "s", "suggest") == pytest.approx(100 * (1 - 25 / 40))
    assert saved(trials, "s", "uncertain") == 0
