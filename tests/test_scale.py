"""Training from stores larger than memory: a budget, blocks that are read ahead, and checkpoints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from helpers.waiting import wait_for
from patchvote import SNBNL, Bags, Recipe, Store
from patchvote.bags.shards import Entry, write_shard
from patchvote.errors import PatchvoteError
from patchvote.voters.prototypes import blocks, checkpoint, passes
from patchvote.voters.prototypes.blocks import limits, read_ahead


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


def test_an_error_of_reading_ahead_reaches_the_caller():
    def load(part):
        if part == 2:
            raise OSError("the disk is gone")
        return part

    with pytest.raises(OSError, match="the disk is gone"):
        list(read_ahead(load, [0, 1, 2, 3]))


def test_reading_ahead_does_not_change_the_prototypes(tmp_path, monkeypatch):
    store = make_store(tmp_path)
    settings = {"block": 100, "batch_size": 50, "calibration": 0}
    ahead = SNBNL(2, **settings).fit(store)
    monkeypatch.setattr("patchvote.voters.prototypes.minibatches.read_ahead", lambda load, parts: map(load, parts))
    np.testing.assert_array_equal(SNBNL(2, **settings).fit(store).weights_, ahead.weights_)


def test_blocks_are_halves_of_what_the_budget_leaves():
    size = {"dim": 1280, "itemsize": 2, "prototypes": 10, "classes": 15, "batch_size": 1000}
    small, large = (limits(memory, None, **size, votes=False) for memory in (500, 1000))
    assert large.block > small.block > 10_000
    assert large.whole == pytest.approx(2 * large.block, abs=1)
    assert 2 * large.block * 1280 * 2 < 1000e6
    assert limits(1000, None, **size, votes=True).block < large.block
    assert limits(1000, 5000, **size, votes=False).block == 5000


def test_a_budget_that_cannot_be_kept_is_refused_with_the_least_that_can(tmp_path):
    with pytest.raises(ValueError, match=r"memory must be at least [\d,]+ megabytes for 3 classes with 10 prototypes"):
        SNBNL(memory=2).fit(make_store(tmp_path))
    with pytest.raises(ValueError, match="memory of SNBNL must be a number from 1 to 1e[+]09, got 'much'"):
        SNBNL(memory="much").fit(make_store(tmp_path))


MEASURED = """
import sys
from patchvote import SNBNL, Store
from patchvote.utils.machine import forget_peak_memory, peak_memory
import sklearn.utils, scipy.sparse.csgraph
store = Store.open(sys.argv[1])
small = Store.only(store, store.names[:9])
SNBNL(2, calibration=0, min_steps=0, max_iter=1).fit(small)
forget_peak_memory()
before = peak_memory()
SNBNL(10, memory=float(sys.argv[2]), calibration=0, min_steps=0, max_iter=1, batch_size=200).fit(store)
print((peak_memory() - before) / 1e6)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory can only be reset on Linux")
def test_the_measured_peak_stays_below_the_budget(tmp_path):
    make_store(tmp_path, 300, dim=1024, size=250)  # 154 MB
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path, "100"], capture_output=True, text=True, check=True, timeout=300
    )
    assert float(done.stdout) < 100


def test_vectors_of_very_many_photos_keep_only_some_features(tmp_path):
    store = make_store(tmp_path, dim=256)
    data = SNBNL()._training_data(store, None, None)
    assert data.vectors().shape == (60, 256)
    data.limits = blocks.Limits(1000, 1000, features=60 * 100)
    assert 64 <= data.vectors().shape[1] <= 100


# --- checkpoints -----------------------------------------------------------------------------------------------------

KILLED = """
import sys
from patchvote import SNBNL, Store
from patchvote.voters.prototypes.stoml3 import Stoml3
import time
step = Stoml3.step
def slow(self, *args):
    time.sleep(0.05)
    return step(self, *args)
Stoml3.step = slow
print("begin", flush=True)
saved = {"checkpoint": sys.argv[2], "checkpoint_seconds": 0.02}
SNBNL(2, block=200, batch_size=20, max_iter=4, **saved).fit(Store.open(sys.argv[1]))
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL on Windows")
def test_a_killed_training_continues_to_the_same_prototypes(tmp_path):
    store, file = make_store(tmp_path / "store"), tmp_path / "state"
    settings = {"block": 200, "batch_size": 20, "max_iter": 4}
    whole = SNBNL(2, **settings).fit(store)
    sizes = []
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", KILLED, store.path, file], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            before, until = file.stat().st_mtime_ns if file.exists() else 0, time.monotonic() + 60
            while time.monotonic() < until and not (file.exists() and file.stat().st_mtime_ns > before):
                time.sleep(0.01)
            time.sleep(0.5)
            process.send_signal(signal.SIGKILL)
        sizes.append(process.returncode)
    assert sizes == [-signal.SIGKILL] * 2
    resumed = SNBNL(2, **settings, checkpoint=file).fit(store)
    np.testing.assert_array_equal(resumed.weights_, whole.weights_)
    assert (resumed.temperature_, resumed.steps_) == (whole.temperature_, whole.steps_)
    assert resumed.history_ == whole.history_
    again = SNBNL(2, **settings, checkpoint=file).fit(store)  # it is complete: nothing is left to learn
    np.testing.assert_array_equal(again.weights_, whole.weights_)


@pytest.mark.parametrize("held_out", [0, 0.3])
@pytest.mark.parametrize("source", ["store", "bags"])
def test_every_checkpoint_leads_to_the_same_prototypes(tmp_path, monkeypatch, held_out, source):
    store = make_store(tmp_path / "store")
    data = (store,) if source == "store" else store.load()
    settings = {"batch_size": 50, "block": 200, "calibration": 0, "min_steps": 0, "validation_fraction": held_out}
    whole = SNBNL(2, **settings).fit(*data)
    kept = []
    original = passes.Checkpoint.write

    def write(self, *args):
        original(self, *args)
        kept.append(self.path.read_bytes())

    monkeypatch.setattr(passes.Checkpoint, "write", write)
    SNBNL(2, **settings, checkpoint=tmp_path / "state", checkpoint_seconds=0).fit(*data)
    assert len(kept) > 30
    monkeypatch.setattr(passes.Checkpoint, "write", original)
    for content in kept[::5]:
        (tmp_path / "state").write_bytes(content)
        resumed = SNBNL(2, **settings, checkpoint=tmp_path / "state").fit(*data)
        np.testing.assert_array_equal(resumed.weights_, whole.weights_)
        assert resumed.history_ == whole.history_


def test_a_checkpoint_of_other_data_or_settings_is_refused(tmp_path):
    store, file = make_store(tmp_path / "store"), tmp_path / "state"
    settings = {"calibration": 0, "max_iter": 1, "min_steps": 0, "checkpoint": file}
    SNBNL(2, **settings).fit(store)
    for voter, other in (
        (SNBNL(3, **settings), store),
        (SNBNL(2, **settings, random_state=1), store),
        (SNBNL(2, **settings), make_store(tmp_path / "other", seed=1)),
    ):
        with pytest.raises(PatchvoteError, match="state is of another training"):
            voter.fit(other)
    with pytest.raises(PatchvoteError, match="state is of another training"):
        SNBNL(2, **settings).fit(store, sample_weight=np.linspace(1, 2, 60))


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path):
    store, file = make_store(tmp_path / "store"), tmp_path / "state"
    settings = {"calibration": 0, "max_iter": 1, "min_steps": 0, "checkpoint": file}
    SNBNL(2, **settings).fit(store)
    content = file.read_bytes()
    for place in np.linspace(9, len(content) - 1, 40).astype(int):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(PatchvoteError, match="is damaged|is not a checkpoint|another training"):
            SNBNL(2, **settings).fit(store)
    file.write_bytes(b"something else")
    with pytest.raises(PatchvoteError, match="is not a checkpoint of SNBNL"):
        SNBNL(2, **settings).fit(store)
    with pytest.raises(ValueError, match="a checkpoint needs a random_state that is a whole number, .* got None"):
        SNBNL(2, checkpoint=file, random_state=None).fit(store)


def forged(file, change, arrays) -> None:
    """Replace parts of a checkpoint, and write the checksum that belongs to them."""
    with safe_open(file, "np") as opened:
        told, kept = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    states = json.loads(told["states"])
    states["final"] |= change
    kept = {name: array for name, array in (kept | arrays).items() if array is not None}
    told = {checkpoint._MARK: told[checkpoint._MARK], "states": json.dumps(states)}
    file.write_bytes(save(kept, told | {"checksum": checkpoint._checksum(kept, told)}))


@pytest.mark.parametrize(
    ("change", "arrays"),
    [
        ({}, {"final.weights": None}),
        ({}, {"final.weights": np.zeros((2, 2, 10), np.float32)}),
        ({}, {"final.weights": np.zeros((2, 3, 10), np.int64)}),
        ({}, {"final.weights": np.full((2, 3, 10), np.nan, np.float32)}),
        ({}, {"final.best": np.zeros((1, 1), np.float32)}),
        ({"position": 1 << 40}, {}),
        ({"random": {}}, {}),
        (
            {"random": {"bit_generator": "PCG64", "state": {"state": -1, "inc": "x"}, "has_uint32": 0, "uinteger": 0}},
            {},
        ),
    ],
)
def test_a_checkpoint_that_no_training_wrote_is_refused_though_its_checksum_is_right(tmp_path, change, arrays):
    store, file = make_store(tmp_path / "store"), tmp_path / "state"
    settings = {"calibration": 0, "max_iter": 2, "min_steps": 0, "batch_size": 100, "checkpoint": file}
    SNBNL(2, **settings, callback=lambda record: True).fit(store)
    forged(file, {}, {})
    content = file.read_bytes()
    SNBNL(2, **settings).fit(store)
    file.write_bytes(content)
    forged(file, change, arrays)
    with pytest.raises(PatchvoteError, match="state is damaged: remove it to begin anew"):
        SNBNL(2, **settings).fit(store)


def test_a_checkpoint_that_could_not_be_written_is_told_before_the_training(tmp_path):
    store, steps = make_store(tmp_path / "store"), []
    with pytest.raises(PatchvoteError, match="state cannot be written: there is no folder .*nowhere"):
        SNBNL(2, calibration=0, checkpoint=tmp_path / "nowhere" / "state", callback=steps.append).fit(store)
    for seconds in (-1, float("nan"), "often"):
        with pytest.raises(ValueError, match="checkpoint_seconds of SNBNL must be a number from 0"):
            SNBNL(2, checkpoint=tmp_path / "state", checkpoint_seconds=seconds, callback=steps.append).fit(store)
    assert not steps


def test_a_checkpoint_may_be_a_remote_file(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    store, settings = make_store(tmp_path / "store"), {"calibration": 0, "max_iter": 2, "min_steps": 0}
    whole = SNBNL(2, **settings).fit(store)
    settings["checkpoint"] = "memory://checkpoints/state"
    SNBNL(2, **settings, callback=lambda record: True).fit(store)
    assert fsspec.filesystem("memory").exists("/checkpoints/state")
    np.testing.assert_array_equal(SNBNL(2, **settings).fit(store).weights_, whole.weights_)


# --- progress --------------------------------------------------------------------------------------------------------


def test_records_come_within_a_pass_and_can_end_it(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "_SECONDS_BETWEEN", 0)
    store, records = make_store(tmp_path), []
    settings = {"batch_size": 100, "calibration": 0, "max_iter": 2, "min_steps": 0}
    SNBNL(2, **settings, callback=records.append).fit(store)
    within = [record for record in records if not record.get("complete", True)]
    assert len(records) == len(within) + 2
    assert [record["pass"] for record in records] == sorted(record["pass"] for record in records)
    assert all(record["descriptors_per_second"] > 0 and record["loss"] > 0 for record in within)
    assert within[-1]["seconds_left"] < within[0]["seconds_left"] + 1
    voter = SNBNL(2, **settings, callback=lambda record: record["steps"] == 5).fit(store)
    assert voter.steps_ == 5
    assert voter.history_[-1]["pass"] == 0


# --- moments that the store holds ------------------------------------------------------------------------------------


def loads_of(monkeypatch) -> list[int]:
    loads: list[int] = []
    original = Store.load

    def load(self, indices=None, dtype=np.float32):
        loads.append(len(self) if indices is None else len(indices))
        return original(self, indices, dtype)

    monkeypatch.setattr(Store, "load", load)
    return loads


@pytest.mark.parametrize("position_weight", [0, 1])
def test_whole_shards_need_no_pass_and_others_are_read(tmp_path, monkeypatch, position_weight):
    store = make_store(tmp_path)
    bags, labels = store.load()
    voter = SNBNL(block=100, position_weight=position_weight)
    for names, read in ((store.names, 0), (store.names[:45], 5), (store.names[:20], 0), (store.names[3:9], 6)):
        part = store.only(names)
        rows = np.isin(store.names, names)
        data, expected = voter._training_data(part, None, None), voter._training_data(bags[rows], labels[rows], None)
        loads = loads_of(monkeypatch)
        moments = data.moments()
        monkeypatch.undo()
        assert sum(loads) == read
        np.testing.assert_allclose(moments.mean, expected.moments().mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(moments.deviation(), expected.moments().deviation(), rtol=1e-6)


@pytest.mark.parametrize("change", ["power", "weight"])
def test_moments_that_do_not_apply_are_computed_in_a_pass(tmp_path, monkeypatch, change):
    store = make_store(tmp_path)
    bags, labels = store.load()
    weight = np.linspace(1, 2, 60) if change == "weight" else None
    voter = SNBNL(block=100, power=0.5 if change == "power" else 1)
    data = voter._training_data(store, None, weight)
    loads = loads_of(monkeypatch)
    moments = data.moments()
    assert sum(loads) == 60
    monkeypatch.undo()
    expected = voter._training_data(bags, labels, weight).moments()
    np.testing.assert_allclose(moments.mean, expected.mean, rtol=1e-5, atol=1e-6)


def test_a_photo_that_was_replaced_does_not_count_in_the_moments(tmp_path):
    make_store(tmp_path)
    bag = Bags(np.full((5, 8), 100, np.float16), [0, 5])
    write_shard(tmp_path, Recipe(), "f", [Entry("0003", "a", "new")], [bag])
    store = Store.open(tmp_path)
    moments, left = store.moments(np.arange(60))
    assert [store.names[index] for index in left] == [f"{index:04d}" for index in range(20) if index != 3]
    assert moments.weight == 40 * 20 + 5


def test_flipped_bits_of_the_moments_are_noticed(tmp_path):
    store = make_store(tmp_path, photos=20)
    (path,) = [shard.path for shard in store.shards]
    content, place = path.read_bytes(), store.shards[0].places["moments"]
    for byte in range(place.start, place.stop, 5):
        path.write_bytes(content[:byte] + bytes([content[byte] ^ 4]) + content[byte + 1 :])
        with pytest.raises(PatchvoteError, match="is damaged"):
            Store.open(tmp_path)
