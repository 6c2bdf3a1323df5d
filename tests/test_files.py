"""Files are written as a whole or not at all, and what a killed process leaves behind is removed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from patchvote.errors import PatchvoteError
from patchvote.utils.files import make_folder, remove_abandoned, temporary_folder, write_atomically, write_file

WRITES_SLOWLY = """
import sys
from pathlib import Path
from patchvote.utils.files import temporary_folder, write_atomically
def parts():
    yield b"file,label\\n"
    print("at work", flush=True)
    sys.stdin.readline()
    yield b"a.jpg,red\\n"
with temporary_folder():
    write_atomically(Path(sys.argv[1]), parts())
print("done", flush=True)
"""


@contextmanager
def at_work(*words: object):
    """Run a program until it says that it is at work; a line of input lets it go on."""
    command = [sys.executable, "-c", WRITES_SLOWLY, *map(str, words)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "at work\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def age(folder: Path, days: float) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - 86400 * days,) * 2, follow_symlinks=False)


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """An empty folder, which is the system's temporary folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_link_stays_a_link_and_its_target_is_replaced_and_keeps_its_mode(tmp_path):
    (tmp_path / "shelf").mkdir()
    target, link = tmp_path / "shelf" / "real.bin", tmp_path / "link.bin"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    seen = []

    def parts():
        seen.extend(path.stat().st_mode & 0o777 for path in target.parent.iterdir())
        yield b"new"

    write_atomically(link, parts())
    assert link.is_symlink()
    assert seen == [0o600, 0o600]  # also while it is written
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o600)
    assert names(tmp_path / "shelf") == {"real.bin"}


def test_a_pipe_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PatchvoteError, match="pipe cannot be written: something that is no ordinary file"):
        write_file(tmp_path / "pipe", [b"new"])
    assert (tmp_path / "pipe").is_fifo()
    assert names(tmp_path) == {"pipe"}


def test_a_file_or_a_link_to_nothing_in_the_way_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for below in ("file", "file/deeper", "link", "link/deeper"):
        with pytest.raises(PatchvoteError, match=f"the folder .*{below} cannot be made"):
            make_folder(tmp_path / below)


# --- what is left behind ----------------------------------------------------------------------------------------------


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes_there_an_hour_later(tmp_path, temporary):
    with at_work(tmp_path / "answers.csv") as process:
        process.kill()
        process.wait()
    assert len(names(tmp_path)) == 2
    for folder in (tmp_path, temporary):
        age(folder, 0.1)
    write_atomically(tmp_path / "other.csv", [b"new"])
    with temporary_folder() as mine:
        assert names(temporary) == {mine.name}
    assert names(tmp_path) == {"other.csv", "temporary"}


def test_what_a_living_process_writes_stays_however_long_it_takes(tmp_path, temporary):
    with at_work(tmp_path / "answers.csv") as process:
        for folder in (tmp_path, temporary):
            age(folder, 30)
            remove_abandoned(folder)
        assert (len(names(tmp_path)), len(names(temporary))) == (2, 1)
        out, _ = process.communicate("go on\n", timeout=60)
    assert out == "done\n"
    assert (tmp_path / "answers.csv").read_bytes() == b"file,label\na.jpg,red\n"
    assert (names(tmp_path), names(temporary)) == ({"answers.csv", "temporary"}, set())


def test_a_link_a_pipe_or_a_file_of_the_users_own_is_not_touched(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.jpg").write_bytes(b"precious")
    (tmp_path / "patchvote-temporary-abcdefgh").symlink_to(tmp_path / "mine")
    (tmp_path / f".writing-{'a' * 32}").symlink_to(tmp_path / "mine" / "photo.jpg")
    os.mkfifo(tmp_path / f".writing-{'b' * 32}")
    for name in (".writing-notes", "patchvote-temporary-notes", "patchvote-abcdefgh"):
        (tmp_path / name).touch()
    before = names(tmp_path)
    age(tmp_path, 30)
    write_atomically(tmp_path / "x", [b"new"])
    assert names(tmp_path) == before | {"x"}
    assert (tmp_path / "mine" / "photo.jpg").read_bytes() == b"precious"
