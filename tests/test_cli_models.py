from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.command import in_terminal
from patchvote import PatchvoteError
from patchvote.models.file import read_model, write_model
from test_cli import patchvote, words


@pytest.fixture(scope="module")
def made(photo_folder, tmp_path_factory):
    """A model and a report, made by the command."""
    folder = tmp_path_factory.mktemp("made")
    done = patchvote("fit", photo_folder, folder / "m.patchvote", "--cache", folder / "cache", "--verbose")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_fit_says_what_it_did_and_writes_model_and_report(made):
    folder, said = made
    for part in (
        "40 photos of 4 classes",
        "method: moment-ridge: each part of a photo votes by its features, their products and its place.",
        "95 % confidence",
        "wrote ",
        "network",
    ):
        assert part in said
    assert "40 photos went through the network, 0 were in the cache" in said
    assert (folder / "m.html").read_text().startswith("<!doctype html>")
    assert {path.name for path in folder.iterdir()} == {"m.patchvote", "m.html", "cache"}


def test_a_second_fit_takes_everything_from_the_cache(made, photo_folder, tmp_path):
    folder, _ = made
    done = patchvote(
        *("fit", photo_folder, tmp_path / "again.patchvote", "--cache", folder / "cache"),
        *("--json", "--quiet", "--budget", "600"),  # a slow machine shows progress, and cuts short
    )
    told = json.loads(done.stdout)
    assert told["photos"] == {"extracted": 0, "kept": 40}
    assert told["held_out"]["images"] == 40
    assert done.stderr == ""


def test_predict_writes_csv_into_a_pipe_and_a_table_on_a_terminal(made, photo_folder):
    folder, _ = made
    photos = sorted((photo_folder / "brick").iterdir())[:3]
    done = patchvote("predict", folder / "m.patchvote", *photos)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["file"] for row in rows] == [photo.as_posix() for photo in photos]
    assert {row["likeliest"] for row in rows} == {"brick"}
    assert all(0 < float(row["probability"]) <= 1 for row in rows)
    ask = words("predict", folder / "m.patchvote", photos[0].name)  # a long path would get a line of its own
    head, row = in_terminal(ask, 100, folder=photos[0].parent).splitlines()
    assert head.split() == ["photo", "class", "probability", "likeliest", "next", "likeliest"]
    assert row[head.index("class") :].startswith("brick")
    assert row[: head.index("likeliest")].rstrip().endswith("%")


def test_predict_reads_paths_from_standard_input_and_writes_files(made, photo_folder, tmp_path):
    folder, _ = made
    photos = sorted((photo_folder / "grass").iterdir())[:2]
    for name in ("answers.csv", "answers.jsonl"):
        done = patchvote(
            "predict",
            folder / "m.patchvote",
            "-",
            "--output",
            tmp_path / name,
            input="\n".join(map(str, photos)) + "\n\n",
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [row["likeliest"] for row in rows] == ["grass", "grass"]
    assert (tmp_path / "answers.csv").read_text().count("\n") == 3
    wrong = patchvote("predict", folder / "m.patchvote", photos[0], "--output", tmp_path / "answers.xlsx")
    assert "--output writes .csv or .jsonl" in wrong.stderr


def test_predict_names_what_it_cannot_read_and_goes_on(command, made, photo_folder, tmp_path):
    folder, _ = made
    (tmp_path / "broken.jpg").write_bytes(b"no")
    good = next((photo_folder / "brick").iterdir())
    done = command("predict", folder / "m.patchvote", tmp_path / "broken.jpg", good, "--json")
    assert done.code == 3
    first, second = (json.loads(line) for line in done.out.splitlines())
    assert first["error"]
    assert second["likeliest"] == "brick"
    assert "skipped" in done.err


def test_something_else_is_none_of_these(command, made, tmp_path):
    folder, _ = made
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    told = json.loads(command("predict", folder / "m.patchvote", tmp_path / "noise.png", "--json").out)
    assert told["label"] == "none of these"
    assert told["probability"] is None
    assert told["familiarity"] < 0.05
    told = json.loads(
        command("predict", folder / "m.patchvote", tmp_path / "noise.png", "--json", "--threshold", 0).out
    )
    assert told["label"] == told["likeliest"]
    model = dataclasses.replace(read_model(folder / "m.patchvote"), familiarity=None)
    labels = []
    for threshold in (0.0, 1.0):  # without a familiarity, the probability decides, and may be as large as it likes
        write_model(dataclasses.replace(model, threshold=threshold), tmp_path / "m.patchvote")
        told = json.loads(command("predict", tmp_path / "m.patchvote", tmp_path / "noise.png", "--json").out)
        labels.append(told["label"])
    assert labels[0] in model.classes
    assert labels[1] == "none of these"


def test_explain_draws_and_writes_arrays(command, made, photo_folder, tmp_path):
    folder, _ = made
    photo = next((photo_folder / "gravel").glob("*.jpg"))
    done = command(
        "explain",
        folder / "m.patchvote",
        photo,
        "-o",
        tmp_path / "e.png",
        "--arrays",
        tmp_path / "e.npz",
        "--class",
        "brick",
    )
    assert done.code == 0, done.err
    assert "gravel" in done.out
    assert (tmp_path / "e.png").read_bytes()[:4] == b"\x89PNG"
    with np.load(tmp_path / "e.npz", allow_pickle=False) as arrays:
        np.testing.assert_allclose(arrays["maps"].sum(axis=(1, 2)), arrays["votes"].mean(axis=0), rtol=1e-9)
        assert arrays["classes"].tolist() == ["Straße & Café", "brick", "grass", "gravel"]
    wrong = command("explain", folder / "m.patchvote", photo, "--class", "brik")
    assert wrong.err == "patchvote: there is no class 'brik'. Did you mean 'brick'?\n"


def test_explain_shows_the_parts_of_training_photos_that_match(command, photo_folder, made, tmp_path):
    folder, _ = made
    for path in photo_folder.glob("*/*no. [0-2].*"):
        (tmp_path / "few" / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "few" / path.parent.name)
    photo_folder, model = tmp_path / "few", tmp_path / "bank.patchvote"
    options = ("--voter", "nbnn", "--cache", folder / "cache", "--no-report")
    assert command("fit", photo_folder, model, *options).code == 0
    assert not (tmp_path / "bank.html").exists()
    photo = next((photo_folder / "gravel").glob("*.jpg"))
    done = command("explain", model, photo, "-o", tmp_path / "e.png", "--photos", photo_folder)
    assert f"of gravel/{photo.name}" in done.out
    assert (tmp_path / "e-matches.png").exists()


def test_evaluate_compares_and_writes_a_report(command, made, photo_folder, tmp_path):
    folder, _ = made
    done = command("evaluate", folder / "m.patchvote", photo_folder, "--report", tmp_path / "r.html")
    assert done.code == 0, done.err
    assert "% of 40 photos are classified correctly" in done.out
    assert (tmp_path / "r.html").exists()
    told = json.loads(command("evaluate", folder / "m.patchvote", photo_folder, "--no-report", "--json", "--quiet").out)
    assert told["images"] == 40


def test_add_teaches_a_new_class_in_place(command, made, photo_folder, tmp_path):
    folder, _ = made
    known, new = tmp_path / "known", tmp_path / "new"
    for label in ("brick", "grass"):
        shutil.copytree(photo_folder / label, known / label)
    shutil.copytree(photo_folder / "gravel", new / "gravel")
    model = tmp_path / "m.patchvote"
    assert command("fit", known, model, "--cache", folder / "cache", "--no-report").code == 0
    shutil.rmtree(known)  # not needed any more
    done = command("add", model, new, "--cache", folder / "cache")
    assert done.code == 0, done.err
    assert "New: gravel. It now knows 3 classes." in done.out
    told = json.loads(command("info", model, "--json").out)
    assert told["classes"] == ["brick", "grass", "gravel"]
    assert "| gravel | 10 |" in command("info", model, "--card").out


def test_forgetting_gives_the_model_of_a_fit_without_these_photos(command, made, photo_folder, tmp_path):
    folder, _ = made
    shutil.copy(folder / "m.patchvote", model := tmp_path / "m.patchvote")
    names = command("info", model, "--photos").out.splitlines()
    assert len(names) == 40
    gone = sorted(name for name in names if name.startswith("brick/"))[:3]
    done = command("forget", model, *gone, "gravel/")
    assert done.code == 0, done.err
    assert "forgot 13 photos; 27 photos of 3 classes are left." in done.out
    for name in gone:
        names.remove(name)
    rest = tmp_path / "rest"
    shutil.copytree(photo_folder, rest, ignore=shutil.ignore_patterns("gravel", *(Path(name).name for name in gone)))
    again = command("fit", rest, tmp_path / "again.patchvote", "--cache", folder / "cache", "--no-report")
    assert again.code == 0, again.err
    ours, theirs = read_model(model).scorer.arrays, read_model(tmp_path / "again.patchvote").scorer.arrays
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    unknown = command("forget", model, *gone[:1])
    assert (unknown.code, "has learned no photo" in unknown.err) == (1, True)
    left = command("forget", model, "brick/", "grass/")
    assert (left.code, "fewer than two classes would be left" in left.err) == (1, True)


def test_a_model_without_memory_is_small_and_learns_no_more(command, made, photo_folder, tmp_path):
    folder, _ = made
    model = tmp_path / "small.patchvote"
    done = command("fit", photo_folder, model, "--cache", folder / "cache", "--no-report", "--no-memory")
    assert done.code == 0, done.err
    assert model.stat().st_size < (folder / "m.patchvote").stat().st_size - 40 * 30_000
    photo = next((photo_folder / "grass").iterdir())
    assert command("predict", model, photo).out == command("predict", folder / "m.patchvote", photo).out
    assert command("info", model, "--photos").out == ""
    for typed in (("add", model, photo_folder), ("forget", model, "grass/")):
        refused = command(*typed, "--output", tmp_path / "new.patchvote")
        assert (refused.code, "written without its memory (--no-memory)" in refused.err) == (1, True)


def test_info_tells_what_a_model_is(command, made):
    folder, _ = made
    said = command("info", folder / "m.patchvote").out
    for part in ("moment-ridge", "efficientnet-lite0", "95 % confidence", "brick (10)", "Straße & Café (10)"):
        assert part in said


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("fit", "absent"), "patchvote: absent: there is no such file or folder. Is the path right?"),
        (("predict", "absent.patchvote", "x.jpg"), "there is no such file. `patchvote fit PHOTOS absent.patchvote`"),
        (("info", "absent"), "absent is neither a model nor a store: there is no such file or folder."),
        (("fit", ".", "no/folder/m.patchvote"), "cannot be written: there is no folder no/folder"),
        (("fit", ".", "--voter", "nbn"), "Did you mean"),
    ],
)
def test_errors_are_a_line_or_two_that_say_what_to_do(parts, said, tmp_path, photo_folder, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    done = command(*[photo_folder if part == "." else part for part in parts])
    assert done.code == 1
    assert said in done.err
    assert done.err.count("\n") <= 2
    assert "Traceback" not in done.err
    with pytest.raises(PatchvoteError):  # with its traceback
        command(*[photo_folder if part == "." else part for part in parts], "--debug")


def test_a_mistyped_command_gets_the_nearest_right_one():
    done = patchvote("predikt")
    assert done.returncode == 2
    assert "predict" in done.stderr


def test_the_shell_can_complete_commands():
    env = {**os.environ, "_PATCHVOTE_COMPLETE": "complete_bash", "COMP_WORDS": "patchvote pre", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from patchvote.cli import make_app; make_app()(prog_name='patchvote')"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert "predict" in done.stdout


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("command", ["fit", "add", "evaluate"])
def test_an_interrupted_command_leaves_no_half_written_file(made, photo_folder, tmp_path, way, command):
    folder, _ = made
    model = tmp_path / "m.patchvote"
    shutil.copy(folder / "m.patchvote", model)
    before = model.read_bytes()
    new = tmp_path / "out.patchvote"
    parts = {
        "fit": ("fit", photo_folder, new, "--cache", tmp_path / "cache"),
        "add": ("add", model, photo_folder, "--cache", tmp_path / "cache"),
        "evaluate": ("evaluate", model, photo_folder, "--report", tmp_path / "r.html", "--no-cache"),
    }[command]
    last = ["nice", "-n", "19"]  # it must not be done before this process, which may have to wait, has seen it at work
    running = subprocess.Popen([*last, *words(*parts)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    mapped = Path(f"/proc/{running.pid}/maps")
    until = time.monotonic() + 60
    while b"onnxruntime" not in mapped.read_bytes() and time.monotonic() < until:  # now it is at work
        time.sleep(0.02)
    time.sleep(0.3)
    running.send_signal(way)
    _, said = running.communicate(timeout=60)
    assert running.returncode in (130, -way)
    assert b"Traceback" not in said
    assert model.read_bytes() == before
    assert not new.exists()
    assert not (tmp_path / "r.html").exists()


def test_predict_adapts_to_the_photos_it_names_and_fit_to_those_to_come(command, made, photo_folder, tmp_path):
    folder, _ = made
    plain = command("predict", folder / "m.patchvote", photo_folder)
    adapted = command("predict", folder / "m.patchvote", photo_folder, "--adapt")
    assert adapted.code == 0, adapted.err
    assert len(adapted.out.splitlines()) == len(plain.out.splitlines()) == 41
    done = command("fit", photo_folder, tmp_path / "m.patchvote", "--target", photo_folder, "--cache", folder / "cache")
    assert done.code == 0, done.err
    assert "adapted to 40 photos without classes" in done.out
    assert "adapted" in command("info", tmp_path / "m.patchvote", "--card").out
