"""A store and the views of it: what they hold, what is read of them, and what they say."""

from __future__ import annotations

import json
import random
import shutil
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from helpers.shards import changed_header, flip, make_bag, put, rewrite, same
from patchvote import Bags, Recipe, Store, StoreError
from patchvote.bags import shards
from patchvote.bags.shards import Entry, Shard, shard_files, write_shard
from patchvote.bags.store import thinned
from patchvote.errors import DamagedShardError
from patchvote.utils.arrays import Moments, to_float32

RECIPE = Recipe()
SHARDS = ([4, 1, 7], [0, 6], [5, 3, 2])  # numbers of photos, in the order in which they are on disk


@pytest.fixture
def folder(tmp_path):
    """A store of eight photos in three shards."""
    for seeds in SHARDS:
        put(tmp_path / "store", seeds)
    return tmp_path / "store"


def forget(folder, names) -> None:
    write_shard(folder, RECIPE, "f", [], [Bags(np.empty((0, 5), np.float16), [0])], names)


# --- what a store says ----------------------------------------------------------------------------------------------


def test_a_store_says_what_it_holds(folder):
    put(folder, [3, 9], label=lambda seed: None)
    (folder / "torn.safetensors").write_bytes(b"half")
    (folder / "old.safetensors.damaged").write_bytes(b"set aside before")
    (folder / ".writing-host@1-ab").write_bytes(b"half a shard")
    store = Store.open(str(folder))
    assert store.names == [f"{seed:03d}.jpg" for seed in (*range(8), 9)]
    assert store.labels.tolist() == ["a", "b", "a", None, "a", "b", "a", "b", None]
    assert store.entries[1] == Entry("001.jpg", "b", "digest 1")
    assert store.sizes.tolist() == [len(make_bag(seed).values) for seed in (*range(8), 9)]
    summary = json.loads(json.dumps(store.summary()))
    assert "torn.safetensors" in summary.pop("damaged")[0]
    told = {"photos": 9, "classes": {"a": 4, "b": 3}, "without_label": 2, "descriptors": int(store.sizes.sum())}
    told |= {"shards": 4, "superseded": 1, "set_aside": ["old.safetensors.damaged"], "recipe": RECIPE.to_json()}
    assert summary.items() >= told.items()
    part = store.only(["006.jpg", "001.jpg", "005.jpg"])
    assert part.names == ["006.jpg", "001.jpg", "005.jpg"]
    assert part.labels.tolist() == ["a", "b", "b"]
    assert part.entries == [store.entries[seed] for seed in (6, 1, 5)]
    same(part.load()[0], Bags.join([make_bag(seed) for seed in (6, 1, 5)]))


def test_the_newest_bag_of_a_photo_counts_and_a_forgotten_photo_is_gone_until_it_comes_again(folder):
    put(folder, [3, 40], label=lambda seed: "new")
    forget(folder, ["003.jpg", "004.jpg", "never"])
    put(folder, [4])
    store = Store.open(folder)
    assert store.names == [f"{seed:03d}.jpg" for seed in (0, 1, 2, 4, 5, 6, 7, 40)]
    assert store.labels[-1] == "new"
    forget(folder, store.names)
    with pytest.raises(StoreError, match="holds no photos yet"):
        Store.open(folder)


def test_what_is_no_store_is_refused_with_the_reason(folder, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.safetensors").write_text("hello")
    for number, other in enumerate(({"fingerprint": "g"}, {"dim": 6}, {"recipe": Recipe(activation="before")})):
        shutil.copytree(folder, tmp_path / str(number))
        put(tmp_path / str(number), [20], **other)
    for name, reason in {
        "none": "no such folder",
        "file": "it is a file",
        "bad": "every file in it is damaged",
        **dict.fromkeys("012", "descriptors of two kinds"),
    }.items():
        with pytest.raises(StoreError, match=reason):
            Store.open(tmp_path / name)
    save_file({"weights": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(DamagedShardError, match=r"^model.safetensors is damaged, or no part of a store: "):
        Shard.open(tmp_path / "model.safetensors")


# --- reading --------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 29), min_size=1), st.sampled_from([np.float16, np.float32, np.float64]))
def test_any_photos_can_be_read_in_any_order_and_type(tmp_path_factory, indices, dtype):
    folder = tmp_path_factory.getbasetemp() / "any"
    if not folder.exists():
        put(folder, range(15))
        put(folder, range(15, 30))
    bags, labels = Store.open(folder).load(indices, dtype)
    same(bags, Bags.join([make_bag(seed) for seed in indices]))
    assert bags.values.dtype == dtype
    assert labels.tolist() == ["ab"[seed % 2] for seed in indices]


def test_photos_that_are_not_there_are_refused(folder):
    store = Store.open(folder)
    with pytest.raises(StoreError, match="no photos were requested"):
        store.load([])
    for indices in ([8], [0.5], ["a"]):
        with pytest.raises(IndexError):
            store.load(indices)
    with pytest.raises(StoreError, match=r"does not hold nobody\.jpg"):
        store.only(["001.jpg", "nobody.jpg"])
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="can no longer be read"):
        store.load()


def test_shuffled_blocks_hold_every_photo_once_in_bounded_size(tmp_path):
    seeds = list(range(30))
    random.Random(0).shuffle(seeds)
    put(tmp_path, seeds)
    store = Store.open(tmp_path)

    everything = store.load()[0].values
    orders = []
    for seed in (None, 0, 1, 1):
        blocks = list(store.blocks(20, seed=seed))
        assert all(len(bags.values) <= 20 for bags, _ in blocks)
        rows = np.concatenate([bags.values for bags, _ in blocks])
        assert sorted(rows.tolist()) == sorted(everything.tolist())
        orders.append(rows.tolist())
    assert orders[1] != orders[2] == orders[3]
    assert len(list(store.blocks(1))) == 30  # a photo larger than a block is a block


def test_opening_does_not_read_the_descriptors_and_blocks_take_bounded_memory(tmp_path):
    for start in range(0, 40, 10):
        put(tmp_path / "store", range(start, start + 10), size=500, dim=256)
    size = 40 * 500 * 256 * 2
    to_float32(np.zeros(1, np.float16))  # loads ONNX Runtime, which is not to count
    tracemalloc.start()
    store = Store.open(tmp_path / "store")
    assert tracemalloc.get_traced_memory()[1] < size / 10
    tracemalloc.reset_peak()
    for _ in store.blocks(2000, seed=0):
        pass
    # Two blocks of 2,000 float32 descriptors: the one in the caller's hands, and the next one being read.
    assert tracemalloc.get_traced_memory()[1] < 2.5 * 2000 * 256 * 4
    tracemalloc.stop()


# --- moments, checksums and parts -----------------------------------------------------------------------------------


def moments_of(bags: Bags) -> Moments:
    found = Moments()
    found.update(np.concatenate([bags.values, (bags.boxes[:, :2] + bags.boxes[:, 2:]) / 2], axis=1))
    return found


def test_moments_are_those_of_the_shards_that_are_wanted_whole(folder):
    bag = make_bag(40)
    bag.values[0, 0] = np.inf  # moments that are not finite are not used
    write_shard(folder, RECIPE, "f", [Entry("z.jpg", None, "40")], [bag])
    store = Store.open(folder)
    for wanted, used, left in (
        (np.arange(9), range(8), [8]),
        (np.array([6, 3, 0, 2]), [0, 6], [3, 2]),  # all of the second shard, and two thirds of the third
    ):
        found, rest = store.moments(wanted)
        expected = moments_of(store.load(list(used))[0])
        assert (found.weight, rest.tolist()) == (expected.weight, left)
        np.testing.assert_allclose(found.as_array(), expected.as_array(), rtol=1e-5, atol=1e-5)
    none, left = store.moments(np.array([1, 1, 4]))  # as many as the first shard has, but one of them twice
    assert (none.weight, left.tolist()) == (0, [1, 1, 4])


def test_the_checksum_of_a_store_is_that_of_its_bags_however_they_are_spread_over_shards(folder, tmp_path):
    content = Store.open(folder).content()
    put(tmp_path / "one", range(8))
    one = Store.open(tmp_path / "one")
    assert one.content() == one.only(one.names).content() == content
    put(tmp_path / "another network", range(8), fingerprint="g")
    others = [one.only(one.names[::-1]), one.only(one.names[:7]), Store.open(tmp_path / "another network")]
    assert content not in [other.content() for other in others]
    write_shard(folder, RECIPE, "f", [Entry("003.jpg", "b", "digest 3")], [make_bag(50)])
    assert Store.open(folder).content() != content


def test_of_every_bag_some_descriptors_are_read_the_first_always_wherever_they_are_on_disk(tmp_path, monkeypatch):
    rng, found = np.random.default_rng(0), []
    bags = [Bags.of([rng.normal(size=(size, 6)).astype(np.float16)]) for size in rng.integers(5, 400, 30)]
    for order in (np.arange(30), rng.permutation(30)):
        for part in np.array_split(order, 4):
            entries = [Entry(f"{index:03d}", "ab"[index % 2], str(index)) for index in part]
            write_shard(tmp_path, RECIPE, "f", entries, [bags[index] for index in part])
        store = Store.open(tmp_path)
        with monkeypatch.context() as patch:
            np.testing.assert_array_equal(thinned(store, 0).values, store.load()[0].values)  # of few photos, all
            patch.setattr("patchvote.bags.store._MAX_TRAINING_DESCRIPTORS", 300)
            found += [thinned(store, 0), thinned(store, 1)]
    full = store.load()[0]
    assert found[0].sizes.tolist() == np.minimum(full.sizes, 24).tolist()
    for ours, theirs in zip(found[0], full, strict=True):
        rows = [np.flatnonzero((theirs.values == value).all(axis=1)).item() for value in ours.values]
        assert rows[0] == 0
        assert rows == sorted(set(rows))
    np.testing.assert_array_equal(found[2].values, found[0].values)
    assert (found[1].values != found[0].values).any()


# --- one shard: its name, damage, and hostile headers -----------------------------------------------------------------


def test_shards_are_files_with_the_ending_the_oldest_first_and_a_clock_that_went_back_changes_nothing(
    tmp_path, monkeypatch
):
    first = put(tmp_path, [1])
    for name in (".hidden.safetensors", "notes.txt", "x.safetensors.damaged", "zzz.safetensors"):
        (tmp_path / name).touch()
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    second = put(tmp_path, [1])
    assert shard_files(tmp_path) == [tmp_path / "zzz.safetensors", first, second]


def everything(folder: Path) -> tuple:
    """All that can be read of a store, whole and photo by photo."""
    store = Store.open(folder)
    parts = [store.load(), *(store.load([index]) for index in range(len(store)))]
    arrays = [
        ([array.tobytes() for array in (bags.values, bags.boxes, bags.level, bags.offsets)], labels.tolist())
        for bags, labels in parts
    ]
    return store.names, store.entries, store.recipe, store.fingerprint, arrays


def test_of_300_flipped_bits_none_changes_what_is_read_unnoticed(tmp_path):
    path = put(tmp_path, range(8))
    whole, expected = path.read_bytes(), everything(tmp_path)
    chance, noticed = random.Random(15), 0
    for _ in range(300):
        flip(path, chance.randrange(8 * len(whole)))
        try:
            assert everything(tmp_path) == expected
        except StoreError:
            noticed += 1
        path.write_bytes(whole)
    assert noticed >= 290
    assert everything(tmp_path) == expected


@pytest.mark.parametrize("change", [{"format": "patchvote-bags-9"}, {"recipe": "{}"}])
def test_a_header_of_another_version_is_no_damage(tmp_path, change):
    path = put(tmp_path, [1])
    changed_header(path, lambda header: header["__metadata__"].update(change))
    with pytest.raises(StoreError, match="version") as error:
        Shard.open(path)
    assert not isinstance(error.value, DamagedShardError)


def test_a_shard_that_contradicts_itself_is_damage_even_with_the_right_checksum(tmp_path, monkeypatch):
    path = put(tmp_path, range(8))
    whole, arrays = path.read_bytes(), load_file(path)
    offsets, moments = arrays["offsets"], arrays["moments"].copy()
    moments[1, 0] = -5  # a sum of squares
    none = {name: arrays[name][:0] for name in ("boxes", "level")} | {"offsets": np.zeros_like(offsets)}
    entry = {"name": "a", "label": None, "digest": "1", "size": 0, "modified": 0}
    changes = [
        ({"offsets": offsets[:-1]}, {}),
        ({"offsets": offsets[::-1].copy()}, {}),
        ({"offsets": offsets + 1}, {}),
        ({"boxes": arrays["boxes"][:-1]}, {}),
        ({"moments": moments}, {}),
        (none | {"values": np.empty((0, 1 << 45), np.float16)}, {}),
        ({}, {"entries": json.dumps([entry] * 7)}),
        *(({}, {"entries": json.dumps([entry | {key: 7}] * 8)}) for key in ("name", "label", "digest")),
        ({}, {"entries": json.dumps([entry | {"size": 10**30}] * 8)}),
        *(({}, {"entries": text}) for text in ("[{}]", "nonsense", "[" * 100_000)),
        ({}, {"forgotten": "[7]"}),
    ]
    for array, metadata in changes:
        rewrite(path, array, metadata)
        with pytest.raises(DamagedShardError):
            Shard.open(path)
        path.write_bytes(whole)
    rewrite(path)
    Shard.open(path)
    monkeypatch.setattr(shards, "_MAX_FEATURES", 4)
    with pytest.raises(DamagedShardError, match="contradicts itself"):
        Shard.open(path)


WRONG = (None, -1, 1.5, 10**30, True, "x", [], {}, "1" * 5000)
SHAPES = (*WRONG, [[]], [0, 10**30], [10**15, 2], [-1, -2], [1, True], ["0", "1"])
PLACES = [(("__metadata__",), WRONG), *((("__metadata__", key), WRONG) for key in ("format", "recipe", "entries"))]
PLACES += [((name, key), SHAPES) for name in ("values", "offsets") for key in ("dtype", "shape", "data_offsets")]


def hostile_headers(header: dict):
    yield from (b"{" * 50, b"[" * 1_000_000, json.dumps([header]).encode())
    yield json.dumps(header | {f"t{i}": header["level"] for i in range(130_000)}).encode()
    entries = json.dumps([{"name": "", "label": "", "digest": ""}] * 130_000)
    many = {f"k{i}": "" for i in range(130_000)}
    for more in ({"more": "x" * (65 << 20)}, many, {"entries": entries}, {"entries": "[" * 1_000_000}):
        yield json.dumps(header | {"__metadata__": header["__metadata__"] | more}).encode()
    for (*keys, last), values in PLACES:
        place = header[keys[0]] if keys else header
        for value in values:
            yield json.dumps(header | ({keys[0]: place | {last: value}} if keys else {last: value})).encode()


def test_hostile_headers_are_refused_in_words(tmp_path):
    path = put(tmp_path, range(8))
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    for line in hostile_headers(json.loads(whole[8 : 8 + length])):
        path.write_bytes(len(line).to_bytes(8, "little") + line + whole[8 + length :])
        with pytest.raises(StoreError) as error:
            pytest.fail(f"{line[:200]} is taken: {Shard.open(path)}")
        assert len(str(error.value)) < 500
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # takes no room on the disk
        file.write((1 << 39).to_bytes(8, "little"))  # an endless header
    with pytest.raises(StoreError, match="is damaged"):
        Shard.open(path)
    path.unlink()
