"""Full disks, closed streams, folders that may not be read, Ctrl-C: a sentence, an exit code, nothing half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
from PIL import Image

from helpers.command import network_in
from helpers.full_disk import full_disk
from patchvote import ImageClassifier, PatchvoteError, Recipe
from patchvote.utils.terminal import ANYTIME
from test_cli import words

FIT = ("--network", "tiny.onnx", "--no-cache")


@pytest.fixture
def place(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Photos of three classes, a network that takes no time, and a model of both."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    for number, label in enumerate(("iris", "rose", "tulip")):
        (folder / "photos" / label).mkdir(parents=True)
        for index in range(6):
            pixels = (rng.integers(0, 100, (64, 64, 3)) + 70 * number).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{index}.jpg")
    recipe = Recipe(str(network_in(folder)))
    ImageClassifier(recipe, cache=False).fit(folder / "photos").save(folder / "m.patchvote")
    return folder


@pytest.mark.parametrize(
    ("parts", "file"),
    [
        (("export", "m.patchvote", "full.onnx"), "full.onnx"),
        (("explain", "m.patchvote", "photos/iris/0.jpg", "-o", "full.png"), "full.png"),
        (("predict", "m.patchvote", "photos", "-o", "full.csv", "--no-cache"), "full.csv"),
        (("evaluate", "m.patchvote", "photos", "--report", "full.html", "--no-cache"), "full.html"),
        (("add", "m.patchvote", "photos", "--output", "full.patchvote", "--no-cache"), "full.patchvote"),
    ],
)
def test_a_full_disk_is_told_in_a_sentence_and_leaves_nothing(parts, file, place, command):
    before = sorted(place.iterdir())
    with full_disk(100 if file.endswith("csv") else 1000):
        done = command(*parts)
    assert done.code == 1
    assert "cannot be " in done.err
    assert "File too large" in done.err
    assert done.err.count("\n") == 1
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize("parts", [("fit", "photos", "new.patchvote", "--no-report", *FIT), ("extract", "photos")])
def test_a_class_folder_that_may_not_be_read_is_named(parts, place, command, monkeypatch, tmp_path):
    scandir = os.scandir

    def forbidden(path="."):
        if str(path).endswith("tulip"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    if parts[0] == "extract":
        parts = (*parts, tmp_path / "store", "--network", "tiny.onnx")
    done = command(*parts)
    assert done.code == 3
    assert "skipped tulip: the folder may not be read: Permission denied.\n" in done.err
    (place / "new.patchvote").unlink(missing_ok=True)


def test_a_folder_of_photos_that_may_not_be_read_is_named(place, command, monkeypatch):
    def forbidden(path="."):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", forbidden)
    done = command("predict", "m.patchvote", "photos")
    assert (done.code, done.err) == (1, "patchvote: photos: the folder may not be read. Are you allowed to list it?\n")


@pytest.mark.parametrize("given", [True, False])
def test_a_cache_that_cannot_be_written_is_done_without_and_named_once(given, place, command, monkeypatch, tmp_path):
    (tmp_path / "file").touch()  # in its place no folder can be made, whoever asks
    cache = tmp_path / "file" / "cache"
    monkeypatch.setenv("PATCHVOTE_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    network = place / "tiny.onnx"
    done = command(
        *("fit", place / "photos", "new.patchvote", "--no-report", "--network", network),
        *(("--cache", cache) if given else ()),
    )
    assert done.code == 0, done.err
    assert (tmp_path / "new.patchvote").exists()
    folder = cache if given else cache / "bags"
    assert done.err == (
        f"the cache {folder} cannot be written (Not a directory): the work is done without it, and the next run will "
        "take as long as this one.\n"
    )


def test_closed_and_full_streams_give_a_message_and_no_traceback(place):
    predict = words("predict", "m.patchvote", "photos", "absent.jpg")
    line = " ".join(f"'{word}'" for word in predict)

    def shell(redirection: str) -> subprocess.CompletedProcess[str]:
        script = f"{line} {redirection}; exit ${{PIPESTATUS[0]}}"
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300)

    full = shell(">/dev/full")
    assert (full.returncode, full.stderr) == (
        1,
        "patchvote: standard output cannot be written: No space left on device.\n",
    )
    closed = shell(">&-")
    assert (closed.returncode, closed.stderr) == (1, "patchvote: standard output cannot be written: it is closed.\n")
    silent = shell("2>&-")
    assert silent.returncode == 3
    rows = silent.stdout.splitlines()
    assert len(rows) == 20  # a head, the photos, the one that is not there, and no message
    assert {row.count(",") for row in rows} == {rows[0].count(",")}
    assert (shell("2>/dev/full").returncode, shell("2>/dev/full").stdout) == (3, silent.stdout)


def test_a_reader_that_has_enough_is_no_failure(place):
    many = " ".join(["photos"] * 60)  # more than a pipe holds
    script = f"'{sys.executable}' -m patchvote predict m.patchvote {many} | head -n 2; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2


def test_standard_input_that_is_closed_names_no_photo(place, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    done = command("predict", "m.patchvote", "-")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "standard input is closed" in done.err


STREAM = "bags.extract.Extractor.stream"
WHOLE = "Files that were written are complete; all others are as they were."


@pytest.mark.parametrize(
    ("parts", "where", "says"),
    [
        (("fit", "photos", "new.patchvote", *FIT), STREAM, "new.patchvote was not written.\n"),
        (
            ("fit", "photos", "new.patchvote", "--network", "tiny.onnx", "--cache", "cache"),
            STREAM,
            "new.patchvote was not written. What was extracted is kept: run the same command again to continue.",
        ),
        (("add", "m.patchvote", "photos", "--no-cache"), STREAM, "m.patchvote is as it was."),
        (("add", "m.patchvote", "photos", "--no-cache", "--output", "new"), STREAM, "new was not written."),
        (("evaluate", "m.patchvote", "photos"), STREAM, "no report was written."),
        (("check", "photos", "--network", "tiny.onnx", "--no-cache"), STREAM, "no photo was moved."),
        (("suggest", "m.patchvote", "photos"), STREAM, "nothing was written or copied."),
        (
            ("predict", "m.patchvote", "photos", "-o", "new.csv"),
            STREAM,
            "new.csv was not written.",
        ),
        (
            ("predict", "m.patchvote", "photos"),
            STREAM,
            "interrupted after 0 of 18 photos; answers that were printed are complete.",
        ),
        (("explain", "m.patchvote", "photos/iris/0.jpg"), STREAM, "no picture was written."),
        (("explain", "m.patchvote", "photos/iris/0.jpg"), "models.report.picture.draw", WHOLE),
        (("export", "m.patchvote", "new.onnx"), "models.export.export_model", "new.onnx was not written."),
        (("info", "m.patchvote"), "models.file.read_model", WHOLE),
        (("extract", "photos", "store", "--network", "tiny.onnx"), STREAM, "is kept in store"),
        (("demo", "new"), "cli.demo.make_photos", "What new holds is complete, and kept"),
    ],
)
def test_ctrl_c_ends_every_command_with_130_and_a_line(parts, where, says, place, command, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    model, before = (place / "m.patchvote").read_bytes(), sorted(path.name for path in place.iterdir())
    monkeypatch.setattr(f"patchvote.{where}", interrupt)
    done = command(*parts)
    assert done.code == 130
    assert done.err.startswith("interrupted")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert (place / "m.patchvote").read_bytes() == model
    kept = {"store", "cache"}
    assert sorted({path.name for path in place.iterdir()} - kept) == sorted({*before} - kept)


def test_ctrl_c_at_the_very_end_is_no_traceback(monkeypatch, capsys):
    from patchvote import __main__

    done = types.ModuleType("patchvote.cli")
    done.main = lambda: sys.exit(0)
    monkeypatch.setitem(sys.modules, "patchvote.cli", done)

    def too_late(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__.signal, "signal", too_late)
    with pytest.raises(SystemExit) as left:
        __main__.main()
    assert left.value.code == 130
    assert capsys.readouterr().err == f"{ANYTIME}\n"


def test_too_little_memory_is_told_in_a_sentence(place, command, monkeypatch):
    def ask(*_: object, **__: object) -> None:
        np.empty(1 << 58)

    monkeypatch.setattr("patchvote.models.file.read_model", ask)
    done = command("info", "m.patchvote")
    assert done.code == 1
    assert done.err.startswith("patchvote: there is not enough memory for this: Unable to allocate")
    assert done.err.count("\n") == 1


def test_lines_of_our_own_are_lines_and_newlines_in_names_are_not(place, command, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PatchvoteError("a\nb is no model. Expected:", lines=["one", "  two"])

    monkeypatch.setattr("patchvote.models.file.read_model", refuse)
    assert command("info", "m.patchvote").err == "patchvote: a\\nb is no model. Expected:\none\n  two\n"


def test_ctrl_c_before_the_command_line_is_there_is_no_traceback(monkeypatch, capsys):
    from patchvote.__main__ import main

    class Loading(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setitem(sys.modules, "patchvote.cli", Loading("patchvote.cli"))
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert left.value.code == 130
    assert capsys.readouterr().err == f"{ANYTIME}\n"
