"""The command that shows the cache and clears it, and the commands that share it."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.command import in_terminal, words
from patchvote import Extractor, find_photos
from patchvote.bags.cache import files_in
from patchvote.bags.described import described
from patchvote.networks.cache import built_graphs


def bytes_in(cache: Path) -> int:
    return sum(file.size for file in files_in(cache))


def keep_photos(cache: Path | None = None) -> None:
    """Put the bags of the photos into a cache, the user's by default."""
    for _ in described(find_photos("photos"), Extractor("tiny.onnx"), cache=cache):
        pass


@pytest.fixture
def cached(place, monkeypatch):
    """A folder with photos and a network that are in the user's cache."""
    monkeypatch.setenv("PATCHVOTE_CACHE", str(place / "mine"))
    monkeypatch.delenv("PATCHVOTE_CACHE_SIZE", raising=False)
    keep_photos()
    (place / "mine" / "networks").mkdir(exist_ok=True)
    (place / "mine" / "networks" / f"some-{'0' * 64}.onnx").write_bytes(b"x" * 2000)
    return place


def test_the_command_shows_folder_size_bound_and_content(cached, command):
    lines = command("cache").out.splitlines()
    assert lines[0] == f"folder     {cached / 'mine'}"
    assert "of 12 photos; at most 5.0 GB ($PATCHVOTE_CACHE_SIZE)" in lines[1]
    assert lines[2] == "networks   2.0 kB in 1 built network"
    record = json.loads(command("cache", "--json").out)
    assert (record["photos"], record["bound"], record["network_bytes"]) == (12, 5 * 10**9, 2000)
    assert [(kind["mode"], kind["keeps"], kind["photos"]) for kind in record["kinds"]] == [("dense", "whole", 12)]
    assert record["bytes"] == bytes_in(cached / "mine" / "bags")
    shown = in_terminal(words("cache"), columns=60).splitlines()
    assert shown[0] == lines[0]
    assert all(len(line) <= 60 and line.startswith(("photos ", "networks ", " " * 11)) for line in shown[1:])


def test_clearing_removes_bags_and_built_networks(cached, command):
    (cached / "mine" / "networks" / "own.onnx").write_bytes(b"x")
    assert json.loads(command("cache", "--clear", "--yes", "--json").out)["networks"] == 2000
    assert (bytes_in(cached / "mine" / "bags"), built_graphs()) == (0, [])
    assert (cached / "mine" / "networks" / "own.onnx").exists()
    assert command("cache", "--clear", "--yes").out == "removed 0 bytes of descriptors and 0 bytes of built networks\n"


def test_who_does_not_agree_removes_nothing(cached, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert command("cache", "--clear").code == 1
    assert bytes_in(cached / "mine" / "bags") > 0


def test_a_folder_of_its_own_is_shown_and_cleared(place, command):
    keep_photos(place / "bags")
    assert "no bound" in command("cache", "--cache", "bags").out
    assert command("cache", "--cache", "bags", "--clear", "-y").code == 0
    assert list((place / "bags").iterdir()) == []


def test_commands_share_the_cache(cached, command):
    network = ("--network", "tiny.onnx")
    assert command("fit", "photos", "new.patchvote", *network, "--no-report").code == 0
    (cached / "more").mkdir()
    for index in range(8):
        pixels = np.random.default_rng(index).integers(0, 255, (64, 64, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(cached / "more" / f"{index}.png")
    predicted = command("predict", "new.patchvote", "more", *network).out
    before = bytes_in(cached / "mine" / "bags")
    assert command("predict", "new.patchvote", "more", *network).out == predicted
    assert command("suggest", "new.patchvote", "more", *network).code == 0
    assert bytes_in(cached / "mine" / "bags") == before
    assert json.loads(command("cache", "--json").out)["photos"] == 20
    shutil.rmtree(cached / "mine")
    assert command("predict", "new.patchvote", "more", *network, "--no-cache").out == predicted
    assert not (cached / "mine" / "bags").exists()


def test_a_wrong_bound_is_refused(cached, command, monkeypatch):
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", "much")
    done = command("fit", "photos", "other.patchvote", "--network", "tiny.onnx")
    assert (done.code, "PATCHVOTE_CACHE_SIZE must be a size" in done.err) == (1, True)
