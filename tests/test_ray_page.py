"""The page on clusters: its commands and programs run as they stand, on a cluster of two workers."""

from __future__ import annotations

import shlex

import pytest

from helpers.pages import ROOT, steps
from helpers.reader import furnished
from patchvote import Extractor, fill

pytest.importorskip("patchvote.engines.ray")


def test_the_page_on_clusters_works_as_it_stands(cluster, tmp_path, demo_photos, monkeypatch, command):
    monkeypatch.chdir(furnished(tmp_path, demo_photos))
    (tmp_path / "my.patchvote").unlink()
    fill("new-store", "new", Extractor())
    names: dict[str, object] = {}
    for step in steps(ROOT / "docs" / "cluster.md"):
        # Without an address, the cluster of the tests is joined.
        text = step.text.replace(" --address head-node:6379", "").replace('"head-node:6379"', "")
        text = text.replace("/shared/bags", str(tmp_path / "bags"))
        if step.language == "python":
            exec(compile(text, "cluster.md", "exec"), names)
        elif "--engine ray" in text and "scene15" not in text:
            done = command(*shlex.split(text)[1:])
            assert done.code == 0, f"{step.text}\n{done.out}{done.err}"
    assert set(names["voter"].classes_) == {"cat", "dog", "oak"}
