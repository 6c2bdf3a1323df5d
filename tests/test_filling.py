"""A store is brought up to date: nothing is done twice, and nothing is lost."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.full_disk import full_disk
from helpers.quick_network import QUICK, QuickNetwork
from helpers.shards import flip, same
from patchvote import Dense, Extractor, Photo, PhotoError, Recipe, Store, StoreError, fill, find_photos
from patchvote.bags import shards

module = sys.modules["patchvote.bags.fill"]
TIMES = 180  # descriptors as large as those of a real network


@pytest.fixture(scope="module")
def extractor() -> Extractor:
    return Extractor(QUICK, backbone=QuickNetwork(times=TIMES))


@pytest.fixture
def photos(photo_folder, tmp_path) -> Path:
    """A copy of the photos, to be changed."""
    return Path(shutil.copytree(photo_folder, tmp_path / "photos"))


def counts(filled) -> tuple[int, int, int, int]:
    return filled.extracted, filled.kept, filled.reused, len(filled.skipped)


def assert_same_store(store: Store, reference: Store) -> None:
    assert store.names == reference.names
    assert not store.damaged
    assert [entry.digest for entry in store.entries] == [entry.digest for entry in reference.entries]
    (bags, labels), (expected, expected_labels) = store.load(), reference.load()
    assert labels.tolist() == expected_labels.tolist()
    same(bags, expected)


def test_two_files_of_equal_size_and_time_that_change_places_are_noticed(tmp_path, extractor, monkeypatch):
    monkeypatch.setattr(module, "_SETTLED", 0)
    folder = tmp_path / "photos"
    for label, colour in (("a", "red"), ("b", "blue")):
        (folder / label).mkdir(parents=True)
        Image.new("RGB", (64, 64), colour).save(folder / label / "x.bmp")
        os.utime(folder / label / "x.bmp", ns=(10**18, 10**18))
    fill(tmp_path / "store", folder, extractor)
    before = Store.open(tmp_path / "store").load()[0].values
    with monkeypatch.context() as patch:  # unchanged files are not even read
        patch.setattr(extractor, "decode", lambda *_: pytest.fail("was read"))
        assert counts(fill(tmp_path / "store", folder, extractor)) == (0, 2, 0, 0)
    (folder / "a" / "x.bmp").rename(tmp_path / "x.bmp")
    (folder / "b" / "x.bmp").rename(folder / "a" / "x.bmp")
    (tmp_path / "x.bmp").rename(folder / "b" / "x.bmp")
    assert counts(fill(tmp_path / "store", folder, extractor)) == (0, 0, 2, 0)
    after = Store.open(tmp_path / "store").load()[0].values
    half = len(before) // 2
    np.testing.assert_array_equal(after, np.concatenate([before[half:], before[:half]]))
    monkeypatch.setattr(module, "_SETTLED", 600 * 10**9)  # a time of change just now proves nothing yet
    photo = folder / "a" / "x.bmp"
    photo.touch()
    fill(tmp_path / "store", folder, extractor)
    stamp = photo.stat().st_mtime_ns
    Image.new("RGB", (64, 64), "green").save(photo)
    os.utime(photo, ns=(stamp, stamp))
    assert counts(fill(tmp_path / "store", folder, extractor))[0] == 1


def test_only_new_and_changed_photos_are_extracted(photos, tmp_path, extractor):
    fill(tmp_path / "store", photos, extractor)
    victim, other = sorted(photos.rglob("*.png"))[:2]
    Image.open(other).convert("RGB").rotate(90, expand=True).save(victim)  # new content, new time of change
    Image.new("RGB", (70, 70), "red").save(photos / "brick" / "new.png")
    for path in photos.rglob("*.jpg"):  # these were only touched: they are known by their content
        os.utime(path, ns=(2 * 10**18, 10**18 + 5))
    filled = fill(tmp_path / "store", photos, extractor)
    assert counts(filled) == (2, 39, 0, 0)
    fill(tmp_path / "fresh", photos, extractor)
    assert_same_store(Store.open(tmp_path / "store"), Store.open(tmp_path / "fresh"))


def test_a_moved_or_relabelled_photo_takes_its_bag_along(photos, tmp_path, extractor):
    fill(tmp_path / "store", photos, extractor)
    (photos / "gravel").rename(photos / "pebbles")
    filled = fill(tmp_path / "store", photos, extractor)
    assert counts(filled) == (0, 30, 10, 0)
    assert (filled.forgotten, filled.others) == (10, 0)
    fill(tmp_path / "fresh", photos, extractor)
    assert_same_store(Store.open(tmp_path / "store"), Store.open(tmp_path / "fresh"))

    relabelled = [Photo(photo.name, photo.source, "stone") for photo in find_photos(photos)]
    assert counts(fill(tmp_path / "fresh", relabelled, extractor)) == (0, 0, 40, 0)
    assert set(Store.open(tmp_path / "fresh").labels) == {"stone"}


def test_a_photo_that_has_become_unreadable_is_forgotten_and_those_that_were_not_asked_for_stay(
    photos, tmp_path, extractor
):
    fill(tmp_path / "store", photos, extractor)
    victim, seen = sorted((photos / "brick").glob("*.png"))[0], []
    victim.write_text("no photo any more")
    asked = [photo for photo in find_photos(photos) if photo.label == "brick"]
    filled = fill(tmp_path / "store", asked, extractor, progress=lambda one: seen.append((one.done, one.photos)))
    assert (filled.forgotten, len(filled.skipped), filled.others) == (1, 1, 30)
    assert seen[-1] == (10, 10)
    assert len(Store.open(tmp_path / "store")) == 39


def test_one_hopeless_item_does_not_end_the_run(photos, tmp_path, extractor):
    data = next(photos.rglob("*.jpg")).read_bytes()
    truncated = Image.open(io.BytesIO(data[: len(data) // 2]))
    (photos / "loop.jpg").symlink_to("loop.jpg")
    with pytest.raises(PhotoError, match="loop.jpg"):
        fill(tmp_path / "strict", photos, extractor, strict=True)
    assert len(Store.open(tmp_path / "strict")) == 40  # what came before
    source = [
        *find_photos(photos),
        Photo("nul", Path("a\0b.jpg")),
        Photo("surrogate", Path("\ud800.jpg")),
        Photo("lazy", truncated),
        Photo("nothing", Image.new("RGB", (0, 0))),
        Photo("folder", photos),
        Photo("text", b"no photo"),
    ]
    filled = fill(tmp_path / "store", source, extractor)
    assert counts(filled) == (40, 0, 0, 7)
    names = ["folder", "lazy", "loop.jpg", "nothing", "nul", "surrogate", "text"]
    assert [error.name for error in filled.skipped] == names


def test_a_store_of_another_kind_and_two_photos_of_one_name_are_refused(photos, tmp_path, extractor):
    fill(tmp_path / "store", photos, extractor)
    other = Extractor(Recipe("quick", Dense(sides=(96,))), backbone=extractor.backbone)
    with pytest.raises(StoreError, match=r"\(there: .*64.*; asked: .*96.*\)\. Choose another folder"):
        fill(tmp_path / "store", photos, other)
    with pytest.raises(StoreError, match="another network"):
        fill(tmp_path / "store", photos, Extractor(QUICK, backbone=QuickNetwork()))
    with pytest.raises(StoreError, match="holds other files"):
        fill(photos, photos, extractor)
    first, second = find_photos(photos)[:2]
    with pytest.raises(StoreError, match="both called"):
        fill(tmp_path / "new", [first, Photo(first.name, second.source, first.label)], extractor)
    listed = [first, first, Photo(first.name, first.source, first.label)]
    assert counts(fill(tmp_path / "new", listed, extractor)) == (1, 0, 0, 0)


def test_a_torn_shard_is_set_aside_and_its_photos_are_extracted_again(photos, tmp_path, extractor, monkeypatch):
    monkeypatch.setattr(module, "SHARD_BYTES", 20_000)
    store = tmp_path / "store"
    fill(store, photos, extractor)
    torn = sorted(store.iterdir())[2]
    torn.write_bytes(torn.read_bytes()[:-100])
    (store / "notes.safetensors").write_text("hello")  # not ours: it stays where it is
    lost = 40 - len(Store.open(store))
    assert lost > 0
    filled = fill(store, photos, extractor)
    assert counts(filled) == (lost, 40 - lost, 0, 0)
    assert len(filled.damaged) == 1
    assert [path.name for path in store.glob("*.damaged")] == [f"{torn.name}.damaged"]
    assert (store / "notes.safetensors").exists()
    assert len(Store.open(store)) == 40


def test_a_damaged_bag_is_not_taken_over_for_a_photo_that_was_moved(photos, tmp_path, extractor):
    fill(tmp_path / "store", photos, extractor)
    (path,) = (tmp_path / "store").iterdir()
    for byte in range(1, 8 * 40, 8):  # in the checksums, so that every photo is concerned
        flip(path, 8 * (path.stat().st_size - byte))
    (photos / "brick" / "brick no. 0.png").rename(photos / "brick" / "moved.png")
    assert counts(fill(tmp_path / "store", photos, extractor)) == (1, 39, 0, 0)
    store = Store.open(tmp_path / "store")
    moved = store.load([store.names.index("brick/moved.png")])[0]
    (expected,) = extractor([photos / "brick" / "moved.png"])
    np.testing.assert_array_equal(moved.values, expected.values.astype(np.float16))
    with pytest.raises(StoreError, match="Without this file, `patchvote extract` extracts its photos again"):
        store.load()
    path.unlink()
    assert counts(fill(tmp_path / "store", photos, extractor)) == (39, 1, 0, 0)


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_the_store_is_as_if_nothing_had_happened(
    photos, tmp_path, extractor, monkeypatch
):
    def slowly(*arguments):  # so that a kill often strikes in the middle of a write
        for part in whole(*arguments):
            part = bytes(part)
            for start in range(0, len(part), 4096):
                time.sleep(0.001)
                yield part[start : start + 4096]

    fill(tmp_path / "reference", photos, extractor)
    reference, whole = Store.open(tmp_path / "reference"), shards._safetensors
    monkeypatch.setattr(module, "SHARD_BYTES", 20_000)
    monkeypatch.setattr(module, "_LOOK_AROUND", 4)
    monkeypatch.setattr(shards, "_safetensors", slowly)
    chance, kills, partly, torn = random.Random(20), 0, 0, 0
    while kills < 10:
        store, ended = tmp_path / f"store after {kills}", False
        while not ended:
            process = multiprocessing.get_context("fork").Process(target=fill, args=(store, photos, extractor))
            process.start()
            process.join(0.4 * chance.random())
            process.kill()
            process.join()
            ended = process.exitcode == 0
            kills += not ended
            partly += not ended and len(list(store.glob("[!.]*.safetensors"))) > 0
            torn += not ended and len(list(store.glob(".writing*"))) > 0
        assert_same_store(Store.open(store), reference)
        assert Store.open(store).summary()["superseded"] == 0  # no photo was extracted twice
    assert partly >= 2  # the kills did strike in the middle of the work
    assert torn >= 2  # and in the middle of writing a shard


def test_two_writers_at_once_make_one_store_and_share_the_work(photos, tmp_path, extractor, monkeypatch):
    fill(tmp_path / "reference", photos, extractor)
    monkeypatch.setattr(module, "SHARD_BYTES", 1)
    monkeypatch.setattr(module, "_LOOK_AROUND", 4)
    slow = [Extractor(QUICK, backbone=QuickNetwork(0.02, TIMES), jobs=1) for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        one, other = threads.map(lambda extractor: fill(tmp_path / "store", photos, extractor), slow)
    store = Store.open(tmp_path / "store")
    assert_same_store(store, Store.open(tmp_path / "reference"))
    assert one.extracted + other.extracted == 40 + store.summary()["superseded"] < 70  # each alone would have done 40


def test_after_a_full_disk_or_ctrl_c_the_store_stays_readable(photos, tmp_path, extractor):
    with full_disk(50_000), pytest.raises(StoreError, match="cannot be written: .* run the same command again"):
        fill(tmp_path / "store", photos, extractor)
    assert not list((tmp_path / "store").glob(".*"))

    def interrupt(filled):
        if filled.done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # what was extracted is kept
        fill(tmp_path / "store", photos, extractor, progress=interrupt)
    assert counts(fill(tmp_path / "store", photos, extractor)) == (30, 10, 0, 0)
