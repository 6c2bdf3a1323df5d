"""The cache of bags: what is kept of a photo is a pure function of the photo and the recipe, in a file of its own."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import shutil
import stat
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import xxhash
from PIL import Image

from helpers.full_disk import full_disk
from helpers.local_engine import LocalEngine
from helpers.quick_network import QUICK, QuickNetwork, noise
from helpers.shards import assert_same_bags, same
from patchvote import Bags, Dense, Extractor, PatchvoteError, Photo, Recipe, Store, StoreError, fill, find_photos
from patchvote.bags.cache import WHOLE, Folder, base_of, bound_of, clear_bags, parse_size, trim
from patchvote.bags.described import Filled, damage, described
from patchvote.bags.fill import store_of
from patchvote.errors import CacheWarning


@dataclasses.dataclass(frozen=True)
class KeptMean:
    """Keeps the mean of each bag; refuses one whose first feature is above a limit."""

    limit: float = np.inf
    name: str = "mean-1"

    def of(self, bag: Bags) -> Bags:
        mean = bag.means().astype(np.float16)
        if mean[0, 0] > self.limit:
            raise ValueError("is too bright.")
        return Bags.of(mean)

    def pack(self, kept: Bags) -> dict[str, np.ndarray]:
        return {"mean": kept.values}

    def unpack(self, arrays) -> Bags:
        return Bags.of(arrays["mean"])


KINDS = [WHOLE, KeptMean()]
COUNT = 10


def write_photos(folder: Path, seed: int, count: int = COUNT) -> Path:
    for label in ("red", "blue"):
        (folder / label).mkdir(parents=True)
    for number, pixels in enumerate(noise(count, 254 - seed)):
        Image.fromarray(pixels).save(folder / ("red", "blue")[number % 2] / f"{seed}-{number}.png")
    return folder


@pytest.fixture
def photos(tmp_path) -> Path:
    return write_photos(tmp_path / "photos", 0)


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def run(photos, cache, network=None, kept=WHOLE, **more) -> list:
    extractor = Extractor(QUICK, backbone=network or QuickNetwork(), jobs=2)
    return list(described(find_photos(photos), extractor, kept, cache=cache, **more))


def same_items(found: list, expected: list) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.photo.name, one.digest) == (other.photo.name, other.digest)
        assert str(one.error) == str(other.error)
        assert (one.bag is None) == (other.bag is None)
        if one.bag is not None:
            same(one.bag, other.bag)


def files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.bag"))


def contents(cache: Path) -> dict[str, bytes]:
    return {path.relative_to(cache).as_posix(): path.read_bytes() for path in files(cache)}


# --- the same answers, with and without ------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", KINDS)
def test_what_is_yielded_does_not_depend_on_the_cache(photos, cache, kept, monkeypatch):
    monkeypatch.setenv("PATCHVOTE_CACHE", str(cache / "mine"))
    (photos / "red" / "no photo.png").write_text("nothing")
    Image.new("RGB", (64, 64), "white").save(photos / "red" / "white.png")
    plain = run(photos, False, kept=kept)
    assert not cache.exists()
    first, again = run(photos, cache, kept=kept), run(photos, cache, kept=kept)
    same_items(first, plain)
    same_items(again, plain)
    assert [item.whole is None for item in plain] == [item.error is not None for item in plain]
    assert all(item.whole is None for item in again)
    for item in first:
        if item.error is None:
            same(kept.of(item.whole), item.bag)


def test_a_run_that_was_stopped_is_continued_and_then_asks_the_network_for_nothing(photos, cache):
    network = QuickNetwork()
    stream = described(find_photos(photos), Extractor(QUICK, backbone=QuickNetwork(), jobs=1), cache=cache)
    for _ in range(4):
        next(stream)
    stream.close()
    filled, seen = Filled(COUNT), []
    run(photos, cache, network, filled=filled)
    assert (filled.kept, filled.extracted, network.calls) == (4, 6, 6)
    filled = Filled(COUNT)
    run(photos, cache, network, filled=filled, progress=lambda one: seen.append((one.done, one.photos)))
    assert (filled.kept, filled.extracted, filled.skipped, filled.damaged, network.calls) == (COUNT, 0, [], [], 6)
    assert filled.seconds > 0
    assert seen == [(number + 1, COUNT) for number in range(COUNT)]


# --- which photos and recipes share ----------------------------------------------------------------------------------


def test_a_photo_is_known_by_its_content_alone(photos, cache):
    network = QuickNetwork()
    before = {item.digest: item.bag for item in run(photos, cache)}
    moved = photos.rename(photos.with_name("elsewhere"))
    for number, path in enumerate(sorted(moved.rglob("*.png"))):
        path.rename(path.with_name(f"photo {number}.png"))
    shutil.copy(path.with_name(f"photo {number}.png"), moved / "copy.png")
    for item in run(moved, cache, network):
        same(item.bag, before[item.digest])
    assert (network.calls, len(files(cache))) == (0, COUNT)
    status = (moved / "copy.png").stat()
    Image.open(moved / "copy.png").rotate(90).save(moved / "copy.png")
    os.utime(moved / "copy.png", ns=(status.st_atime_ns, status.st_mtime_ns))  # as a copying program may
    same_items(run(moved, cache, network), run(moved, False))
    assert network.calls == 1


def test_another_recipe_network_or_way_to_keep_bags_never_shares(photos, cache):
    other = QuickNetwork()
    other.spec = dataclasses.replace(other.spec, weights="1" * 64)
    samplings = (Dense(sides=(96,)), Dense(sides=(64,), whole=False))
    extractors = [Extractor(QUICK, backbone=net) for net in (QuickNetwork(), QuickNetwork(times=2), other)]
    extractors += [Extractor(Recipe("quick", sampling), backbone=QuickNetwork()) for sampling in samplings]
    kinds = {base_of(cache, one.recipe, one.backbone.spec.fingerprint) for one in extractors}
    assert len(kinds) == len(extractors)
    found = find_photos(photos)
    for extractor in extractors:
        same_items(list(described(found, extractor, cache=cache)), list(described(found, extractor, cache=False)))
    run(photos, cache, kept=KeptMean())
    assert len(files(cache)) == COUNT * (len(extractors) + 1)
    assert sorted({path.parent.name for path in files(cache)}) == ["mean-1", "whole"]


# --- photos without a bag --------------------------------------------------------------------------------------------


def test_what_cannot_be_kept_is_an_error_of_the_photo(photos, cache):
    class Loud(QuickNetwork):
        def __call__(self, images):
            return super().__call__(images) * 1e5

    for where in (cache, False):
        for item in run(photos, where, Loud()):
            assert "does not fit into float16" in item.error.reason
            assert (item.error.name, item.bag) == (item.photo.name, None)
    assert files(cache) == []
    Image.new("RGB", (64, 64), "white").save(photos / "red" / "white.png")
    for where in (cache, False):
        filled = Filled(COUNT + 1)
        run(photos, where, kept=KeptMean(limit=0.999), filled=filled)
        assert [str(error) for error in filled.skipped] == ["red/white.png: is too bright."]


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", KINDS)
def test_one_flipped_bit_is_noticed_and_made_again(photos, cache, kept):
    expected = run(photos, cache, kept=kept)
    whole, chance = contents(cache), random.Random(7)
    for _ in range(15):
        path = chance.choice(files(cache))
        data = bytearray(path.read_bytes())
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        network, filled = QuickNetwork(), Filled(COUNT)
        same_items(run(photos, cache, network, kept=kept, filled=filled), expected)
        assert (network.calls, filled.extracted, filled.kept) == (1, 1, COUNT - 1)
        assert filled.damaged == [path.name]
        assert contents(cache) == whole


def test_torn_files_files_of_other_photos_and_other_contents_are_made_again_and_named_in_one_sentence(photos, cache):
    expected = run(photos, cache)
    torn, short, other, pipe, *rest = files(cache)
    torn.write_bytes(b"")
    short.write_bytes(b"short")
    shutil.copy(rest[-1], other)
    pipe.unlink()
    os.mkfifo(pipe)  # blocks nobody, and is no damage
    for path, content in zip(rest, (b"{}", bytes(50), (1 << 62).to_bytes(8, "little") + b"x"), strict=False):
        name = f"{path.parent.name}/{path.stem}".encode()
        path.write_bytes(xxhash.xxh3_128_digest(name + content) + content)  # with the right checksum
    filled = Filled(COUNT)
    same_items(run(photos, cache, filled=filled), expected)
    assert (len(filled.damaged), filled.extracted) == (6, 7)
    (sentence,) = damage(filled.damaged)
    assert sentence.startswith("6 files of the cache were damaged and made again: ")
    assert sum(path.name in sentence for path in files(cache)) == 3
    assert damage([]) == []


# --- several processes -----------------------------------------------------------------------------------------------


def started(photos: Path, cache: Path, delay: float) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=run, args=(photos, cache, QuickNetwork(delay)))
    process.start()
    return process


def test_two_processes_at_once_write_the_bytes_of_one(photos, tmp_path, cache):
    before = os.umask(0)
    try:
        run(photos, tmp_path / "alone")
    finally:
        os.umask(before)
    for path in (tmp_path / "alone", *(tmp_path / "alone").rglob("*")):  # for their owner alone
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    processes = [started(photos, cache, 0.005) for _ in range(2)]
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert contents(cache) == contents(tmp_path / "alone")
    assert not list(cache.rglob(".*"))


def test_a_process_that_is_killed_at_any_moment_leaves_nothing_wrong(photos, cache):
    expected, chance, partly = run(photos, False), random.Random(1), 0
    for _ in range(6):
        process = started(photos, cache, 0.01)
        wanted, until = chance.randrange(COUNT), time.monotonic() + 60
        while len(files(cache)) < wanted and time.monotonic() < until:
            time.sleep(0.001)
        process.kill()
        process.join()
        partly += 0 < len(files(cache)) < COUNT
        filled = Filled(COUNT)
        same_items(run(photos, cache, filled=filled), expected)
        assert filled.damaged == []
        clear_bags(cache)
    assert partly > 0


# --- the bound -------------------------------------------------------------------------------------------------------


def aged(paths: list[Path], days: float) -> None:
    for path in paths:
        os.utime(path, (time.time() - 86400 * days,) * 2)


def test_what_was_used_longest_ago_goes_first(photos, tmp_path, cache, monkeypatch):
    network = QuickNetwork()
    run(photos, cache)
    old = files(cache)
    run(write_photos(tmp_path / "others", 1), cache)
    new = [path for path in files(cache) if path not in old]
    aged(old, 3)
    aged(new, 2)
    run(photos, cache, network)  # a hit is a use
    assert network.calls == 0
    one_more = write_photos(tmp_path / "more", 2, count=1)
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", str(sum(path.stat().st_size for path in old) * 11 // 10))
    run(one_more, cache)
    (last,) = [path for path in files(cache) if path not in old]
    assert last not in new
    assert set(old) < set(files(cache))


@pytest.mark.parametrize("bound", [10, 0])
def test_a_collection_larger_than_the_bound_is_described_and_then_cut_down(photos, cache, bound, monkeypatch):
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", str(bound))
    same_items(run(photos, cache), run(photos, False))
    assert cache.exists() is (bound > 0)
    assert not list(cache.rglob("*"))  # nor folders


def test_the_bound_of_the_users_cache_and_of_a_folder_that_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("PATCHVOTE_CACHE_SIZE", raising=False)
    assert (bound_of(), bound_of(tmp_path)) == (5 * 10**9, None)
    monkeypatch.setenv("PATCHVOTE_CACHE_SIZE", "2 GB")
    assert bound_of() == bound_of(tmp_path) == 2 * 10**9
    for wrong in ("lots", "-1", "٣"):
        with pytest.raises(PatchvoteError, match=r"PATCHVOTE_CACHE_SIZE must be a size"):
            parse_size(wrong)
    with pytest.raises(PatchvoteError, match="must be a folder of this machine"):
        run([Image.new("RGB", (64, 64))], "s3://bucket/cache")


def test_only_files_that_patchvote_wrote_into_its_folders_are_removed(photos, tmp_path, cache):
    run(photos, cache)
    folder = files(cache)[0].parent
    outside = tmp_path / "outside-dense-0123456789ab"
    shutil.copytree(folder.parent, outside)
    (cache / "link-dense-0123456789ab").symlink_to(outside)
    (folder / f"{'0' * 64}.bag").symlink_to(files(outside)[0])
    (folder / "notes.txt").write_text("mine")
    old, young = folder / ".writing-old", folder / ".writing-young"
    for path in (old, young):
        path.write_bytes(b"half")
    aged([old], 2)  # of a process that died
    trim(cache, None)
    assert (old.exists(), young.exists()) == (False, True)
    fill(cache / "store", photos, Extractor(QUICK, backbone=QuickNetwork()))  # of `patchvote extract`
    assert clear_bags(cache) > 0
    assert {path.name for path in folder.iterdir()} == {"notes.txt", f"{'0' * 64}.bag"}
    assert len(files(outside)) == COUNT
    assert len(Store.open(cache / "store")) == COUNT


# --- whose it is, and where it cannot be -----------------------------------------------------------------------------


def test_a_full_disk_is_warned_of_once_and_done_without(photos, cache):
    with full_disk(100), pytest.warns(CacheWarning, match="File too large") as warned:
        found = run(photos, cache)
    assert len(warned) == 1
    same_items(found, run(photos, False))
    assert not list(cache.rglob(".*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(photos, cache)
    assert len(files(cache)) == COUNT


# --- workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", KINDS)
def test_what_workers_write_is_what_one_process_writes(photos, tmp_path, cache, kept):
    (photos / "red" / "no photo.png").write_text("nothing")
    expected = run(photos, tmp_path / "alone", kept=kept)
    for extracted in (COUNT, 0):
        filled = Filled(COUNT + 1)
        same_items(run(photos, cache, kept=kept, engine=LocalEngine(), filled=filled), expected)
        assert (filled.extracted, filled.kept, len(filled.skipped)) == (extracted, COUNT - extracted, 1)
    assert contents(cache) == contents(tmp_path / "alone")
    same_items(run(photos, False, kept=kept, engine=LocalEngine()), expected)


def test_what_workers_cannot_do_is_an_error(photos, tmp_path, cache):
    class Elsewhere(LocalEngine):
        def run(self, job, items):
            yield from super().run(dataclasses.replace(job, files=lambda: Folder(cache / "elsewhere", WHOLE)), items)

    (tmp_path / "file").touch()
    for source, folder, engine, says in (
        ([Photo("a", np.zeros((64, 64, 3), np.uint8))], cache, LocalEngine(), "a is an image in memory"),
        (photos, cache, Elsewhere(), "does not hold here what the workers have written"),
        (photos, tmp_path / "file" / "cache", LocalEngine(), "cannot be written by a worker"),
    ):
        with pytest.raises(StoreError, match=says):
            run(source, folder, engine=engine)


# --- a store of them -------------------------------------------------------------------------------------------------


def test_a_store_of_described_photos_is_that_of_extract_in_the_order_of_the_photos(photos, tmp_path, cache):
    (photos / "red" / "no photo.png").write_text("nothing")
    extractor = Extractor(QUICK, backbone=QuickNetwork())
    found = find_photos(photos)[::-1]
    store = store_of(described(found, extractor, cache=cache), extractor, tmp_path / "store")
    assert store.names == [photo.name for photo in found if "no photo" not in photo.name]
    assert store.labels.tolist() == [name.split("/")[0] for name in store.names]
    fill(tmp_path / "reference", photos, extractor)
    assert_same_bags(tmp_path / "store", tmp_path / "reference")
    with pytest.raises(StoreError, match=r"the only photo cannot be read. red/no photo.png: is not an image"):
        store_of(described(found[:1], extractor, cache=cache), extractor, tmp_path / "nothing")
