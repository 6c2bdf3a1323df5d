"""A store and the views of it: what they hold, what is read of them, and what they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from patchvote import Bags, Dense, Recipe, Store, StoreError
from patchvote.bags.entries import Entry
from patchvote.bags.shard import Shard
from patchvote.bags.shard_writing import write_shard
from patchvote.utils.arrays import Moments
from test_store import RECIPE, make_bag, put, same

SHARDS = ([4, 1, 7], [0, 6], [5, 3, 2])  # numbers of photos, in the order in which they are on disk


@pytest.fixture
def folder(tmp_path) -> Path:
    """A store of eight photos in three shards."""
    for seeds in SHARDS:
        put(tmp_path / "store", seeds)
    return tmp_path / "store"


def entry(seed: int, name: str = "", label: str | None = "x") -> Entry:
    return Entry(name or f"new name of {seed}", label, f"digest {seed}")


def moments_of(bags: Bags) -> Moments:
    found = Moments()
    found.update(np.concatenate([bags.values, (bags.boxes[:, :2] + bags.boxes[:, 2:]) / 2], axis=1))
    return found


def close(one: Moments, other: Moments) -> None:
    assert one.weight == other.weight
    np.testing.assert_allclose(one.as_array(), other.as_array(), rtol=1e-5, atol=1e-5)


# --- what a store says ----------------------------------------------------------------------------------------------


def test_a_store_says_what_it_holds(folder):
    store = Store.open(str(folder))
    sizes = [len(make_bag(seed).values) for seed in range(8)]
    assert repr(store) == f"<Store: 8 photos, {sum(sizes)} descriptors of 5 features>"
    assert (store.path, store.recipe, store.fingerprint, store.dim) == (folder, RECIPE, "f", 5)
    assert (store.damaged, len(store)) == ([], 8)
    assert store.entries == [Entry(f"{seed:03d}.jpg", "ab"[seed % 2], f"digest {seed}") for seed in range(8)]
    assert store.entries is store.entries  # made once
    assert store.sizes.tolist() == sizes
    assert store.labels.dtype.kind == "U"


def test_the_summary_has_the_numbers_of_the_store(folder):
    put(folder, [3, 9], label=lambda seed: None)
    (folder / "torn.safetensors").write_bytes(b"half")
    (folder / "old.safetensors.damaged").write_bytes(b"set aside before")
    sizes = [len(make_bag(seed).values) for seed in (*range(8), 9)]
    summary = Store.open(folder).summary()
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


def test_a_claim_of_another_kind_is_passed_over(folder):
    nothing = Bags(np.empty((0, 7), np.float16), [0])
    write_shard(folder, Recipe(sampling=Dense(sides=(96,))), "another", [], [nothing])
    store = Store.open(folder)
    assert (len(store), store.dim, len(store.shards)) == (8, 5, 3)


@pytest.mark.parametrize(
    "other",
    [{"fingerprint": "g"}, {"dim": 6}, {"recipe": Recipe(activation="before")}, {"recipe": Recipe("other.onnx")}],
)
def test_shards_of_one_store_have_one_network_and_one_recipe_but_maybe_several_paths(folder, other):
    put(folder, [20], **other)
    if other == {"recipe": Recipe("other.onnx")}:  # the path of a network's file is none of its properties
        assert len(Store.open(folder)) == 9
        return
    with pytest.raises(StoreError, match="holds descriptors of two kinds"):
        Store.open(folder)


def test_what_is_no_store_is_told_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is not a store: it is a file, and a store is a folder"):
        Store.open(tmp_path / "file")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.safetensors").write_text("hello")
    with pytest.raises(StoreError, match=r"every file in it is damaged \(x.safetensors .*\)\. `patchvote extract"):
        Store.open(tmp_path / "bad")


def test_the_type_of_a_store_holds_all_of_its_shards(folder):
    assert Store.open(folder).dtype == np.float16
    bag = make_bag(30).astype(np.float32)
    write_shard(folder, RECIPE, "f", [entry(30)], [bag])
    store = Store.open(folder)
    assert store.dtype == np.float32
    assert store.summary()["dtype"] == ["float16", "float32"]
    same(store.load([8])[0], bag)


# --- views ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looked", [False, True])
def test_a_view_has_everything_of_its_photos_in_its_own_order(folder, looked):
    store = Store.open(folder)
    if looked:
        assert len(store.entries) == 8
    part = store.only(["006.jpg", "001.jpg", "005.jpg"])
    assert (part.names, len(part)) == (["006.jpg", "001.jpg", "005.jpg"], 3)
    assert part.labels.tolist() == ["a", "b", "b"]
    assert part.entries == [store.entries[seed] for seed in (6, 1, 5)]
    assert part.sizes.tolist() == [len(make_bag(seed).values) for seed in (6, 1, 5)]
    same(part.load()[0], Bags.join([make_bag(seed) for seed in (6, 1, 5)]))
    assert part.order_on_disk().tolist() == [1, 0, 2]
    assert (len(store), store.names[1]) == (8, "001.jpg")  # as it was
    with pytest.raises(StoreError, match="does not hold any of no photos"):
        store.only([])
    with pytest.raises(StoreError, match="does not hold no.jpg"):
        store.only(["001.jpg", "no.jpg"])


def test_photos_are_read_in_the_order_in_which_they_are_on_disk(folder):
    assert Store.open(folder).order_on_disk().tolist() == [seed for seeds in SHARDS for seed in seeds]


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_all_ways_of_reading_give_the_type_that_was_asked_for(folder, dtype):
    store = Store.open(folder)
    ways = {
        "load": [store.load([3], dtype)[0]],
        "images": [bag for _, bag, _ in store.images(dtype)],
        "blocks": [bags for bags, _ in store.blocks(10, dtype=dtype)],
        "by_class": [bags for _, bags in store.by_class(10, dtype)],
    }
    for way, found in ways.items():
        assert {bags.values.dtype for bags in found} == {np.dtype(dtype)}, way
    same(ways["load"][0], make_bag(3))
    assert store.load(np.array([1, 2], np.uint8))[1].tolist() == ["b", "a"]
    assert store.load(2)[1].tolist() == ["a"]  # one number is a list of one


def test_single_precision_is_what_is_read_unless_asked_otherwise(folder):
    store = Store.open(folder)
    found = [store.load()[0], next(store.images())[1], next(store.blocks())[0], next(store.by_class())[1]]
    assert {bags.values.dtype for bags in found} == {np.dtype(np.float32)}


def test_a_block_is_filled_to_the_last_descriptor(tmp_path):
    put(tmp_path, range(6), size=4)
    store = Store.open(tmp_path)
    assert [bags.sizes.tolist() for bags, _ in store.blocks(8)] == [[4, 4]] * 3
    assert [bags.sizes.tolist() for bags, _ in store.blocks(7)] == [[4]] * 6
    assert [bags.sizes.tolist() for bags, _ in store.blocks()] == [[4] * 6]
    assert [labels.tolist() for _, labels in store.blocks(8, indices=[5, 0, 0])] == [["b", "a"], ["a"]]
    assert list(store.blocks(8, indices=[])) == []
    with pytest.raises(IndexError, match=r"numbers 0 to 5, got \[6\]"):
        list(store.blocks(8, indices=[6]))
    shuffled = [labels.tolist() for _, labels in store.blocks(4, indices=[1, 3, 0], seed=0)]
    assert sorted(shuffled) == [["a"], ["b"], ["b"]]
    assert [(label, bags.sizes.tolist()) for label, bags in store.by_class(8)] == [
        (label, sizes) for label in "ab" for sizes in ([4, 4], [4])
    ]


# --- moments and checksums ------------------------------------------------------------------------------------------


def test_moments_are_those_of_the_shards_that_are_wanted_whole(folder):
    store = Store.open(folder)
    everything, left = store.moments(np.arange(8))
    close(everything, moments_of(store.load()[0]))
    assert left.tolist() == []
    some, left = store.moments(np.array([6, 3, 0, 2]))  # all of the second shard, and two thirds of the third
    close(some, moments_of(store.load([0, 6])[0]))
    assert left.tolist() == [3, 2]
    none, left = store.moments(np.array([1, 1, 4]))  # as many as the first shard has, but one of them twice
    assert (none.weight, left.tolist()) == (0, [1, 1, 4])
    twice, left = store.moments(np.array([0, 6, 6]))  # the moments count each photo once
    assert (twice.weight, left.tolist()) == (0, [0, 6, 6])


def test_moments_that_are_not_finite_are_not_used(folder):
    bag = make_bag(40)
    bag.values[0, 0] = np.inf
    write_shard(folder, RECIPE, "f", [entry(40, "z.jpg")], [bag])
    store = Store.open(folder)
    moments, left = store.moments(np.arange(9))
    close(moments, moments_of(store.load(range(8))[0]))
    assert left.tolist() == [8]


def test_the_checksum_of_a_store_is_that_of_its_bags_however_they_are_spread_over_shards(folder, tmp_path):
    content = Store.open(folder).content()
    assert 0 <= content < 1 << 63
    put(tmp_path / "one", range(8))
    one = Store.open(tmp_path / "one")
    assert one.content() == content
    assert one.only(one.names).content() == content
    assert one.only(one.names[::-1]).content() != content
    assert one.only(one.names[:7]).content() != content
    put(tmp_path / "another network", range(8), fingerprint="g")
    assert Store.open(tmp_path / "another network").content() != content
    write_shard(folder, RECIPE, "f", [Entry("003.jpg", "b", "digest 3")], [make_bag(50)])
    assert Store.open(folder).content() != content


def test_the_order_in_headers_decides_whatever_the_order_of_the_list(folder):
    shards = Store.open(folder).shards
    put(folder, [1], label=lambda seed: "new")
    newest = Shard.open(max(folder.iterdir()))
    for order in ([*shards, newest], [newest, *shards]):
        store = Store(folder, order, ["one is damaged"])
        assert store.labels[1] == "new"
        assert json.dumps(store.damaged) == '["one is damaged"]'
