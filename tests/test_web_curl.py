"""The lines of curl and of Python in docs/serve.md: against a server of ours, they do what they promise."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from helpers.pages import blocks
from helpers.web import live
from patchvote import ImageClassifier

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "serve.md"


def lines_of_curl() -> str:
    """Return the commands of the chapter on curl."""
    chapter = GUIDE.read_text(encoding="utf-8").partition("with curl\n")[2].partition("\n## ")[0]
    return "\n".join(line[4:] for line in chapter.splitlines() if line.startswith("    "))


@pytest.fixture
def pets(tmp_path, surfaces):
    """Folder of a reader with a few photos, and a server that was started with a model of pets beside it."""
    photos = {"cat": surfaces["brick"], "dog": surfaces["grass"]}  # surfaces stand for pets
    labels = [label for label, own in photos.items() for _ in own]
    classifier = ImageClassifier(cache=tmp_path / "cache")
    classifier.fit([content for own in photos.values() for _, content in own], labels).save(tmp_path / "pets.patchvote")
    here = tmp_path / "here"
    for label, name in (("cat", "a.jpg"), ("dog", "b.jpg")):
        (here / label).mkdir(parents=True)
        (here / name).write_bytes(photos[label][5][1])
        for number in (1, 2):
            (here / label / f"{number}.jpg").write_bytes(photos[label][number][1])
    with live(tmp_path / "data", tmp_path / "pets.patchvote") as server:
        yield here, server.address


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("bash")), reason="needs curl and bash")
def test_the_lines_of_curl_in_the_documentation_work_as_they_stand(pets):
    here, address = pets
    (here / "token").write_text("0123456789abcdef")  # which this server does not need
    (here / ".curlrc").write_text("fail-with-body\nsilent\nwrite-out = \\n\n")  # an error of the server ends the script
    commands = re.sub(r"http://127\.0\.0\.1:8000|https://photos\.example\.org", address, lines_of_curl())
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=here,
        env=os.environ | {"CURL_HOME": str(here), "HOME": str(here)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    named, explained, models, cats, dogs = (json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{")
    assert [answer["label"] for answer in named["answers"]] == ["cat", "dog"]
    assert ([one["label"] for one in explained["maps"]], explained["width"]) == (["cat"], 32)
    assert [model["name"] for model in models["models"]] == ["pets"]
    assert (len(cats["added"]), dogs["workspace"]["photos"]) == (2, 4)
    assert '"status": "done"' in done.stdout.rpartition("event: end")[2]
    assert ImageClassifier.load(here / "pets.patchvote").classes == ("cat", "dog")


def test_the_program_in_the_documentation_works_as_it_stands(pets, monkeypatch, capsys):
    here, address = pets
    (program,) = blocks(GUIDE, "python")
    monkeypatch.chdir(here)
    exec(program.replace("http://127.0.0.1:8000", address), {})
    asked, *_, learned = capsys.readouterr().out.splitlines()
    assert asked.startswith("a.jpg cat ")
    assert "classified correctly" in learned or "held out" in learned, learned
    assert ImageClassifier.load("pets.patchvote").classes == ("cat", "dog")
