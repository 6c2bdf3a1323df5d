"""Every benchmark runs: quickly, on a few synthetic photos or bags, and writes the records that it should."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
PHOTOS = {
    "accuracy": "--photos",
    "classifier": "--photos",
    "extract": "--photos",
    "growth": "--photos",
    "serve": "--photos",
    "fine_tune": "--data",
    "networks": "--photos",
    "peers": "--photos",
    "peers_draws": "--photos",
}
OTHERS = (
    "evidence",
    "mislabelled",
    "rejection",
    "scale",
    "search",
    "suggest",
    "voters",
)
SHARED = (
    "adaptation",  # it needs the image sets
    "common",
    "crops",
    "evidence_classifiers",
    "evidence_measures",
    "evidence_pictures",
    "evidence_table",
    "labelled",
    "networks_bags",
    "networks_table",
    "networks_tokens",
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
        assert isinstance(record["name"], str)
        assert np.isfinite(record["value"])


@pytest.mark.parametrize("name", ["evidence_measures"])
def test_the_examples_in_its_docstrings_hold(name, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
