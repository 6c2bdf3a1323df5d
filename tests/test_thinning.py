from __future__ import annotations

import numpy as np

from patchvote import Bags, Recipe, Store
from patchvote.bags.entries import Entry
from patchvote.bags.shard_writing import write_shard
from patchvote.bags.thinning import thinned


def make_store(folder, order) -> Store:
    rng = np.random.default_rng(0)
    bags = [Bags.of([rng.normal(size=(size, 6)).astype(np.float16)]) for size in rng.integers(5, 400, 30)]
    for part in np.array_split(order, 4):
        entries = [Entry(f"{index:03d}", "ab"[index % 2], str(index)) for index in part]
        write_shard(folder, Recipe(), "f", entries, [bags[index] for index in part])
    return Store.open(folder)


def test_of_every_bag_some_descriptors_are_read_the_first_always(tmp_path, monkeypatch):
    monkeypatch.setattr("patchvote.bags.thinning._MAX_TRAINING_DESCRIPTORS", 300)
    store = make_store(tmp_path, np.arange(30))
    thin, (full, _) = thinned(store, 0), store.load()
    assert thin.sizes.tolist() == np.minimum(full.sizes, 24).tolist()
    for ours, theirs in zip(thin, full, strict=True):
        rows = [np.flatnonzero((theirs.values == value).all(axis=1)).item() for value in ours.values]
        assert rows[0] == 0
        assert rows == sorted(set(rows))


def test_the_choice_does_not_depend_on_where_bags_lie_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("patchvote.bags.thinning._MAX_TRAINING_DESCRIPTORS", 300)
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    first = thinned(make_store(tmp_path / "a", np.arange(30)), 0)
    second = thinned(make_store(tmp_path / "b", np.random.default_rng(1).permutation(30)), 0)
    np.testing.assert_array_equal(first.values, second.values)
    other = thinned(Store.open(tmp_path / "a"), 1)
    assert (first.values != other.values).any()


def test_few_photos_are_read_in_whole(tmp_path):
    store = make_store(tmp_path, np.arange(30))
    np.testing.assert_array_equal(thinned(store, 0).values, store.load()[0].values)
