from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time

import pytest

from helpers.bad_files import DAMAGED, ODD, write_bad_files
from helpers.waiting import wait_for
from patchvote import Store

FAST = ["--sides", "64"]


def words(*parts: object) -> list[str]:
    return [sys.executable, "-m", "patchvote", *map(str, parts)]


def patchvote(*parts: object, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(*parts), capture_output=True, text=True, timeout=120, **kwargs)


def test_extract_and_info_tell_what_they_did(photo_folder, tmp_path):
    first = patchvote("extract", photo_folder, tmp_path / "store", *FAST)
    assert first.returncode == 0, first.stderr
    assert "40 photos extracted" in first.stdout
    second = patchvote("extract", photo_folder, tmp_path / "store", *FAST)
    assert "0 photos extracted; 40 were there already." in second.stdout
    info = patchvote("info", tmp_path / "store")
    assert info.returncode == 0
    for part in (
        "photos       40",
        "1,280 per descriptor, stored as float16",
        "efficientnet-lite0",
        "sides 64",
        "Straße & Café",
    ):
        assert part in info.stdout


def test_json_is_for_programs(photo_folder, tmp_path):
    first = patchvote("extract", photo_folder, tmp_path / "store", "--json", *FAST)
    told = json.loads(first.stdout)
    assert (told["photos"], told["extracted"], told["skipped"]) == (40, 40, [])
    assert first.stderr == ""
    told = json.loads(patchvote("info", tmp_path / "store", "--json").stdout)
    assert told == Store.open(tmp_path / "store").summary()


def test_quiet_is_silent(photo_folder, tmp_path):
    done = patchvote("extract", photo_folder, tmp_path / "store", "--quiet", *FAST)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_bad_file_is_decoded_or_named_and_the_rest_is_extracted(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    write_bad_files(folder)
    done = patchvote("extract", folder, tmp_path / "store", "--json", *FAST)
    assert done.returncode == 3
    told = json.loads(done.stdout)
    assert {bad["name"] for bad in told["skipped"]} == set(DAMAGED)
    for bad in told["skipped"]:
        assert DAMAGED[bad["name"]] in bad["reason"]
        assert f"skipped {bad['name']}: " in done.stderr
    assert set(Store.open(tmp_path / "store").names) == {*ODD, "good.jpg"}
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr


def test_strict_stops_at_the_first_bad_file(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    write_bad_files(folder)
    done = patchvote("extract", folder, tmp_path / "store", "--strict", *FAST)
    assert done.returncode == 1
    first = min(DAMAGED)
    assert done.stderr.splitlines() == [f"patchvote: {first}: {done.stderr.split(': ', 2)[2].strip()}"]
    assert DAMAGED[first] in done.stderr


def test_the_papers_way_is_an_option(photo_folder, tmp_path):
    options = ["--mode", "patch", "--count", 20, "--smallest", 16, "--levels", 2, "--patch-input", 32]
    done = patchvote("extract", photo_folder / "brick", tmp_path / "store", *options, "--activation", "before", "-j", 1)
    assert done.returncode == 0, done.stderr
    recipe = Store.open(tmp_path / "store").recipe
    assert (recipe.mode, recipe.sampling.count, recipe.sampling.smallest, recipe.activation) == (
        "patch",
        20,
        16,
        "before",
    )
    assert "mode         patch: count 20" in patchvote("info", tmp_path / "store").stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["extract", "nowhere", "store"], 1, "nowhere: there is no such file or folder. Is the path right?"),
        (["extract", ".", "store"], 1, "no photos here or in the folders below"),
        (["extract", "PHOTOS", "store", "--network", "efficientnet-lite9"], 1, "Did you mean 'efficientnet-lite"),
        (["extract", "PHOTOS", "store", "--sides", "big"], 2, "--sides takes whole numbers separated by commas"),
        (["extract", "PHOTOS", "store", "--jobs", "0"], 2, "--jobs"),
        (
            ["extract", "PHOTOS", "store", "--count", "400"],
            2,
            "--count can be set only with --mode patch; this is --mode dense",
        ),
        (
            ["extract", "PHOTOS", "store", "--sides", "224", "--patch-input", "64"],
            2,
            "--patch-input can be set only with --mode patch; this is --mode dense",
        ),
        (
            ["extract", "PHOTOS", "store", "--mode", "patch", "--sides", "64"],
            2,
            "sides can be set only with --mode dense",
        ),
        (["extract", "PHOTOS", "store", "--mode", "pacth"], 2, "pacth"),
        (["extract", "PHOTOS"], 2, "STORE"),
        (["extrct", "PHOTOS", "store"], 2, "extract"),
        (["info", "nowhere"], 1, "nowhere is neither a model nor a store: there is no such file or folder"),
    ],
)
def test_mistakes_get_a_line_that_says_what_to_do(words, code, says, photo_folder, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    done = command(*[photo_folder if word == "PHOTOS" else word for word in words])
    assert done.code == code
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "store").exists()


def test_debug_shows_the_traceback(tmp_path):
    done = patchvote("info", tmp_path / "nowhere", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_ctrl_c_exits_with_130_and_says_how_to_go_on(photo_folder, tmp_path):
    command = words("extract", photo_folder, tmp_path / "store", "--sides", 1600)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for((tmp_path / "store").exists)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to continue" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(("pressed", "left"), [(True, ""), (False, "taken apart\n")])
def test_after_ctrl_c_nobody_waits_until_torch_is_taken_apart(pressed, left):
    code = f"""
import atexit, sys, types
from patchvote import cli
from patchvote.__main__ import main
from patchvote.utils.terminal import PRESSED
sys.modules["torch"] = types.ModuleType("torch")
atexit.register(print, "taken apart")
def run():
    PRESSED.is_set = {pressed}
    sys.exit(130)
cli.main = run
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, left, "")


def test_on_a_terminal_there_is_a_bar_with_rate_and_time_left(photo_folder, tmp_path):
    main, follower = pty.openpty()
    command = words("extract", photo_folder, tmp_path / "store", "--sides", 448)
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert process.wait() == 0
    text = shown.decode(errors="replace")
    assert "of 40 photos" in text
    assert "per second" in text
    assert "left" in text


def test_a_manifest_whose_files_are_partly_missing_extracts_the_others(photo_folder, tmp_path):
    shutil.copytree(photo_folder / "brick", tmp_path / "photos")
    names = sorted(path.name for path in (tmp_path / "photos").iterdir())
    rows = "".join(f'"{name}",brick\n' for name in [*names, "gone.jpg"])
    (tmp_path / "photos" / "list.csv").write_text("file_name,label\n" + rows)
    done = patchvote("extract", tmp_path / "photos" / "list.csv", tmp_path / "store", *FAST)
    assert done.returncode == 3
    assert "skipped gone.jpg: there is no such file." in done.stderr
    assert Store.open(tmp_path / "store").labels.tolist() == ["brick"] * 10


def test_version_and_help_answer():
    assert patchvote("--version").stdout.startswith("patchvote ")
    for words in (["--help"], ["-h"], ["extract", "--help"], ["info", "--help"]):
        assert patchvote(*words).returncode == 0
    assert patchvote().returncode in (0, 2)  # no words: the help, as the library that parses them sees fit


def test_output_into_a_closed_pipe_is_no_disaster(photo_folder, tmp_path):
    patchvote("extract", photo_folder, tmp_path / "store", *FAST)
    command = f"{sys.executable} -m patchvote info '{tmp_path / 'store'}' | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_a_terminal_that_cannot_show_a_name_shows_the_rest(photo_folder, tmp_path):
    patchvote("extract", photo_folder, tmp_path / "store", *FAST)
    done = patchvote("info", tmp_path / "store", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "Stra?e & Caf?" in done.stdout
    assert 'letters that ascii, the encoding of standard output, does not have were printed as "?".' in done.stderr
    assert done.stderr.isascii()
    assert "letters that" not in patchvote("info", tmp_path / "store").stderr
