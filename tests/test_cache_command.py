"""The command that shows the cache and clears it, and the commands that share it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from patchvote import Extractor, find_photos
from patchvote.bags.cache import described, files_in, kinds_in
from patchvote.networks.cache import built_graphs


def bytes_in(cache: Path) -> int:
    return sum(file.size for file in files_in(cache))


def keep_photos(cache: Path | None = None) -> None:
    """Put the bags of the photos into a cache, the user's by default."""
    for _ in described(find_photos("photos"), Extractor("tiny.onnx"), cache=cache):
        pass


@pytest.fixture
def cached(place, monkeypatch):
    """A folder with photos that are in the user's cache."""
    monkeypatch.setenv("PATCHVOTE_CACHE", str(place / "mine"))
    keep_photos()
    return place


def test_the_command_shows_folder_size_bound_and_content(cached, command, monkeypatch):
    monkeypatch.delenv("PATCHVOTE_CACHE_SIZE", raising=False)
    (cached / "mine" / "networks").mkdir(exist_ok=True)
    (cached / "mine" / "networks" / f"some-{'0' * 64}.onnx").write_bytes(b"x" * 2000)
    lines = command("cache").out.splitlines()
    assert lines[0] == f"folder     {cached / 'mine'}"
    assert "of 12 photos; at most 5.0 GB ($PATCHVOTE_CACHE_SIZE)" in lines[1]
    assert "tiny.onnx, dense: all descriptors of each of 12 photos, last used just now" in lines[2]
    assert lines[3] == "networks   2.0 kB in 1 built network, beside the bound"
    record = json.loads(command("cache", "--json").out)
    assert (record["photos"], record["bound"], record["network_bytes"]) == (12, 5 * 10**9, 2000)
    (kind,) = record["kinds"]
    assert (kind["mode"], kind["keeps"], kind["photos"], kind["bytes"]) == ("dense", "whole", 12, record["bytes"])
    assert record["bytes"] == bytes_in(cached / "mine" / "bags")


def test_clearing_needs_a_yes_and_removes_bags_and_networks(cached, command):
    (cached / "mine" / "networks").mkdir(exist_ok=True)
    (cached / "mine" / "networks" / f"some-{'0' * 64}.onnx").write_bytes(b"x")
    (cached / "mine" / "networks" / "own.onnx").write_bytes(b"x")
    done = command("cache", "--clear")
    assert (done.code, "add --yes" in done.err) == (2, True)
    assert len(kinds_in(cached / "mine" / "bags")) == 1
    done = command("cache", "--clear", "--yes", "--json")
    assert json.loads(done.out)["networks"] == 1
    assert kinds_in(cached / "mine" / "bags") == []
    assert built_graphs() == []
    assert (cached / "mine" / "networks" / "own.onnx").exists()
    assert "0 bytes of descriptors of 0 photos" in command("cache").out
    assert command("cache", "--clear", "--yes").out == "removed 0 bytes of descriptors and 0 bytes of built networks\n"


@pytest.mark.parametrize(
    ("answer", "code", "says"), [("n", 0, "nothing was removed."), ("\x03", 130, "interrupted; nothing was removed.")]
)
def test_who_does_not_agree_is_told_that_nothing_was_removed(answer, code, says, cached):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "patchvote", "cache", "--clear"])
    told = os.read(terminal, 10_000)
    while b"[y/N]:" not in told:
        told += os.read(terminal, 10_000)
    typed = f"{answer}\n".encode() if answer.isprintable() else answer.encode()
    os.write(terminal, typed)
    with contextlib.suppress(OSError):  # the terminal is gone when the command ends
        while True:
            # Python overlooks a Ctrl-C of the very moment in which it begins to read, as a person would see.
            while not select.select([terminal], [], [], 10)[0]:
                os.write(terminal, typed)
            if not (more := os.read(terminal, 10_000)):
                break
            told += more
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    assert told.decode().splitlines()[-1].strip() == says
    assert len(kinds_in(cached / "mine" / "bags")) == 1


def test_a_folder_of_its_own_is_shown_and_cleared(place, command):
    keep_photos(place / "bags")
    assert "no bound" in command("cache", "--cache", "bags").out
    assert command("cache", "--cache", "bags", "--clear", "-y").code == 0
    assert list((place / "bags").iterdir()) == []


def test_commands_share_the_cache(cached, command):
    assert command("fit", "photos", "new.patchvote", "--network", "tiny.onnx", "--no-report").code == 0
    (cached / "more").mkdir()
    for index in range(20):
        pixels = np.random.default_rng(index).integers(0, 255, (64, 64, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(cached / "more" / f"{index}.png")
    assert command("predict", "new.patchvote", "more", "--network", "tiny.onnx").code == 0
    before = bytes_in(cached / "mine" / "bags")
    predicted = command("predict", "new.patchvote", "more", "--network", "tiny.onnx").out
    assert command("suggest", "new.patchvote", "more", "--network", "tiny.onnx").code == 0
    assert bytes_in(cached / "mine" / "bags") == before
    assert json.loads(command("cache", "--json").out)["photos"] == 32
    shutil.rmtree(cached / "mine")
    assert command("predict", "new.patchvote", "more", "--network", "tiny.onnx", "--no-cache").code == 0
    assert not (cached / "mine" / "bags").exists()
    assert predicted.count("\n") == 21


@pytest.mark.parametrize("more", [(), ("--clear", "--yes")])
def test_a_file_in_place_of_the_cache_is_told(more, place, command, monkeypatch):
    (place / "file").write_text("no folder")
    monkeypatch.setenv("PATCHVOTE_CACHE", str(place / "file"))
    for words in ((), ("--cache", "file")):
        done = command("cache", *words, *more)
        assert (done.code, "file is no folder, so nothing can be kept in it." in done.err) == (1, True)
