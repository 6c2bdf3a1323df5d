from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import patchvote
from helpers.packages import install
from helpers.quick_network import QUICK, QuickNetwork
from patchvote import Bags, ImageClassifier
from patchvote.models.file import read_model
from patchvote.voters import registry

ROOT = Path(__file__).parent.parent


def test_every_test_that_the_page_of_security_names_exists():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(named) > 40
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"^def {test}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_the_voter_that_the_page_of_parts_shows_works_as_a_package(tmp_path, monkeypatch):
    chapter = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8").partition("## A voter of your own")[2]
    pyproject, code = (re.search(rf"```{kind}\n(.*?)```", chapter, re.DOTALL)[1] for kind in ("toml", "python"))
    assert len(code.splitlines()) <= 40
    ((name, place),) = tomllib.loads(pyproject)["project"]["entry-points"]["patchvote.voters"].items()
    install(tmp_path / "site", place.partition(":")[0], code, f"[patchvote.voters]\n{name} = {place}\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    registry._others.cache_clear()
    try:
        rng = np.random.default_rng(0)
        photos = [(rng.integers(0, 90, (64, 64, 3)) + shade).astype(np.uint8) for shade in [0, 150] * 8]
        labels = ["dark", "bright"] * 8
        classifier = ImageClassifier(QUICK, voter=name, backbone=QuickNetwork(), cache=False).fit(photos, labels)
        assert classifier.scores.summary()["accuracy"] == 1.0
        classifier.save(tmp_path / "m.patchvote")
        bag = classifier._extractor(photos[:1])
        np.testing.assert_allclose(
            read_model(tmp_path / "m.patchvote").probability(bag), classifier.model.probability(bag)
        )
        voter = registry.voter_class(name)(sharpness=2.0)
        bags, weight = Bags.of([photo.reshape(-1, 3)[:20] / 255 for photo in photos]), np.repeat([0.0, 1.0], 8)
        part = voter.fit(bags, labels, sample_weight=weight).centres_.copy()
        np.testing.assert_array_equal(part, voter.fit(bags[8:], labels[8:]).centres_)
    finally:
        sys.modules.pop(place.partition(":")[0], None)
        registry._others.cache_clear()


def test_the_page_of_parts_mentions_every_public_name():
    page = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    assert [name for name in patchvote.__all__ if f"`{name}`" not in page] == []


def test_the_architecture_lists_every_module_in_a_table():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "patchvote"
    modules = [path.relative_to(package).as_posix() for path in package.rglob("*.py") if path.name != "__init__.py"]
    rows = [f"\n| `{module}` |" if "/" in module else f"`{module}`" for module in modules]  # those on top in a sentence
    assert [row for row in rows if row not in page] == []
    static = [path.relative_to(package / "web").as_posix() for path in (package / "web" / "static").iterdir()]
    assert [name for name in static if f"`{name}`" not in page] == []


def test_the_figures_of_the_method_can_be_drawn_again_and_are_shown(tmp_path):
    pytest.importorskip("matplotlib")
    subprocess.run([sys.executable, ROOT / "tools" / "method_figures.py", tmp_path], check=True, timeout=600)
    page = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == set(re.findall(r"\]\(method/([\w.]+)\)", page))
    for drawn in tmp_path.iterdir():
        new, kept = (
            np.asarray(Image.open(path).convert("L"), float) for path in (drawn, ROOT / "docs/method" / drawn.name)
        )
        assert new.shape == kept.shape
        assert np.abs(new - kept).mean() < 10  # fonts and rounding may differ a little
