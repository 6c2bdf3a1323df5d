"""Every benchmark can be started, one runs on a few synthetic bags, and tables of pages are those of its records."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
NAMES = sorted(path.stem for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))


def run(monkeypatch, name, *words):
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_starts_and_takes_the_same_options(name, monkeypatch, capsys):
    pytest.importorskip({"fine_tune": "torch", "serve": "fastapi"}.get(name, "numpy"))
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, name, "--help")
    assert not left.value.code
    assert {"--quick", "--json"} <= set(capsys.readouterr().out.split())


def test_a_quick_run_writes_its_records(monkeypatch, tmp_path):
    run(monkeypatch, "search", "--quick", "--json", tmp_path / "records.json")
    for record in json.loads((tmp_path / "records.json").read_text()):
        assert record.keys() == {"name", "value", "unit", "goal", "peer"}
        assert np.isfinite(record["value"])


def test_the_page_of_peers_and_the_readme_have_the_figures_of_the_records_and_admit_who_is_ahead():
    peers = importlib.import_module("peers")
    records = json.loads((ROOT / "results" / "bench" / "peers.json").read_text(encoding="utf-8"))
    page, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/peers.md", "README.md"))
    assert f"<!-- peers -->\n{peers.table(records)}\n<!-- end of peers -->" in page
    rows = peers.rows_of(records)
    found = re.findall(r"^\| (.*) \| (\**[\d.]+ ± [\d.]+\**) \| (.*) \|$", readme, re.MULTILINE)
    figures = {(accuracy.strip("*"), rest) for _, accuracy, rest in found}
    assert figures
    assert figures <= {(cells[0], " | ".join(cells[2:])) for cells in rows.values()}
    assert max(cells[0] for cells in rows.values()) in {accuracy for accuracy, _ in figures}
    assert {method.script for method in peers.METHODS} - {None} == {path.name for path in peers.SCRIPTS.glob("*.py")}
