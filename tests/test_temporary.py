"""What a killed process leaves behind is removed by the next run; what a living one is at work on is not."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import ImageClassifier, PatchvoteError
from patchvote.utils.files import temporary_folder, write_atomically

WRITES_SLOWLY = """
import sys, time
from pathlib import Path
from patchvote.utils.files import write_atomically
def parts():
    yield b"file,label\\n"
    print("at work", flush=True)
    sys.stdin.readline()
    yield b"a.jpg,red\\n"
write_atomically(Path(sys.argv[1]), parts())
print("done", flush=True)
"""

# As in another container: the host has the same name there, and processes have other numbers.
IN_ANOTHER_CONTAINER = """
import os, subprocess
gone = subprocess.Popen(["true"])
gone.wait()
os.getpid = lambda: gone.pid
"""

WORKS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from helpers.quick_network import QUICK, QuickNetwork
from patchvote import Extractor, ImageClassifier, fill
class Stuck(QuickNetwork):
    def __call__(self, images):
        print("at work", flush=True)
        sys.stdin.readline()
        return super().__call__(images)
"""
FITS_WITHOUT_A_CACHE = (
    f"{WORKS}\nImageClassifier(QUICK, voter='nbnn', cache=False, backbone=Stuck(), jobs=1).fit(sys.argv[2])"
)


@contextmanager
def at_work(code: str, *words: object):
    """Run a program until it says that it is at work; a line of input lets it go on."""
    command = [sys.executable, "-c", code, *map(str, words)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "at work\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def photos(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    for label, colour in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for index in range(4):
            pixels = rng.normal(colour, 30, (64, 64, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{index}.png")
    return tmp_path / "photos"


def test_half_a_file_of_a_killed_process_is_removed_by_the_next_that_writes_there(tmp_path):
    with at_work(WRITES_SLOWLY, tmp_path / "answers.csv") as process:
        kill(process)
    (left,) = names(tmp_path)
    assert left.startswith(".writing-")
    write_atomically(tmp_path / "other.csv", [b"new"])
    assert names(tmp_path) == {"other.csv"}


@pytest.mark.parametrize("elsewhere", ["", IN_ANOTHER_CONTAINER], ids=["here", "in another container"])
def test_a_file_that_a_living_process_writes_stays_whatever_its_number_and_host(tmp_path, elsewhere):
    from patchvote.bags.fill import remove_abandoned

    with at_work(elsewhere + WRITES_SLOWLY, tmp_path / "answers.csv") as process:
        remove_abandoned(tmp_path)
        write_atomically(tmp_path / "other.csv", [b"new"])
        assert len(names(tmp_path)) == 2
        out, _ = process.communicate("go on\n", timeout=60)
    assert out == "done\n"
    assert (tmp_path / "answers.csv").read_bytes() == b"file,label\na.jpg,red\n"
    assert names(tmp_path) == {"answers.csv", "other.csv"}


def test_half_a_file_of_another_container_that_was_killed_is_removed(tmp_path):
    with at_work(IN_ANOTHER_CONTAINER + WRITES_SLOWLY, tmp_path / "answers.csv") as process:
        kill(process)
    write_atomically(tmp_path / "answers.csv", [b"new"])
    assert names(tmp_path) == {"answers.csv"}


def test_what_another_machine_left_is_removed_when_nobody_has_written_to_it_for_a_week(tmp_path):
    fresh, old = tmp_path / ".writing-elsewhere@1-ab", tmp_path / ".writing-elsewhere@2-cd"
    for path in (fresh, old, tmp_path / ".writing-notes", tmp_path / "patchvote-notes"):
        path.touch()
    for path in tmp_path.iterdir():
        if path != fresh:
            os.utime(path, (time.time() - 8 * 86400,) * 2)
    write_atomically(tmp_path / "x", [b"new"])
    assert names(tmp_path) == {fresh.name, ".writing-notes", "patchvote-notes", "x"}  # nor what is not ours


def test_a_link_or_a_pipe_of_such_a_name_is_not_touched(tmp_path):
    from patchvote.utils.files import machine

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.jpg").write_bytes(b"precious")
    (tmp_path / f"patchvote-{machine()}@1-abcdefgh").symlink_to(tmp_path / "mine")
    (tmp_path / f".writing-{machine()}@1-ab").symlink_to(tmp_path / "mine" / "photo.jpg")
    os.mkfifo(tmp_path / f".writing-{machine()}@2-ab")
    before = names(tmp_path)
    write_atomically(tmp_path / "x", [b"new"])
    assert names(tmp_path) == before | {"x"}
    assert (tmp_path / "mine" / "photo.jpg").read_bytes() == b"precious"


def test_the_folder_of_a_killed_fit_without_a_cache_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    photos, tmp_path, monkeypatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (temporary / "patchvote-of-somebody").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = names(temporary)

    def fit():
        ImageClassifier(QUICK, voter="nbnn", cache=False, backbone=QuickNetwork(), budget=0).fit(photos)

    with at_work(FITS_WITHOUT_A_CACHE, Path(__file__).parent, photos) as process:
        (folder,) = names(temporary) - before
        fit()
        assert folder in names(temporary)
        kill(process)
    fit()
    assert names(temporary) == before


# --- no room ----------------------------------------------------------------------------------------------------------


def test_a_full_temporary_folder_is_told_in_one_sentence(place, command, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    def full(path, parts):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("patchvote.bags.shards.write_atomically", full)
    done = command(
        "fit", "photos", "new.patchvote", "--network", "tiny.onnx", "--no-cache", "--no-report", "-q", "--voter", "nbnn"
    )
    assert done.code == 1
    assert done.err == (
        f"patchvote: the temporary folder {place} is full. Free some space there, or name another folder by the "
        "environment variable TMPDIR, then run it again.\n"
    )


def test_an_open_file_in_a_full_temporary_folder_is_told_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=4096))
    with pytest.raises(PatchvoteError, match=f"the temporary folder {tmp_path} is full"), temporary_folder():
        Path("/dev/full").write_bytes(b"x")


def test_a_disk_that_is_full_elsewhere_is_not_taken_for_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for error in (OSError(errno.ENOSPC, "full", "/elsewhere/model"), OSError(errno.ENOSPC, "full"), OSError("other")):
        with pytest.raises(OSError, match="full|other") as raised, temporary_folder():
            raise error
        assert raised.value is error
    assert list(tmp_path.iterdir()) == []


def test_no_temporary_folder_at_all_is_told_with_those_that_were_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    with (
        pytest.raises(PatchvoteError, match=r"nothing temporary can be written: .*gone.*TMPDIR"),
        temporary_folder(),
    ):
        pass
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(PatchvoteError, match=r"the temporary folder .*gone: No such file.*TMPDIR"), temporary_folder():
        pass
