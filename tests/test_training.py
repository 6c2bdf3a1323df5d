"""The minibatches of a training, from bags in memory and from a store in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from patchvote import Bags, Recipe, Store
from patchvote.bags.shards import Entry, write_shard
from patchvote.voters.minibatches import TrainingData


def photos(count: int = 30) -> Bags:
    """Bags of 3 to 8 descriptors that differ all, with a box each."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 9, count)
    n = int(sizes.sum())
    corner = rng.uniform(0, 0.5, (n, 2))
    boxes = np.concatenate([corner, corner + 0.25], axis=1).astype(np.float32)
    values = rng.normal(3, 2, (n, 5)).astype(np.float16)
    return Bags(values, np.concatenate([[0], np.cumsum(sizes)]), boxes)


@pytest.fixture(params=["bags", "store"])
def source(request, tmp_path) -> Bags | Store:
    bags = photos()
    if request.param == "bags":
        return bags
    write_shard(tmp_path, Recipe(), "f", [Entry(f"{i:03d}", "sea", f"{i}") for i in range(len(bags))], list(bags))
    return Store.open(tmp_path)


def training_data(source: Bags | Store, most: int = 10**6, weight: np.ndarray | None = None) -> TrainingData:
    labels = np.arange(len(source)) % 3
    data = TrainingData(source, labels, np.ones(len(source)) if weight is None else weight, most)
    data.mean, data.scale = np.zeros(7), np.ones(7)
    return data


def one_pass(data: TrainingData, size: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    moments = data.moments()
    data.mean, data.scale = moments.mean, 1 / moments.deviation()
    minibatches = data.minibatches(np.random.default_rng(seed), size)
    parts = [(values.copy(), labels, weight) for values, labels, weight in minibatches]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def in_order(values: np.ndarray) -> np.ndarray:
    return values[np.lexsort(values.T)]


def literally(bags: Bags, images: np.ndarray) -> np.ndarray:
    """All descriptors of some images with their centres, standardised."""
    rows = np.isin(bags.owner, images)
    centre = (bags.boxes[rows, :2] + bags.boxes[rows, 2:]) / 2
    x = np.concatenate([bags.values[rows].astype(np.float64), centre], axis=1)
    return (x - x.mean(axis=0)) / x.std(axis=0)


@pytest.mark.parametrize("block", [10**6, 80, 1])
def test_a_pass_gives_every_descriptor_once_and_standardised(source, block):
    values, labels, _ = one_pass(training_data(source, block))
    np.testing.assert_allclose(in_order(values), in_order(literally(photos(), np.arange(30))), atol=1e-5)
    assert sorted(labels) == sorted(photos().owner % 3)


def test_each_descriptor_comes_with_the_class_and_the_weight_of_its_image_if_that_is_not_0(source):
    bags, weight = photos(), np.linspace(1, 2, 30)
    weight[::2] = 0
    values, _, _ = one_pass(training_data(source, weight=np.sign(weight)))
    np.testing.assert_allclose(in_order(values), in_order(literally(bags, np.arange(1, 30, 2))), atol=1e-5)
    for values, labels, weights in training_data(source, 80, weight).minibatches(np.random.default_rng(0), 20):
        for value, label, counted in zip(values, labels, weights, strict=True):
            (row,) = np.flatnonzero((bags.values == value[:5]).all(axis=1))
            assert (bags.owner[row] % 3, weight[bags.owner[row]]) == (label, pytest.approx(counted))


@pytest.mark.parametrize("block", [10**6, 80])
def test_a_pass_that_is_continued_has_the_minibatches_and_random_numbers_that_remained(source, block):
    data, rngs = training_data(source, block), [np.random.default_rng(3) for _ in range(2)]
    whole = [values.copy() for values, _, _ in data.minibatches(rngs[0], 10)]
    rest = [values.copy() for values, _, _ in data.minibatches(rngs[1], 10, skip=9)]
    assert len(rest) == len(whole) - 9
    np.testing.assert_array_equal(np.concatenate(rest), np.concatenate(whole[9:]))
    assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


def test_passes_come_in_other_orders_that_mix_images_and_a_seed_fixes_them():
    data = training_data(photos(300))
    first, second = one_pass(data, seed=1)[0], one_pass(data, seed=2)[0]
    assert (first != second).any(axis=1).mean() > 0.9
    np.testing.assert_array_equal(first, one_pass(data, seed=1)[0])
    owner = {tuple(value): image for value, image in zip(photos(300).values.tolist(), photos(300).owner, strict=True)}
    batch, _, _ = next(training_data(photos(300)).minibatches(np.random.default_rng(0), 100))
    assert len({owner[tuple(value)] for value in batch[:, :5].tolist()}) > 60


@pytest.mark.parametrize("source", ["store"], indirect=True)
def test_no_more_than_a_block_of_a_store_is_read_at_once_and_a_small_one_once(source, monkeypatch):
    loads: list[int] = []
    original = Store.load

    def load(self, indices, dtype):
        loads.append(int(self.sizes[indices].sum()))
        return original(self, indices, dtype)

    monkeypatch.setattr(Store, "load", load)
    data = training_data(source, most=80)
    data.power = 0.5  # for which the store holds no moments: they take a pass of their own
    one_pass(data)
    assert len(loads) >= 2 * source.sizes.sum() / 40
    assert max(loads) <= 40
    loads.clear()
    data = training_data(source)
    one_pass(data), one_pass(data)
    assert loads == [source.sizes.sum()]


@pytest.mark.parametrize(("weight", "negative"), [([0, 1, 0], True), ([1, 0, 1], False)])
def test_only_images_with_weight_tell_whether_features_are_negative(weight, negative):
    values = np.ones((900, 2))
    bags = Bags.of([values[:600], -values[:300], values[:600]])
    data = TrainingData(bags, np.zeros(3, np.int64), np.array(weight, float), 10_000)
    assert data.has_negative_features() is negative
