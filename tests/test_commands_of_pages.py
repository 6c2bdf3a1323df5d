"""What the pages tell a reader to type works as it stands: every command, and every program in Python.

Each page has a folder of its own with all that pages speak of (`photos/`, `new/`, `my.patchvote` and others), in which
its commands and programs run in the order of the page. What cannot run here is listed with the tests that run the like
of it.
"""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from pathlib import Path

import pytest

from helpers.pages import PAGES, ROOT, Step, blocks, steps
from helpers.reader import furnished
from patchvote import Extractor, fill

# What a step contains that cannot run here, and the tests that run the like of it.
ELSEWHERE = {
    "patchvote demo": "test_demo.py",
    "patchvote serve": "test_web_service.py",
    "import httpx": "test_web_service.py",
    "ray": "test_ray.py",
    "RayEngine": "test_ray.py",
    "dinov2-small": "test_hub_commands.py",
    "hf:owner/name": "test_hub_commands.py",
    "patchvote networks": "test_hub_commands.py",
    "fine-tune photos/": "test_fine_tune.py",
    "patchvote.nn": "test_fine_tune.py",
    "class ClassMean(Voter)": "test_examples.py",
}


def runs_here(step: Step) -> bool:
    words = step.text if step.language == "python" else " ".join(shlex.split(step.text))
    return not any(re.search(rf"(?<![\w-]){re.escape(part)}(?!\w)", words) for part in ELSEWHERE)


def typed(page: Path) -> list[Step]:
    """Return what a page tells a reader to type, and that can run here."""
    return [step for step in steps(page) if step.language in ("shell", "python") and runs_here(step)]


@pytest.fixture(scope="module")
def readers_folder(tmp_path_factory, demo_photos) -> Path:
    """A folder with all that the pages speak of."""
    return furnished(tmp_path_factory.mktemp("pages"), demo_photos)


def prepare(page: Path) -> None:
    """Make the current folder that of a reader who comes to a page."""
    if any(re.match(r"patchvote fit \S+ my\.patchvote", step.text) for step in typed(page)):
        Path("my.patchvote").unlink()  # the page makes it, and no command replaces a model
    for block in blocks(page, "toml"):
        if "output = " in block:
            Path("places.toml").write_text(block)
    if page.stem == "parts":
        for store, photos in (("other-camera", "phone"), ("new-bags", "new")):
            fill(store, photos, Extractor())
    if page.stem == "cluster":
        fsspec = pytest.importorskip("fsspec")
        for name in ("photos", "new", "my.patchvote"):
            fsspec.filesystem("memory").put(name, f"/bucket/{name}", recursive=True)


def edit(suspects: Path) -> None:
    """Do what a reader does with the list of `check`: say that the photos are to be moved."""
    with suspects.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with suspects.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "action": "move"} for row in rows)


@pytest.mark.parametrize("page", [page for page in PAGES if typed(page)], ids=lambda page: page.stem)
def test_what_a_page_tells_a_reader_to_type_works_as_it_stands(page, readers_folder, tmp_path, monkeypatch, command):
    shutil.copytree(readers_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    prepare(page)
    names: dict[str, object] = {}
    for step in typed(page):
        if step.language == "python":
            exec(compile(step.text, page.name, "exec"), names)
        else:
            text = step.text.replace("s3://bucket", "memory://bucket")  # a file system of fsspec that needs no host
            done = command(*shlex.split(text)[1:])
            assert done.code == 0, f"{step.text}\n{done.out}{done.err}"
            if "--output suspects.csv" in text:
                edit(Path("suspects.csv"))


def test_every_exception_is_still_on_a_page_and_names_a_file_of_tests():
    assert [test for test in set(ELSEWHERE.values()) if not (ROOT / "tests" / test).is_file()] == []
    text = "\n".join(step.text for page in PAGES for step in steps(page) if step.language in ("shell", "python"))
    assert [part for part in ELSEWHERE if part not in text] == []


def test_the_tutorial_shows_what_fit_prints(demo_photos, tmp_path, monkeypatch, command):
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "photos").symlink_to(demo_photos)
    monkeypatch.chdir(tmp_path)
    asked, shown = re.search(r"`patchvote (fit demo/[^`]*)` prints:\n\n((?: {4}.*\n)+)", page).groups()
    printed = command(*shlex.split(asked)).out
    head, tail = (" ".join(part.split()) for part in shown.split("…"))
    assert " ".join(printed.split()).startswith(head)
    assert " ".join(printed.split()).endswith(tail)
