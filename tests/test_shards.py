"""One shard: what is written is read, in every type, and damage and hostile headers are noticed."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from helpers.shards import changed_header, flip, make_bag, put, rewrite, same
from patchvote import Bags, Recipe, Store, StoreError
from patchvote.bags import shards
from patchvote.bags.shards import Entry, Shard, is_own_name, shard_files, write_shard
from patchvote.errors import DamagedShardError

# --- writing and reading --------------------------------------------------------------------------------------------


def test_a_header_has_what_was_written(tmp_path):
    entries = [Entry("a.jpg", None, "1", 5, 6), Entry("b.jpg", "sea", "2")]
    bags = [make_bag(seed, 1) for seed in (1, 2)]
    path = write_shard(tmp_path, Recipe("some.onnx"), "f", entries, bags, ["gone", "lost"])
    shard = Shard.open(path)
    assert (shard.path, shard.recipe, shard.fingerprint) == (path, Recipe("some.onnx"), "f")
    assert ([shard.entry(index) for index in range(2)], shard.forgotten) == (entries, ["gone", "lost"])
    assert (shard.offsets.tolist(), shard.dim) == ([0, 1, 2], 5)
    assert shard.kind == (Recipe().sampling, "after", "f", 5)
    assert is_own_name(path)
    assert path.name.split("-")[1] == str(os.getpid())


def test_bags_are_read_alone_or_together_into_every_type(tmp_path):
    expected = [make_bag(seed) for seed in range(3)]
    entries = [Entry(f"{seed}.jpg", "a", f"{seed}") for seed in range(3)]
    shard = Shard.open(write_shard(tmp_path, Recipe(), "f", entries, expected))
    for index, bag in enumerate(expected):
        assert shard.bag(index).values.dtype == np.float16
        same(shard.bag(index), bag)
    for target in (np.float16, np.float32, np.float64):
        order = [2, 0, 1, 0]
        found = [expected[index].astype(target) for index in order]
        for bag in found:
            bag.values[...], bag.boxes[...], bag.level[...] = 7, 7, 7
        shard.read_into(zip(order, found, strict=True))
        for index, bag in zip(order, found, strict=True):
            same(bag, expected[index].astype(target))


@pytest.mark.parametrize("sizes", [[3], [1, 0, 4], [4096, 1], [4095, 1, 1], [0]])
def test_the_moments_of_a_shard_are_those_of_all_its_descriptors(tmp_path, sizes):
    rng = np.random.default_rng(0)
    bags = []
    for size in sizes:
        boxes = np.sort(rng.random((size, 4), dtype=np.float32))
        bags.append(Bags(rng.normal(3, 2, (size, 2)).astype(np.float16), [0, size], boxes))
    path = write_shard(tmp_path, Recipe(), "f", [Entry(f"{i}", None, f"{i}") for i in range(len(sizes))], bags)
    shard = Shard.open(path)
    decoded = Bags.join([shard.bag(index) for index in range(len(sizes))])
    rows = np.hstack([decoded.values, (decoded.boxes[:, :2] + decoded.boxes[:, 2:]) / 2]).astype(np.float64)
    if len(rows):
        np.testing.assert_allclose(shard.moments[0], rows.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(shard.moments[1], ((rows - rows.mean(axis=0)) ** 2).sum(axis=0), rtol=1e-5)
    else:
        assert not shard.moments.any()


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
