from __future__ import annotations

import json
import random
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from helpers.shards import rewrite
from patchvote import Bags, Dense, PhotoError, Recipe, Store, StoreError
from patchvote.bags import shard_writing
from patchvote.bags.entries import Entry
from patchvote.bags.shard import Shard
from patchvote.bags.shard_writing import cast, write_shard
from patchvote.utils.arrays import to_float32

RECIPE = Recipe()


def make_bag(seed: int, size: int | None = None, dim: int = 5) -> Bags:
    rng = np.random.default_rng(seed)
    n = size or int(rng.integers(1, 9))
    return Bags(
        rng.normal(size=(n, dim)).astype(np.float16),
        np.array([0, n]),
        np.sort(rng.random((n, 4), dtype=np.float32)),
        rng.integers(0, 3, n),
    )


def put(folder, seeds, label=lambda seed: "ab"[seed % 2], recipe=RECIPE, fingerprint="f", **kwargs):
    folder.mkdir(exist_ok=True)
    entries = [Entry(f"{seed:03d}.jpg", label(seed), f"digest {seed}") for seed in seeds]
    return write_shard(folder, recipe, fingerprint, entries, [make_bag(seed, **kwargs) for seed in seeds])


@pytest.fixture
def folder(tmp_path):
    """A store of 30 photos in three shards, in no order."""
    seeds = list(range(30))
    random.Random(0).shuffle(seeds)
    for start in (0, 10, 20):
        put(tmp_path / "store", seeds[start : start + 10])
    return tmp_path / "store"


def same(a: Bags, b: Bags) -> None:
    for name in ("values", "offsets", "boxes", "level"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_what_was_written_is_read_in_order_of_name(folder):
    store = Store.open(folder)
    bags, labels = store.load()
    assert store.names == [f"{seed:03d}.jpg" for seed in range(30)]
    same(bags, Bags.join([make_bag(seed) for seed in range(30)]))
    assert labels.tolist() == ["ab"[seed % 2] for seed in range(30)]
    assert bags.values.dtype == np.float32
    assert store.sizes.tolist() == bags.sizes.tolist()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 29), min_size=1))
def test_any_photos_can_be_read_in_any_order(tmp_path_factory, indices):
    folder = tmp_path_factory.getbasetemp() / "any"
    if not folder.exists():
        put(folder, range(15))
        put(folder, range(15, 30))
    same(Store.open(folder).load(indices)[0], Bags.join([make_bag(seed) for seed in indices]))


def test_photo_by_photo(folder):
    for seed, (name, bag, label) in enumerate(Store.open(folder).images()):
        assert (name, label) == (f"{seed:03d}.jpg", "ab"[seed % 2])
        same(bag, make_bag(seed))


def test_shuffled_blocks_hold_every_photo_once_in_bounded_size(folder):
    store = Store.open(folder)

    def rounds(**kwargs):
        return [(bags.values.tolist(), labels.tolist()) for bags, labels in store.blocks(20, **kwargs)]

    everything = store.load()[0].values
    for seed in (None, 0, 1):
        blocks = list(store.blocks(20, seed=seed))
        assert all(len(bags.values) <= 20 for bags, _ in blocks)
        rows = np.concatenate([bags.values for bags, _ in blocks])
        assert sorted(rows.tolist()) == sorted(everything.tolist())
    assert rounds(seed=0) == rounds(seed=0) != rounds(seed=1)
    assert rounds() == rounds(seed=None)
    assert len(list(store.blocks(1))) == 30  # a photo larger than a block is a block


def test_class_by_class(folder):
    blocks = list(Store.open(folder).by_class(15))
    assert [label for label, _ in blocks] == sorted(label for label, _ in blocks)
    for wanted in "ab":
        joined = Bags.join([bags for label, bags in blocks if label == wanted])
        same(joined, Bags.join([make_bag(seed) for seed in range(30) if "ab"[seed % 2] == wanted]))


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


def test_the_newest_bag_of_a_photo_counts(folder):
    put(folder, [3, 40], label=lambda seed: "new")
    store = Store.open(folder)
    assert len(store) == 31
    assert store.labels[3] == "new"
    assert store.summary()["superseded"] == 1


def test_a_forgotten_photo_is_gone_until_it_comes_again(folder):
    write_shard(folder, RECIPE, "f", [], [Bags(np.empty((0, 5), np.float16), [0])], ["003.jpg", "004.jpg", "never"])
    assert len(Store.open(folder)) == 28
    put(folder, [4])
    store = Store.open(folder)
    assert "003.jpg" not in store.names
    assert "004.jpg" in store.names


def test_a_store_from_which_all_was_forgotten_says_so(tmp_path):
    put(tmp_path, [1])
    write_shard(tmp_path, RECIPE, "f", [], [Bags(np.empty((0, 5), np.float16), [0])], ["001.jpg"])
    with pytest.raises(StoreError, match="holds no photos yet"):
        Store.open(tmp_path)


def test_photos_without_labels_have_none(tmp_path):
    put(tmp_path, range(4), label=lambda seed: None if seed == 2 else "a")
    store = Store.open(tmp_path)
    assert store.labels.tolist() == ["a", "a", None, "a"]
    assert [label for label, _ in store.by_class()] == ["a"]
    assert store.summary()["without_label"] == 1


def test_a_torn_shard_is_ignored_and_named(folder):
    torn = sorted(folder.iterdir())[1]
    data = torn.read_bytes()
    for cut in (0, 4, 100, len(data) - 1):
        torn.write_bytes(data[:cut])
        store = Store.open(folder)
        assert len(store) == 20
        assert torn.name in store.damaged[0]


def test_a_shard_that_contradicts_itself_is_damaged(folder):
    path = sorted(folder.iterdir())[0]
    whole, arrays = path.read_bytes(), load_file(path)
    header = {"entries": json.dumps([vars(entry) for entry in Shard.open(path).entries])}
    changes = [
        ({"offsets": arrays["offsets"][:-1]}, {}),
        ({"offsets": arrays["offsets"][::-1].copy()}, {}),
        ({"boxes": arrays["boxes"][:-1]}, {}),
        ({}, {"format": "patchvote-bags-9"}),
        ({}, {"entries": "[{}]"}),
        ({}, {"entries": "nonsense"}),
        ({}, {"recipe": "nonsense"}),
        ({"offsets": arrays["offsets"].astype(np.uint64)}, {}),
        ({}, {"entries": "[" * 100_000}),
        ({}, {"entries": re.sub(r'"name": "[^"]*"', '"name": 7', header["entries"], count=1)}),
        ({}, {"entries": re.sub(r'"label": "[^"]*"', '"label": ["a"]', header["entries"], count=1)}),
        ({}, {"entries": re.sub(r'"digest": "[^"]*"', '"digest": ["a"]', header["entries"], count=1)}),
        ({}, {"forgotten": "[7]"}),
    ]
    for array, told in changes:
        rewrite(path, array, told)
        assert len(Store.open(folder).damaged) == 1
        path.write_bytes(whole)
    rewrite(path)
    assert not Store.open(folder).damaged


def test_temporary_and_foreign_files_are_not_shards(folder):
    (folder / ".writing-host@1-ab").write_bytes(b"half a shard")
    (folder / "notes.txt").write_text("hello")
    assert len(Store.open(folder)) == 30


def test_bags_of_two_recipes_do_not_mix(folder):
    put(folder, [50], recipe=Recipe(sampling=Dense(sides=(96,))))
    with pytest.raises(StoreError, match=r"holds descriptors of two kinds: .* Keep each in a folder of its own"):
        Store.open(folder)


def test_what_is_no_store_is_refused(tmp_path, folder):
    with pytest.raises(StoreError, match="no such folder. `patchvote extract PHOTOS STORE` makes one"):
        Store.open(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="it holds no descriptors of photos"):
        Store.open(tmp_path / "empty")
    (tmp_path / "empty" / "x.safetensors").write_text("hello")
    with pytest.raises(StoreError, match="every file in it is damaged"):
        Store.open(tmp_path / "empty")
    with pytest.raises(StoreError, match="no photos were asked for"):
        Store.open(folder).load([])
    for indices in ([30], [-1], [0.5], ["a"]):
        with pytest.raises(IndexError, match="numbers 0 to 29"):
            Store.open(folder).load(indices)


def test_a_shard_that_vanishes_while_reading_says_so(folder):
    store = Store.open(folder)
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="can no longer be read"):
        store.load()


def test_numbers_too_large_for_float16_are_named():
    bag = Bags(np.array([[1e5]], dtype=np.float32), np.array([0, 1]))
    with pytest.raises(PhotoError, match="a.jpg: a descriptor of it is not finite, or does not fit into float16"):
        cast("a.jpg", bag, "float16")
    assert cast("a.jpg", bag, "float32").values[0, 0] == 1e5


def test_the_summary_is_plain_json(folder):
    told = json.loads(json.dumps(Store.open(folder).summary()))
    assert told["photos"] == 30
    assert told["classes"] == {"a": 15, "b": 15}
    assert told["dtype"] == ["float16"]
    assert told["bytes"] == sum(path.stat().st_size for path in folder.iterdir())


def test_a_store_can_be_seen_as_if_it_held_some_photos_only(tmp_path, photo_folder):
    from patchvote import Dense, Extractor, Recipe, StoreError, fill

    fill(tmp_path, photo_folder, Extractor(Recipe(sampling=Dense(sides=(64,)))))
    store = Store.open(tmp_path)
    names = [store.names[7], store.names[2]]
    part = store.only(names)
    assert (len(part), part.names) == (2, names)
    bags, labels = part.load()
    expected, known = store.load([7, 2])
    np.testing.assert_array_equal(bags.values, expected.values)
    assert labels.tolist() == known.tolist()
    assert len(store) == 40
    assert sorted(store.order_on_disk()) == list(range(40))
    with pytest.raises(StoreError, match="does not hold nobody.jpg"):
        store.only(["nobody.jpg"])


def test_an_error_of_writing_without_a_number_is_told_in_its_own_words(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError("the quota of the bucket is used up")  # as libraries of remote file systems do

    monkeypatch.setattr(shard_writing, "write_and_hold", refused)
    with pytest.raises(StoreError, match="cannot be written: the quota of the bucket is used up"):
        write_shard(tmp_path, RECIPE, "f", [Entry("a.jpg", None, "1")], [Bags.of([np.ones((1, 2))])])
