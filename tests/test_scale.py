"""Training from stores larger than memory: a budget, blocks that are read ahead, and checkpoints."""

from __future__ import annotations

import subprocess
import sys
import weakref

import numpy as np
import pytest

from helpers.quick_network import quick as quick_classifier
from helpers.quick_network import shades
from helpers.waiting import wait_for
from patchvote import SNBNL, Bags, Recipe, Store
from patchvote.bags.extract import _Pipeline
from patchvote.bags.shards import Entry, write_shard
from patchvote.errors import PatchvoteError
from patchvote.models.scores import WORST
from patchvote.voters import prototype_training
from patchvote.voters.minibatches import TrainingData, most_in_memory, read_ahead


def make_store(folder, photos=60, dim=8, size=20, seed=0) -> Store:
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for start in range(0, photos, 20):
        numbers = range(start, min(start + 20, photos))
        bags = []
        for index in numbers:
            values = rng.normal(size=(size, dim)) + 2 * np.eye(dim)[index % 3]
            corner = rng.uniform(0, 0.5, (size, 2))
            boxes = np.concatenate([corner, corner + 0.2], axis=1)
            bags.append(Bags(values.astype(np.float16), [0, size], boxes))
        entries = [Entry(f"{index:04d}", "abc"[index % 3], f"{seed} {index}") for index in numbers]
        write_shard(folder, Recipe(), "f", entries, bags)
    return Store.open(folder)


@pytest.fixture
def small_blocks(monkeypatch):
    """No store fits into memory: blocks have 100 descriptors."""
    monkeypatch.setattr("patchvote.voters.snbnl.most_in_memory", lambda *_: 200)


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(SNBNL, "min_steps", 0)


def quick(prototypes=2, *, file=None, callback=None, **settings) -> SNBNL:
    return SNBNL(prototypes, **settings).set_options(checkpoint=file, callback=callback)


def test_at_most_two_blocks_are_in_memory_and_they_come_in_order():
    alive, most = set(), 0

    class Counted:
        def __init__(self, number):
            nonlocal most
            self.number = number
            alive.add(number)
            most = max(most, len(alive))

        def __del__(self):
            alive.discard(self.number)

    seen = []
    for block in read_ahead(Counted, list(range(6))):
        seen.append(block.number)
        wait_for(lambda: len(seen) in alive or len(seen) == 6)  # the next one is read meanwhile
        del block
    assert seen == list(range(6))
    assert most == 2


def test_the_budget_is_what_prototypes_and_descriptors_take_and_never_less_than_some_minibatches():
    size = {"dim": 1280, "itemsize": 2, "width": 150, "batch_size": 1000}
    small, large = (most_in_memory(memory, **size) for memory in (500, 1000))
    assert large > small > 20_000
    assert large * 1280 * 2 < 1000e6
    assert most_in_memory(2, **size) == 4000


MEASURED = """
import sys
from patchvote import SNBNL, Store
from patchvote.utils.machine import forget_peak_memory, peak_memory
import sklearn.utils, scipy.sparse.csgraph
store = Store.open(sys.argv[1])
small = Store.only(store, store.names[:9])
SNBNL.min_steps = 0
SNBNL(2, max_iter=1).fit(small)
forget_peak_memory()
before = peak_memory()
SNBNL(10, max_iter=1, batch_size=200).set_options(memory=float(sys.argv[2])).fit(store)
print((peak_memory() - before) / 1e6)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory can only be reset on Linux")
def test_the_measured_peak_stays_below_the_budget(tmp_path):
    make_store(tmp_path, 300, dim=1024, size=250)  # 154 MB
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path, "100"], capture_output=True, text=True, check=True, timeout=300
    )
    assert float(done.stdout) < 100


@pytest.mark.parametrize("source", ["store", "bags"])
def test_every_checkpoint_leads_to_the_same_prototypes(tmp_path, monkeypatch, small_blocks, few_steps, source):
    store = make_store(tmp_path / "store")
    data = (store,) if source == "store" else store.load()
    whole = quick(batch_size=50).fit(*data)
    kept = []
    original = prototype_training.Checkpoint.write

    def write(self, *args):
        original(self, *args)
        kept.append(self.path.read_bytes())

    monkeypatch.setattr(prototype_training.Checkpoint, "write", write)
    monkeypatch.setattr(prototype_training, "_SECONDS_BETWEEN_WRITES", 0)
    quick(batch_size=50, file=tmp_path / "state").fit(*data)
    assert len(kept) > 30
    monkeypatch.setattr(prototype_training.Checkpoint, "write", original)
    for content in kept[::5]:
        (tmp_path / "state").write_bytes(content)
        resumed = quick(batch_size=50, file=tmp_path / "state").fit(*data)
        np.testing.assert_array_equal(resumed.weights_, whole.weights_)
        assert resumed.history_ == whole.history_


def test_checkpoints_of_other_trainings_and_damaged_ones_are_refused_before_the_training(tmp_path, few_steps):
    store, file = make_store(tmp_path / "store"), tmp_path / "state"
    settings = {"max_iter": 1, "file": file}
    quick(**settings).fit(store)
    other = make_store(tmp_path / "other", seed=1)
    for voter, data in ((quick(3, **settings), store), (quick(**settings), other)):
        with pytest.raises(PatchvoteError, match="another training"):
            voter.fit(data)
    with pytest.raises(PatchvoteError, match="another training"):
        quick(**settings).fit(store, sample_weight=np.linspace(1, 2, 60))
    content = file.read_bytes()
    for place in np.linspace(9, len(content) - 1, 40).astype(int):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(PatchvoteError, match="is damaged|is not a checkpoint|another training"):
            quick(**settings).fit(store)
    with pytest.raises(ValueError, match="random_state"):
        SNBNL(2, random_state=None).set_options(checkpoint=file).fit(store)
    with pytest.raises(PatchvoteError, match="no folder"):
        quick(file=tmp_path / "nowhere" / "state").fit(store)


def test_a_checkpoint_may_be_a_remote_file(tmp_path, few_steps):
    fsspec = pytest.importorskip("fsspec")
    store, settings = make_store(tmp_path / "store"), {"max_iter": 2}
    whole = quick(**settings).fit(store)
    settings["file"] = "memory://checkpoints/state"
    quick(**settings, callback=lambda record: True).fit(store)
    assert fsspec.filesystem("memory").exists("/checkpoints/state")
    np.testing.assert_array_equal(quick(**settings).fit(store).weights_, whole.weights_)


@pytest.mark.parametrize(
    ("settings", "photos", "read"),
    [
        ({"position_weight": 0}, slice(60), 0),
        ({}, slice(60), 0),
        ({}, slice(45), 5),
        ({}, slice(3, 9), 6),
        ({"power": 0.5}, slice(60), 60),
        ({"weight": np.linspace(1, 2, 60)}, slice(60), 60),
    ],
    ids=str,
)
def test_whole_shards_need_no_pass_for_their_moments_and_others_are_read(
    tmp_path, small_blocks, monkeypatch, settings, photos, read
):
    store, loads, original = make_store(tmp_path), [], Store.load
    (bags, labels), weight = store.load(), settings.pop("weight", None)
    voter, rows = SNBNL(**settings), np.arange(60)[photos]
    data = voter._training_data(store.only(store.names[photos]), None, weight)
    expected = voter._training_data(bags[rows], labels[rows], weight).moments()

    def load(self, indices, dtype):
        loads.extend(indices)
        return original(self, indices, dtype)

    monkeypatch.setattr(Store, "load", load)
    moments = data.moments()
    assert len(loads) == read
    np.testing.assert_allclose(moments.mean, expected.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moments.deviation(), expected.deviation(), rtol=1e-5)


# --- minibatches, from bags in memory and from a store in blocks -----------------------------------------------------


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


# --- answers, from photo to photo ------------------------------------------------------------------------------------


@pytest.fixture
def alive(monkeypatch):
    """Numbers of bags of photos in memory, each time that one more is made."""
    living: weakref.WeakSet[Bags] = weakref.WeakSet()
    counts: list[int] = []
    original = _Pipeline._bag

    def made(self, *what):
        bag = original(self, *what)
        living.add(bag)
        counts.append(len(living))
        return bag

    monkeypatch.setattr(_Pipeline, "_bag", made)
    return counts


@pytest.mark.parametrize("voter", ["moment-ridge", "nbnn"])
def test_predicting_and_evaluating_hold_as_many_bags_for_many_photos_as_for_few(voter, alive):
    classifier = quick_classifier(voter).fit(*shades(12))
    most = {}
    for count in (30, 90):
        many, labels = shades(count)
        alive.clear()
        classifier.predict(many)
        assert len(alive) == count
        most["predict", count] = max(alive)
        alive.clear()
        for _ in classifier.answers(many):
            pass
        most["answers", count] = max(alive)
        alive.clear()
        classifier.evaluate(many, labels[1:] + labels[:1])  # every photo is a mistake
        most["evaluate", count] = max(alive)
    assert max(most["predict", 90], most["answers", 90]) <= 4
    assert most["evaluate", 30] == most["evaluate", 90] <= WORST + 4
