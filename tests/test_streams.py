"""Full disks, closed streams, folders that may not be read, Ctrl-C: a sentence, an exit code, nothing half written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.command import content, in_terminal, words
from helpers.full_disk import full_disk
from patchvote.utils.terminal import INTERRUPTION

FIT = ("--network", "tiny.onnx", "--no-cache")


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    run = ["bash", "-c", script, "bash", *words()]
    return subprocess.run(run, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})


# --- disks, folders and memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "file"),
    [
        (("export", "m.patchvote", "full.onnx"), "full.onnx"),
        (("predict", "m.patchvote", "photos", "-o", "full.csv", "--no-cache"), "full.csv"),
        (("evaluate", "m.patchvote", "photos", "--report", "full.html", "--no-cache"), "full.html"),
        (("fit", "photos", "full.patchvote", "--no-report", *FIT), "full.patchvote"),
    ],
)
def test_a_full_disk_is_told_in_a_sentence_and_leaves_nothing(parts, file, place, command):
    before = sorted(place.iterdir())
    with full_disk(100 if file.endswith("csv") else 1000):
        done = command(*parts)
    assert (done.code, done.err.count("\n"), "File too large" in done.err) == (1, 1, True)
    assert sorted(place.iterdir()) == before


def test_a_class_folder_that_may_not_be_read_is_named(place, command, monkeypatch):
    scandir = os.scandir
    shutil.copytree("photos/rose", "photos/tulip")

    def forbidden(path="."):
        if str(path).endswith(("tulip", "bouquet")):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    done = command("fit", "photos", "new.patchvote", "--no-report", *FIT)
    assert (done.code, "skipped tulip: " in done.err) == (3, True)
    os.mkdir("bouquet")  # noqa: PTH102
    done = command("predict", "m.patchvote", "bouquet")
    assert (done.code, "bouquet: the folder may not be read." in done.err) == (1, True)


def test_a_cache_that_cannot_be_written_is_done_without_and_named_once(place, command, monkeypatch):
    (place / "file").touch()  # in its place no folder can be made, whoever asks
    monkeypatch.setenv("PATCHVOTE_CACHE", str(place / "file"))
    for number, given in enumerate(((), ("--cache", "file/cache"))):
        done = command("fit", "photos", f"{number}.patchvote", "--no-report", *FIT[:2], *given)
        assert (done.code, done.err.count("\n")) == (0, 1)
        assert "cannot be written (Not a directory): the work is done without it" in done.err


def test_too_little_memory_is_told_in_a_sentence(place, command, monkeypatch):
    monkeypatch.setattr("patchvote.models.file.read_model", lambda path: np.empty(1 << 58))
    done = command("info", "m.patchvote")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("patchvote: there is not enough memory for this: Unable to allocate")


# --- streams ----------------------------------------------------------------------------------------------------------


def test_closed_and_full_streams_give_a_message_and_no_traceback(place):
    predict = '"$@" predict m.patchvote photos absent.jpg'
    full, closed = shell(f"{predict} >/dev/full"), shell(f"{predict} >&-")
    assert (full.returncode, "cannot be written: No space left on device.\n" in full.stderr) == (1, True)
    assert (closed.returncode, "Traceback" in closed.stderr) == (3, False)
    silent = shell(f"{predict} 2>&-")
    rows = silent.stdout.splitlines()
    assert (silent.returncode, len(rows)) == (3, 14)  # a head, the photos, the one that is not there, and no message
    assert {row.count(",") for row in rows} == {rows[0].count(",")}
    assert "Traceback" not in shell('"$@" cache --clear <&-').stderr


def test_a_reader_that_has_enough_is_no_failure(place):
    done = shell(f'"$@" predict m.patchvote {"photos " * 60} | head -n 2; exit ${{PIPESTATUS[0]}}')  # more than a pipe
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 2)
    assert shell('"$@" info m.patchvote | true; "$@" fit --help | true').stderr == ""


def test_on_a_terminal_there_is_a_bar_and_elsewhere_a_line_now_and_then(place, command, monkeypatch):
    shown = in_terminal(words("extract", "photos", "store", *FIT[:2]), 120, place, errors=True)
    assert "12/12" in shown
    monkeypatch.setattr("patchvote.cli.output._SECONDS_BETWEEN_LINES", 0)
    assert "extract: 12 of 12" in command("extract", "photos", "store", *FIT[:2]).err


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------

STREAM = "bags.extract.Extractor.stream"


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        (("fit", "photos", "new.patchvote", *FIT), STREAM),
        (("add", "m.patchvote", "photos", "--no-cache"), "models.add.add_to_model"),
        (("check", "photos", *FIT), STREAM),
        (("predict", "m.patchvote", "photos", "-o", "a.csv"), "utils.files.write_file"),
        (("explain", "m.patchvote", "photos/iris/0.jpg"), "models.report.picture.draw"),
        (("export", "m.patchvote", "new.onnx"), "models.export.export_model"),
        (("extract", "photos", "store", "--network", "tiny.onnx"), STREAM),
        (("demo", "demo"), "cli.demo.make_photos"),
    ],
)
def test_ctrl_c_ends_every_command_with_130_and_a_line(parts, where, place, command, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    before = content(place)
    monkeypatch.setattr(f"patchvote.{where}", interrupt)
    done = command(*parts)
    assert (done.code, done.err, done.out) == (130, f"{INTERRUPTION}\n", "")
    after = {name: data for name, data in content(place).items() if not name.startswith(("store/", "cache/", "demo/"))}
    assert after == before


@pytest.mark.parametrize(("way", "name"), [(signal.SIGINT, "fit"), (signal.SIGKILL, "add")])
def test_an_interrupted_command_leaves_no_half_written_file(place, photo_folder, way, name):
    before = content(place)
    parts = {"fit": ("fit", photo_folder, "new.patchvote"), "add": ("add", "m.patchvote", photo_folder)}[name]
    last = ["nice", "-n", "19"]  # it must not be done before this process, which may have to wait, has seen it at work
    running = subprocess.Popen([*last, *words(*parts, "--cache", "cache")], stderr=subprocess.PIPE)
    mapped, until = Path(f"/proc/{running.pid}/maps"), time.monotonic() + 60
    while b"onnxruntime" not in mapped.read_bytes() and time.monotonic() < until:  # now it is at work
        time.sleep(0.02)
    running.send_signal(way)
    assert b"Traceback" not in running.communicate(timeout=60)[1]
    assert running.returncode in (130, -way)
    assert {name: data for name, data in content(place).items() if not name.startswith("cache/")} == before


def test_ctrl_c_during_an_import_that_turns_it_into_another_error_is_ctrl_c(place, command, monkeypatch):
    def interrupted(path):
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr("patchvote.models.file.read_model", interrupted)
    done = command("info", "m.patchvote")
    assert (done.code, done.err) == (130, f"{INTERRUPTION}\n")
