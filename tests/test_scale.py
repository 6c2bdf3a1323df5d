"""Training from stores larger than memory: a budget, blocks that are read ahead, and checkpoints."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from helpers.waiting import wait_for
from patchvote import SNBNL, Bags, Recipe, Store
from patchvote.bags.shards import Entry, write_shard
from patchvote.errors import PatchvoteError
from patchvote.voters import prototype_training
from patchvote.voters.minibatches import most_in_memory, read_ahead


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


# --- blocks within a budget ------------------------------------------------------------------------------------------


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


# --- checkpoints -----------------------------------------------------------------------------------------------------


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


def test_a_checkpoint_of_other_data_or_settings_is_refused(tmp_path, few_steps):
    store, file = make_store(tmp_path / "store"), tmp_path / "state"
    settings = {"max_iter": 1, "file": file}
    quick(**settings).fit(store)
    for voter, other in (
        (quick(3, **settings), store),
        (quick(**settings, random_state=1), store),
        (quick(**settings), make_store(tmp_path / "other", seed=1)),
    ):
        with pytest.raises(PatchvoteError, match="another training"):
            voter.fit(other)
    with pytest.raises(PatchvoteError, match="another training"):
        quick(**settings).fit(store, sample_weight=np.linspace(1, 2, 60))


def test_damaged_and_foreign_checkpoints_are_refused_before_the_training(tmp_path, few_steps):
    store, file = make_store(tmp_path / "store"), tmp_path / "state"
    settings = {"max_iter": 1, "file": file}
    quick(**settings).fit(store)
    content = file.read_bytes()
    for place in np.linspace(9, len(content) - 1, 40).astype(int):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(PatchvoteError, match="is damaged|is not a checkpoint|another training"):
            quick(**settings).fit(store)
    file.write_bytes(b"something else")
    with pytest.raises(PatchvoteError, match="is not a checkpoint of a training"):
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


# --- moments that the store holds ------------------------------------------------------------------------------------


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
