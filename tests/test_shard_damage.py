"""Damaged shards: noticed, named, set aside, and their photos extracted again."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from helpers.quick_network import QUICK, QuickNetwork
from helpers.shards import flip, flip_a_value, rewrite
from patchvote import NBNN, SNBNL, Bags, Extractor, LocalNBNN, MomentRidge, Recipe, Store, StoreError, fill
from patchvote.bags.entries import Entry
from patchvote.bags.shard import Shard, check_of
from patchvote.bags.shard_writing import write_shard
from patchvote.utils.tensors import header_bytes, read_header


def make_bag(seed: int) -> Bags:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    boxes = np.sort(rng.random((n, 4), dtype=np.float32))
    return Bags(rng.normal(size=(n, 5)).astype(np.float16), np.array([0, n]), boxes, rng.integers(0, 3, n))


def write_store(folder: Path, seeds=range(8)) -> Path:
    folder.mkdir(exist_ok=True)
    entries = [Entry(f"photo {seed}.jpg", "ab"[seed % 2], f"digest {seed}", 7, 10**18) for seed in seeds]
    return write_shard(folder, Recipe(), "f", entries, [make_bag(seed) for seed in seeds], ["gone.jpg"])


def everything(folder: Path) -> tuple:
    """All that can be read of a store, whole and photo by photo."""
    store = Store.open(folder)
    parts = [store.load(), *(store.load([index]) for index in range(len(store)))]
    arrays = [
        (bags.values.tobytes(), bags.boxes.tobytes(), bags.level.tobytes(), bags.offsets.tolist(), labels.tolist())
        for bags, labels in parts
    ]
    return store.names, [vars(entry) for entry in store.entries], store.recipe, store.fingerprint, arrays


def test_of_300_flipped_bits_none_changes_what_is_read_unnoticed(tmp_path):
    path = write_store(tmp_path / "store")
    whole, expected = path.read_bytes(), everything(tmp_path / "store")
    chance, noticed = random.Random(15), 0
    for _ in range(300):
        flip(path, chance.randrange(8 * len(whole)))
        try:
            assert everything(tmp_path / "store") == expected
        except StoreError:
            noticed += 1
        path.write_bytes(whole)
    assert noticed >= 290
    assert everything(tmp_path / "store") == expected


def test_a_photo_that_is_read_alone_is_verified_too_and_named_with_its_shard(tmp_path):
    path = write_store(tmp_path / "store")
    data = path.read_bytes()
    flip(path, 8 * data.index(make_bag(3).values.tobytes()) + 6)
    store = Store.open(tmp_path / "store")
    with pytest.raises(StoreError, match=rf"{path.name} is damaged: what it holds of photo 3.jpg"):
        store.load([3])
    with pytest.raises(StoreError, match=rf"{path.name} is damaged: what it holds of photo 3.jpg"):
        store.load()
    np.testing.assert_array_equal(store.load([4])[0].values, make_bag(4).values.astype(np.float32))
    assert path.exists()  # whoever only reads a store changes nothing in it


def test_of_many_damaged_shards_the_first_is_named_and_no_thread_is_left(tmp_path):
    paths = [write_store(tmp_path / "store", range(first, first + 4)) for first in range(0, 40, 4)]
    store = Store.open(tmp_path / "store")
    threads = threading.active_count()
    for number in (4, 5, 7):
        flip_a_value(paths[number])
    paths[6].unlink()
    for _ in range(5):
        with pytest.raises(StoreError, match=rf"{paths[4].name} is damaged: what it holds of photo 16.jpg"):
            store.load()
    assert threading.active_count() == threads


def test_what_is_no_number_in_a_shard_with_the_right_checksum_is_not_taken_for_one(tmp_path):
    for seed, value in ((1, np.nan), (2, np.inf), (3, 1.0)):
        bag = make_bag(seed)
        bag.values[0, 2] = value
        (tmp_path / "store").mkdir(exist_ok=True)
        write_shard(tmp_path / "store", Recipe(), "f", [Entry(f"{seed}.jpg", "ab"[seed % 2], f"{seed}")], [bag])
    store = Store.open(tmp_path / "store")
    values = [store.load([index])[0].values[0, 2] for index in range(3)]
    np.testing.assert_array_equal(values, [np.nan, np.inf, 1.0])
    for voter in (NBNN(), LocalNBNN(), SNBNL(), MomentRidge()):
        with pytest.raises(ValueError, match="bag 0 has a descriptor .* with NaN or infinity"):
            voter.fit(store)


# --- photos at hand -----------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    for label, colour in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for index in range(6):
            pixels = rng.normal(colour, 30, (64, 64, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{index}.png")
    return tmp_path / "photos"


def test_a_run_that_takes_over_a_damaged_bag_extracts_it_and_all_beside_it_again(photos, tmp_path):
    network = QuickNetwork()
    extractor = Extractor(QUICK, backbone=network)
    fill(tmp_path / "store", photos, extractor)
    expected = {name: bag.values.tolist() for name, bag, _ in Store.open(tmp_path / "store").images()}
    (path,) = (tmp_path / "store").iterdir()
    flip(path, 8 * (len(path.read_bytes()) - 40))  # in the checksums, so that every photo is concerned
    for index in range(8):
        flip(path, 8 * (len(path.read_bytes()) - 8 * (index + 1)))
    moved = photos / "blue" / "moved.png"
    (photos / "red" / "5.png").rename(moved)
    filled = fill(tmp_path / "store", photos, extractor)
    assert filled.damaged
    assert (filled.extracted, filled.kept, len(filled.skipped)) == (12, 0, 0)
    found = {name: bag.values.tolist() for name, bag, _ in Store.open(tmp_path / "store").images()}
    assert found.pop("blue/moved.png") == expected.pop("red/5.png")
    assert found == expected


def test_a_damaged_header_is_set_aside_by_the_next_run(photos, tmp_path):
    extractor = Extractor(QUICK, backbone=QuickNetwork())
    fill(tmp_path / "store", photos, extractor)
    (path,) = (tmp_path / "store").iterdir()
    flip(path, 8 * 200)
    filled = fill(tmp_path / "store", photos, extractor)
    assert filled.extracted == 12
    assert "its header is not what was written. It was set aside" in filled.damaged[0]
    assert [other.name for other in path.parent.glob("*.damaged")] == [f"{path.name}.damaged"]


def test_what_is_not_a_shard_of_ours_is_left_where_it_is(photos, tmp_path):
    extractor = Extractor(QUICK, backbone=QuickNetwork())
    fill(tmp_path / "store", photos, extractor)
    save_file({"weights": np.zeros(3, np.float32)}, tmp_path / "store" / "model.safetensors")
    (tmp_path / "store" / "notes.safetensors").write_text("hello")
    filled = fill(tmp_path / "store", photos, extractor)
    assert filled.damaged == []
    assert (tmp_path / "store" / "model.safetensors").exists()
    assert (tmp_path / "store" / "notes.safetensors").read_text() == "hello"


def test_a_shard_with_settings_of_a_later_version_is_not_taken_for_damaged(photos, tmp_path, monkeypatch):
    extractor = Extractor(QUICK, backbone=QuickNetwork())
    fill(tmp_path / "store", photos, extractor)
    with monkeypatch.context() as patch:
        told = json.loads(QUICK.to_json())
        told["sampling"]["sides_of_the_future"] = 3
        patch.setattr(Recipe, "to_json", lambda self: json.dumps(told))
        write_shard(tmp_path / "store", QUICK, "f", [Entry("x", None, "d")], [make_bag(1)])
    assert fill(tmp_path / "store", photos, extractor).damaged == []
    assert "metadata this version does not understand" in Store.open(tmp_path / "store").damaged[0]


def test_a_damaged_bag_is_extracted_again_without_its_file_as_the_message_says(photos, tmp_path):
    extractor = Extractor(QUICK, backbone=QuickNetwork())
    fill(tmp_path / "store", photos, extractor)
    before = everything(tmp_path / "store")
    (path,) = (tmp_path / "store").iterdir()
    flip_a_value(path)
    with pytest.raises(StoreError, match="Without this file, `patchvote extract` extracts its photos again"):
        everything(tmp_path / "store")
    path.unlink()
    assert fill(tmp_path / "store", photos, extractor).extracted == 12
    assert everything(tmp_path / "store") == before


def test_a_store_of_another_version_is_told_and_its_photos_are_extracted_again(photos, tmp_path):
    extractor = Extractor(QUICK, backbone=QuickNetwork())
    fill(tmp_path / "store", photos, extractor)
    (path,) = (tmp_path / "store").iterdir()
    rewrite(path, metadata={"format": "patchvote-bags-1"})
    with pytest.raises(StoreError, match="another version of patchvote made it. Extract its photos again"):
        Store.open(tmp_path / "store")
    filled = fill(tmp_path / "store", photos, extractor)
    assert (filled.extracted, filled.damaged, path.exists()) == (12, [], True)


# --- hostile headers ----------------------------------------------------------------------------------------------


def with_header(data: bytes, change) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    line = change(header)
    line = line if isinstance(line, bytes) else json.dumps(header if line is None else line).encode()
    return len(line).to_bytes(8, "little") + line + data[8 + length :]


def set_in(*path):
    *keys, last, value = path

    def change(header):
        place = header
        for key in keys:
            place = place[key]
        place[last] = value

    return change


WRONG = (None, -1, 1.5, 10**30, True, "x", [], {}, [[]], "1" * 5000)
HOSTILE = {
    "not JSON": lambda header: b"{" * 50,
    "nested deeply": lambda header: b"[" * 1_000_000,
    "a list": lambda header: [header],
    "many arrays": lambda header: {**header, **{f"t{i}": header["level"] for i in range(130_000)}},
    "much metadata": set_in("__metadata__", "more", "x" * (65 << 20)),
    "many metadata": set_in("__metadata__", {f"k{i}": "" for i in range(130_000)}),
    "many entries": set_in("__metadata__", "entries", json.dumps([{"name": "", "label": "", "digest": ""}] * 130_000)),
    "entries nested deeply": set_in("__metadata__", "entries", "[" * 1_000_000),
    "a number without end": set_in("__metadata__", "number", "9" * 100_000),
    **{f"metadata {value!r:.9}": set_in("__metadata__", value) for value in WRONG},
    **{
        f"{key} {value!r:.9}": set_in("__metadata__", key, value)
        for key in ("format", "recipe", "entries", "forgotten", "number", "id", "owner", "fingerprint")
        for value in WRONG
    },
    **{
        f"{name} {key} {value!r:.9}": set_in(name, key, value)
        for name in ("values", "offsets", "boxes", "level")
        for key in ("dtype", "shape", "data_offsets")
        for value in (*WRONG, [0, 10**30], [10**15, 2], [-1, -2], [1, True], ["0", "1"])
    },
}


def test_hostile_headers_are_refused_in_words_and_in_no_time(tmp_path):
    path = write_store(tmp_path / "store")
    whole, slowest = path.read_bytes(), 0.0
    for what, change in HOSTILE.items():
        path.write_bytes(with_header(whole, change))
        before = time.process_time()
        with pytest.raises(StoreError) as error:
            pytest.fail(f"{what} is taken: {Shard.open(path)}")
        assert len(str(error.value)) < 500, what
        slowest = max(slowest, time.process_time() - before)
    assert slowest < 5  # seconds; half of one where nothing else runs


@pytest.mark.parametrize("name", ["offsets", "checks"])
def test_an_array_that_claims_more_photos_than_the_header_names_is_not_read(tmp_path, name):
    path = write_store(tmp_path / "store")
    count = 1 << 37  # of eight bytes: more than any machine has
    place = {name: {"dtype": "I64", "shape": [count], "data_offsets": [0, 8 * count]}}
    if name == "checks":
        place |= {"offsets": {"dtype": "I64", "shape": [9], "data_offsets": [8 * count, 8 * count + 72]}}
    path.write_bytes(with_header(path.read_bytes(), lambda header: {"__metadata__": header["__metadata__"], **place}))
    with path.open("r+b") as file:
        end = 8 + int.from_bytes(file.read(8), "little")
        file.truncate(end + max(entry["data_offsets"][1] for entry in place.values()))  # takes no room on the disk
    with pytest.raises(StoreError, match="contradicts itself: its header does not have as many photos"):
        Shard.open(path)
    shutil.rmtree(tmp_path / "store")


def test_a_header_that_claims_to_be_endless_is_not_read(tmp_path):
    path = write_store(tmp_path / "store")
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # takes no room on the disk
        file.write((1 << 39).to_bytes(8, "little"))
    with pytest.raises(StoreError, match="header has 549,755,813,888 bytes"):
        Shard.open(path)
    shutil.rmtree(tmp_path / "store")


@pytest.mark.parametrize("features", [0, 1 << 45])
def test_photos_without_descriptors_cannot_claim_any_number_of_features(tmp_path, features):
    path = write_store(tmp_path / "store")
    arrays = load_file(path)
    none = {name: arrays[name][:0] for name in ("boxes", "level")} | {"offsets": np.zeros_like(arrays["offsets"])}
    rewrite(path, none | {"values": np.empty((0, features), np.float16)})
    with pytest.raises(StoreError, match="contradicts itself"):
        Shard.open(path)


def test_sums_of_squares_below_zero_are_refused_though_the_checksum_is_right(tmp_path):
    path = write_store(tmp_path / "store")
    with path.open("rb") as file:
        places, header = read_header(file)[1], header_bytes(file)
    data, arrays = bytearray(path.read_bytes()), load_file(path)
    arrays["moments"][1, 0] = -5
    data[places["moments"].start : places["moments"].stop] = arrays["moments"].tobytes()
    right = check_of([header, arrays["offsets"], arrays["moments"]])
    first = places["checks"].start
    data[first : first + 8] = right.to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(StoreError, match="contradicts itself"):
        Shard.open(path)
