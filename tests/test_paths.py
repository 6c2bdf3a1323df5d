"""Words of a command that mean many photos: patterns, and paths that other programs find."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys

import pytest


def files(out: str) -> list[str]:
    return [row["file"] for row in csv.DictReader(io.StringIO(out))]


def test_a_pattern_in_quotes_is_expanded(place, command):
    done = command("predict", "m.patchvote", "photos/*/1.jpg", "photos/rose/[23].jpg")
    assert files(done.out) == ["photos/iris/1.jpg", "photos/rose/1.jpg", "photos/rose/2.jpg", "photos/rose/3.jpg"]
    assert files(command("predict", "m.patchvote", "**/5.jpg").out) == ["photos/iris/5.jpg", "photos/rose/5.jpg"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(place, command):
    shutil.copy("photos/iris/1.jpg", "new[1].jpg")
    shutil.copy("photos/iris/1.jpg", "new1.jpg")
    assert files(command("predict", "m.patchvote", "new[1].jpg").out) == ["new[1].jpg"]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("new/*.jpg", "no file matches 'new/*.jpg' in new. Check the pattern, its ending, and its case."),
        ("nwe/*.jpg", "no file matches 'nwe/*.jpg': there is no folder nwe. Is the path right? Did you mean new?"),
        ("[a-b]*", "no file matches '[a-b]*' in this folder. Check the pattern, its ending, and its case."),
    ],
)
def test_a_pattern_that_matches_nothing_is_told_before_any_work(pattern, says, place, command):
    (place / "new").mkdir()
    for name in ("predict", "explain", "suggest"):
        done = command(name, "m.patchvote", "photos", pattern)
        assert (done.code, done.out) == (1, "")
        assert says in done.err


def test_what_find_prints_with_null_is_read_whatever_the_names(place):
    (place / "new").mkdir()
    names = ["new/two\nlines.jpg", "new/ spaces at the ends .jpg", "new/[1]*.jpg"]
    for name in names:
        shutil.copy("photos/iris/1.jpg", name)
    run = f"find new -name '*.jpg' -print0 | {sys.executable} -m patchvote predict m.patchvote -0 - --json"
    done = subprocess.run(["bash", "-c", run], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(line)["file"] for line in done.stdout.splitlines()) == sorted(names)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("photos/iris/1.jpg\nphotos/iris/2.jpg\n", "standard input has no NUL after a path. Write find … -print0"),
        ("", "standard input names no photo."),
    ],
)
def test_standard_input_without_null_is_told(given, says, place, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    done = command("suggest", "m.patchvote", "--null", "-")
    assert (done.code, says in done.err) == (1, True)


def test_null_on_standard_input_that_was_not_announced_is_told(place, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("photos/iris/1.jpg\0photos/iris/2.jpg\0"))
    done = command("predict", "m.patchvote", "-")
    assert (done.code, "add -0: find … -print0 | patchvote … -0 -" in done.err) == (1, True)
