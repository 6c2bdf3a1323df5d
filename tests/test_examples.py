"""The examples run as they stand: three programs, two notebooks, and a package that extends patchvote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.__main__ import main as experiments
from helpers.packages import install_project
from patchvote.voters import registry

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
EXTENDING = EXAMPLES / "extending"
# By example: what it prints, and the figures that it draws.
SHOWN = {
    "first_model.py": (r"(9|10)\d\.\d % of 24 photos", {"bag.png", "confusion.png", "evidence.png"}),
    "other_camera.py": (r"'other camera': \d+\.\d % of 48 photos", {"cameras.png"}),
    "reject_unknown.py": (r"unknown classes: 1\d of 16 photos are rejected", {"familiarity.png"}),
    "evidence.ipynb": (r"\d+ %  tissue/\d+\.png", {"contrast.png"}),
    "voters.ipynb": ("brick is the answer", {"voters.png"}),
}


def output_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a program or a notebook; return what it prints."""
    if name.endswith(".py"):
        words = [sys.executable, str(EXAMPLES / name), str(folder / "figures")]
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=600).stdout
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(EXAMPLES / name, 4)
    settings = {"kernel_name": "python3", "resources": {"metadata": {"path": str(folder)}}}
    nbclient.NotebookClient(book, **settings, timeout=600, startup_timeout=600).execute()
    return "".join(output.get("text", "") for cell in book.cells for output in cell.get("outputs", []))


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_and_draws_its_figures(name, tmp_path, monkeypatch):
    says, figures = SHOWN[name]
    output = output_of(name, tmp_path, monkeypatch)
    assert re.search(says, output), output
    assert {path.name for path in (tmp_path / "figures").iterdir()} == figures
    for path in (tmp_path / "figures").iterdir():
        assert np.ptp(np.asarray(Image.open(path).convert("L"))) > 100, path.name


def test_notebooks_are_kept_without_outputs_and_the_page_shows_every_figure():
    nbformat = pytest.importorskip("nbformat")
    cells = [cell for path in EXAMPLES.glob("*.ipynb") for cell in nbformat.read(path, 4).cells]
    assert [cell.source for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    drawn = set().union(*(figures for _, figures in SHOWN.values()))
    assert set(re.findall(r"\]\(examples/(\w+\.png)\)", page)) == drawn
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")} == {*SHOWN, "photos.py"}


def test_the_voter_and_the_network_of_a_package_work_in_every_command(tmp_path, demo_photos, command, monkeypatch):
    monkeypatch.syspath_prepend(install_project(tmp_path / "site", EXTENDING))
    monkeypatch.setenv("PATCHVOTE_CACHE", str(tmp_path / "cache"))
    registry._others.cache_clear()
    model, picture = tmp_path / "m.patchvote", tmp_path / "why.png"
    words = ("--network", "colours", "--json")
    fitted = command("fit", demo_photos / "train", model, "--voter", "class-mean", *words)
    assert fitted.code == 0, fitted.err
    measured = command("evaluate", model, demo_photos / "test", *words)
    assert float(re.search(r'"accuracy": ([\d.]+)', measured.out)[1]) > 0.5  # of six classes, by colours alone
    assert command("explain", model, demo_photos / "collage.png", "-o", picture, *words).code == 0
    assert picture.exists()
    registry._others.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[module]


def test_the_voter_is_the_one_that_the_page_of_parts_explains():
    chapter = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8").partition("## A voter of your own")[2]
    code = re.search(r"```python\n(.*?)```", chapter, re.DOTALL)[1]
    assert code in (EXTENDING / "my_package" / "class_mean.py").read_text(encoding="utf-8")


def test_the_protocol_runs_and_is_summarised(tmp_path, demo_photos, capsys):
    protocol, results = str(EXTENDING / "protocol.toml"), ["--results", str(tmp_path / "results")]
    where = ["--data", str(demo_photos / "train"), "--bags", str(tmp_path / "bags")]
    assert experiments(["run", protocol, *where, *results]) == 0
    assert experiments(["summary", protocol, "--json", *results]) == 0
    shown = capsys.readouterr().out
    assert all(voter in shown for voter in ("default", "nbnn", "whole-svm"))
