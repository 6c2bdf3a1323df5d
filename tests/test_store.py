"""A store and the views of it: what they hold, what is read of them, and what they say."""

from __future__ import annotations

import json
import random
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
from patchvote.bags.shards import Entry, Shard, is_own_name, shard_files, write_shard
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
    sizes = [len(make_bag(seed).values) for seed in (*range(8), 9)]
    store = Store.open(str(folder))
    assert repr(store) == f"<Store: 9 photos, {sum(sizes)} descriptors of 5 features>"
    assert store.names == [f"{seed:03d}.jpg" for seed in (*range(8), 9)]
    assert store.labels.tolist() == ["a", "b", "a", None, "a", "b", "a", "b", None]
    assert store.entries[1] == Entry("001.jpg", "b", "digest 1")
    assert store.sizes.tolist() == sizes
    summary = json.loads(json.dumps(store.summary()))
    assert "torn.safetensors" in summary.pop("damaged")[0]
    assert summary == {
        "store": str(folder),
        "photos": 9,
        "classes": {"a": 4, "b": 3},
        "without_label": 2,
        "descriptors": sum(sizes),
        "descriptors_per_photo": [min(sizes), pytest.approx(sum(sizes) / 9), max(sizes)],
        "features": 5,
        "dtype": ["float16"],
        "network": RECIPE.network,
        "fingerprint": "f",
        "recipe": RECIPE.to_json(),
        "shards": 4,
        "bytes": sum(path.stat().st_size for path in folder.glob("*-*.safetensors")),
        "superseded": 1,
        "set_aside": ["old.safetensors.damaged"],
    }


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


@pytest.mark.parametrize("other", [{"fingerprint": "g"}, {"dim": 6}, {"recipe": Recipe(activation="before")}])
def test_shards_of_two_kinds_are_refused(folder, other):
    put(folder, [20], **other)
    with pytest.raises(StoreError, match="descriptors of two kinds"):
        Store.open(folder)


def test_what_is_no_store_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.safetensors").write_text("hello")
    for name, reason in {
        "none": "no such folder",
        "file": "it is a file",
        "empty": "no descriptors",
        "bad": "every file in it is damaged",
    }.items():
        with pytest.raises(StoreError, match=reason):
            Store.open(tmp_path / name)


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

    def rounds(**kwargs):
        return [(bags.values.tolist(), labels.tolist()) for bags, labels in store.blocks(20, **kwargs)]

    everything = store.load()[0].values
    for seed in (None, 0, 1):
        blocks = list(store.blocks(20, seed=seed))
        assert all(len(bags.values) <= 20 for bags, _ in blocks)
        rows = np.concatenate([bags.values for bags, _ in blocks])
        assert sorted(rows.tolist()) == sorted(everything.tolist())
    assert rounds(seed=0) == rounds(seed=0) != rounds(seed=1)
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


def test_a_view_has_everything_of_its_photos_in_its_own_order(folder):
    store = Store.open(folder)
    part = store.only(["006.jpg", "001.jpg", "005.jpg"])
    assert part.names == ["006.jpg", "001.jpg", "005.jpg"]
    assert part.labels.tolist() == ["a", "b", "b"]
    assert part.entries == [store.entries[seed] for seed in (6, 1, 5)]
    same(part.load()[0], Bags.join([make_bag(seed) for seed in (6, 1, 5)]))
    assert (len(store), store.names[1]) == (8, "001.jpg")  # as it was


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


def thinned_store(folder, order, seed=0):
    rng = np.random.default_rng(0)
    bags = [Bags.of([rng.normal(size=(size, 6)).astype(np.float16)]) for size in rng.integers(5, 400, 30)]
    folder.mkdir()
    for part in np.array_split(order, 4):
        entries = [Entry(f"{index:03d}", "ab"[index % 2], str(index)) for index in part]
        write_shard(folder, RECIPE, "f", entries, [bags[index] for index in part])
    return Store.open(folder)


def test_of_every_bag_some_descriptors_are_read_the_first_always_wherever_they_are_on_disk(tmp_path, monkeypatch):
    store = thinned_store(tmp_path / "a", np.arange(30))
    np.testing.assert_array_equal(thinned(store, 0).values, store.load()[0].values)  # of few photos, all
    monkeypatch.setattr("patchvote.bags.store._MAX_TRAINING_DESCRIPTORS", 300)
    thin, (full, _) = thinned(store, 0), store.load()
    assert thin.sizes.tolist() == np.minimum(full.sizes, 24).tolist()
    for ours, theirs in zip(thin, full, strict=True):
        rows = [np.flatnonzero((theirs.values == value).all(axis=1)).item() for value in ours.values]
        assert rows[0] == 0
        assert rows == sorted(set(rows))
    other = thinned_store(tmp_path / "b", np.random.default_rng(1).permutation(30))
    np.testing.assert_array_equal(thinned(other, 0).values, thin.values)
    assert (thinned(store, 1).values != thin.values).any()


# --- one shard: its name, damage, and hostile headers -----------------------------------------------------------------


# --- writing and reading --------------------------------------------------------------------------------------------


def test_shards_are_files_with_the_ending_the_oldest_first_and_a_clock_that_went_back_changes_nothing(
    tmp_path, monkeypatch
):
    first = put(tmp_path, [1])
    for name in (".hidden.safetensors", "notes.txt", "x.safetensors.damaged", "zzz.safetensors"):
        (tmp_path / name).touch()
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    second = put(tmp_path, [1])
    assert shard_files(tmp_path) == [tmp_path / "zzz.safetensors", first, second]
    assert [is_own_name(path) for path in (second, tmp_path / "zzz.safetensors", Path("1-2-3.safetensors"))] == [
        True,
        False,
        False,
    ]


# --- damage ---------------------------------------------------------------------------------------------------------


def everything(folder: Path) -> tuple:
    """All that can be read of a store, whole and photo by photo."""
    store = Store.open(folder)
    parts = [store.load(), *(store.load([index]) for index in range(len(store)))]
    arrays = [
        (bags.values.tobytes(), bags.boxes.tobytes(), bags.level.tobytes(), bags.offsets.tolist(), labels.tolist())
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


def test_a_file_that_is_no_shard_is_refused_with_the_reason(tmp_path):
    with pytest.raises(StoreError, match=r"^none.safetensors cannot be read: No such file or directory\.$"):
        Shard.open(tmp_path / "none.safetensors")
    save_file({"weights": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "text.safetensors").write_text("hello, this is not a shard")
    for name in ("model", "text"):
        with pytest.raises(DamagedShardError, match=f"^{name}.safetensors is damaged, or no part of a store: "):
            Shard.open(tmp_path / f"{name}.safetensors")


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
        ({"offsets": offsets + np.arange(9)}, {}),
        ({"offsets": offsets + 1}, {}),
        ({"boxes": arrays["boxes"][:-1]}, {}),
        ({"moments": moments}, {}),
        (none | {"values": np.empty((0, 0), np.float16)}, {}),
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


# --- hostile headers ------------------------------------------------------------------------------------------------


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
    **{f"metadata {value!r:.9}": set_in("__metadata__", value) for value in WRONG},
    **{
        f"{key} {value!r:.9}": set_in("__metadata__", key, value)
        for key in ("format", "recipe", "entries")
        for value in WRONG
    },
    **{
        f"{name} {key} {value!r:.9}": set_in(name, key, value)
        for name in ("values", "offsets")
        for key in ("dtype", "shape", "data_offsets")
        for value in (*WRONG, [0, 10**30], [10**15, 2], [-1, -2], [1, True], ["0", "1"])
    },
}


def test_hostile_headers_are_refused_in_words_and_in_no_time(tmp_path):
    path = put(tmp_path, range(8))
    whole, slowest = path.read_bytes(), 0.0
    for what, change in HOSTILE.items():
        path.write_bytes(with_header(whole, change))
        before = time.process_time()
        with pytest.raises(StoreError) as error:
            pytest.fail(f"{what} is taken: {Shard.open(path)}")
        assert len(str(error.value)) < 500, what
        slowest = max(slowest, time.process_time() - before)
    assert slowest < 5  # seconds; half of one where nothing else runs


def test_a_header_that_claims_to_be_endless_is_not_read(tmp_path):
    path = put(tmp_path, range(8))
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # takes no room on the disk
        file.write((1 << 39).to_bytes(8, "little"))
    with pytest.raises(StoreError, match="is damaged"):
        Shard.open(path)
    path.unlink()
