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
SHARED = ("accuracy", "adaptation", "common", "copies", "labelled")  # all but common and labelled need image sets


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


def test_every_peer_has_its_script_and_a_name_of_its_own():
    peers = importlib.import_module("peers")
    assert len({method.name for method in peers.METHODS}) == len(peers.METHODS)
    assert {method.script for method in peers.METHODS} - {None} == {path.name for path in peers.SCRIPTS.glob("*.py")}
