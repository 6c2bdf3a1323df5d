"""Which of two bags of a photo is the newer: what the headers say, whatever the files are called."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import Bags, Extractor, Recipe, Store, fill
from patchvote.bags.entries import Entry
from patchvote.bags.shard_writing import write_shard


def put(folder: Path, label: str, name: str = "a.jpg") -> Path:
    """Write a shard that says of a photo that it has this label."""
    folder.mkdir(exist_ok=True)
    bag = Bags(np.ones((1, 5), np.float16), np.array([0, 1]))
    return write_shard(folder, Recipe(), "f", [Entry(name, label, f"digest of {label}")], [bag])


def label_in(folder: Path) -> str:
    (label,) = Store.open(folder).labels
    return str(label)


def test_a_copied_shard_is_as_old_as_its_original(tmp_path):
    first = put(tmp_path, "old")
    shutil.copy(first, tmp_path / "copy.safetensors")
    put(tmp_path, "new")
    assert label_in(tmp_path) == "new"
    shutil.copy(first, tmp_path / "zzz.safetensors")
    assert label_in(tmp_path) == "new"


def test_a_copied_shard_does_not_bring_back_what_was_forgotten(tmp_path):
    first = put(tmp_path, "old")
    put(tmp_path, "other", "b.jpg")
    shutil.copy(first, tmp_path / "copy.safetensors")
    write_shard(tmp_path, Recipe(), "f", [], [Bags(np.empty((0, 5), np.float16), [0])], ["a.jpg"])
    assert Store.open(tmp_path).names == ["b.jpg"]


def test_of_two_shards_of_one_number_the_same_one_counts_whatever_their_names_are(tmp_path, monkeypatch):
    moment = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: moment)
    shards = [put(tmp_path / name, name) for name in ("one", "two")]  # on two machines at the same moment
    found = set()
    for number, names in enumerate([("a", "b"), ("b", "a")]):
        (tmp_path / str(number)).mkdir()
        for shard, name in zip(shards, names, strict=True):
            shutil.copy(shard, tmp_path / str(number) / f"{name}.safetensors")
        found.add(label_in(tmp_path / str(number)))
    assert len(found) == 1


@pytest.fixture
def photo(tmp_path) -> Path:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (64, 64), "red").save(tmp_path / "photos" / "a.png")
    return tmp_path / "photos" / "a.png"


def test_a_run_goes_on_from_the_latest_header_where_clocks_differ_and_files_were_renamed(photo, tmp_path, monkeypatch):
    extractor, real = Extractor(QUICK, backbone=QuickNetwork()), time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
        fill(tmp_path / "store", photo.parent, extractor)
    (shard,) = (tmp_path / "store").iterdir()
    shard.rename(tmp_path / "store" / "renamed.safetensors")
    Image.new("RGB", (64, 64), "blue").save(photo)
    assert fill(tmp_path / "store", photo.parent, extractor).extracted == 1
    fill(tmp_path / "fresh", photo.parent, extractor)
    newest, fresh = (Store.open(tmp_path / name).load()[0].values for name in ("store", "fresh"))
    np.testing.assert_array_equal(newest, fresh)
    assert fill(tmp_path / "store", photo.parent, extractor).kept == 1
