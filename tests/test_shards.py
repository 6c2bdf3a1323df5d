"""One shard: what is written is read, in every type, and names and headers are taken for what they are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from helpers.shards import changed_header, flip_a_value, rewrite
from patchvote import Bags, PhotoError, Recipe, StoreError
from patchvote.bags import shard as shards
from patchvote.bags.entries import Entry
from patchvote.bags.shard import Shard, is_own_name, newest, number_of, set_aside, shard_files
from patchvote.bags.shard_writing import cast, write_shard
from patchvote.errors import DamagedShardError
from test_store import make_bag, put, same

OWN = f"{'1' * 20}-7-{'0a' * 6}.safetensors"


def write_as(folder: Path, dtype: str, seeds=range(3)) -> Path:
    folder.mkdir(exist_ok=True)
    bags = [cast("", make_bag(seed), dtype) for seed in seeds]
    return write_shard(folder, Recipe(), "f", [Entry(f"{seed}.jpg", "a", f"{seed}") for seed in seeds], bags)


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_header_has_what_was_written(tmp_path):
    entries = [Entry("a.jpg", None, "1", 5, 6), Entry("b.jpg", "sea", "2")]
    bags = [make_bag(seed, 1).astype(np.float32) for seed in (1, 2)]
    path = write_shard(tmp_path, Recipe("some.onnx"), "f", entries, bags, ["gone", "lost"])
    shard = Shard.open(path)
    assert (shard.path, shard.recipe, shard.fingerprint) == (path, Recipe("some.onnx"), "f")
    assert (list(shard.entries), shard.forgotten) == (entries, ("gone", "lost"))
    assert (shard.offsets.tolist(), shard.dim, shard.dtype) == ([0, 1, 2], 5, "float32")
    assert shard.order[0] == number_of(path)
    assert path.name == f"{number_of(path):020d}-{os.getpid()}-{shard.order[1][:12]}.safetensors"
    assert shard.owner.endswith(f"@{os.getpid()}")
    rows = np.concatenate([bag.values for bag in bags]).astype(np.float64)
    np.testing.assert_allclose(shard.moments[0, :5], rows.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(shard.moments[1, :5], ((rows - rows.mean(axis=0)) ** 2).sum(axis=0), atol=1e-6)
    assert shard.kind == (Recipe().sampling, "after", "f", 5)
    assert not shard.is_claim


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bags_are_read_alone_or_together_into_every_type(tmp_path, dtype):
    shard = Shard.open(write_as(tmp_path, dtype))
    expected = [cast("", make_bag(seed), dtype) for seed in range(3)]
    for index, bag in enumerate(expected):
        assert shard.bag(index).values.dtype == dtype
        same(shard.bag(index), bag)
    for target in (np.float16, np.float32, np.float64):
        order = [2, 0, 1, 0]
        found = [expected[index].astype(target) for index in order]
        for bag in found:
            bag.values[...], bag.boxes[...], bag.level[...] = 7, 7, 7
        shard.read_into(zip(order, found, strict=True))
        for index, bag in zip(order, found, strict=True):
            assert bag.values.dtype == target
            same(bag, expected[index].astype(target))


def test_reading_verifies_every_bag(tmp_path):
    path = write_as(tmp_path, "float16")
    flip_a_value(path)
    shard = Shard.open(path)
    with pytest.raises(DamagedShardError, match=r"is damaged: what it holds of \d.jpg is not what was written"):
        [shard.bag(index) for index in range(3)]
    path.unlink()
    with pytest.raises(StoreError, match=r"can no longer be read: .*Was the store moved or changed\?"):
        shard.bag(0)


def test_what_cannot_be_opened_is_told_in_words(tmp_path):
    with pytest.raises(StoreError, match=r"^none.safetensors cannot be read: No such file or directory\.$"):
        Shard.open(tmp_path / "none.safetensors")
    save_file({"weights": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(
        DamagedShardError, match=r"^model.safetensors is damaged, or no part of a store: its format is ''"
    ):
        Shard.open(tmp_path / "model.safetensors")
    (tmp_path / "text.safetensors").write_text("hello, this is not a shard")
    with pytest.raises(DamagedShardError, match="^text.safetensors is damaged, or no part of a store: "):
        Shard.open(tmp_path / "text.safetensors")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "patchvote-bags-9"}, "has the format 'patchvote-bags-9', not 'patchvote-bags-2'"),
        ({"recipe": "{}"}, "has metadata this version does not understand: "),
        ({"number": "1e9"}, "does not understand: its number is '1e9'"),
        ({"number": "٣"}, "does not understand: its number is"),
        ({"number": "1" * 31}, "does not understand: its number is"),
    ],
)
def test_a_header_that_is_as_it_was_written_but_not_understood_is_no_damage(tmp_path, change, says):
    path = put(tmp_path, [1])
    changed_header(path, lambda header: header["__metadata__"].update(change))
    with pytest.raises(StoreError, match=says) as error:
        Shard.open(path)
    assert not isinstance(error.value, DamagedShardError)


def test_the_largest_number_is_read(tmp_path):
    path = put(tmp_path, [1])
    changed_header(path, lambda header: header["__metadata__"].update(number="9" * 30))
    assert Shard.open(path).order[0] == 10**30 - 1


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("moments", {"dtype": "I64"}),
        ("moments", {"shape": [7, 2]}),
        ("offsets", {"dtype": "F64"}),
        ("checks", {"dtype": "F64"}),
        ("boxes", {"dtype": "I32"}),
        ("boxes", {"shape": [48, 2]}),
        ("level", {"dtype": "F16"}),
        ("values", {"dtype": "BF16"}),
        ("values", {"shape": [12, 10]}),
    ],
)
def test_an_array_of_another_type_or_shape_is_damage_even_with_the_right_checksum(tmp_path, array, change):
    path = put(tmp_path / "store", [1, 2, 3], size=4)
    Shard.open(path)
    changed_header(path, lambda header: header[array].update(change))
    with pytest.raises(DamagedShardError):
        Shard.open(path)


def test_descriptors_may_have_as_many_features_as_the_limit_and_no_more(tmp_path, monkeypatch):
    path = put(tmp_path, [1])
    monkeypatch.setattr(shards, "_MAX_FEATURES", 5)
    assert Shard.open(path).dim == 5
    monkeypatch.setattr(shards, "_MAX_FEATURES", 4)
    with pytest.raises(DamagedShardError, match="contradicts itself: its arrays do not fit its header"):
        Shard.open(path)


@pytest.mark.parametrize("offsets", [[1, 3, 5], [0, 6, 5], [0, 3, 4], [0, 3, 6]])
def test_offsets_that_do_not_rise_from_zero_to_the_end_are_damage(tmp_path, offsets):
    path = put(tmp_path, [1, 2])
    arrays = {name: array[:5] for name, array in load_file(path).items() if name in ("values", "boxes", "level")}
    for right, these in ((True, [0, 3, 5]), (False, offsets)):
        rewrite(path, {**arrays, "offsets": np.array(these)})
        if right:
            assert Shard.open(path).offsets.tolist() == these
        else:
            with pytest.raises(DamagedShardError, match="contradicts itself: its arrays do not fit its header"):
                Shard.open(path)


def test_a_checksum_of_the_header_that_was_lost_is_noticed(tmp_path):
    path = put(tmp_path, [1])
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
    arrays = load_file(path)
    del arrays["checks"], arrays["moments"]
    save_file(arrays, path, header)
    with pytest.raises(DamagedShardError, match="it has no checks"):
        Shard.open(path)


# --- order and names ------------------------------------------------------------------------------------------------


def test_the_newest_bag_of_each_photo_is_found_and_what_was_removed_is_not(tmp_path):
    nothing = Bags(np.empty((0, 5), np.float16), [0])
    first, second = Shard.open(put(tmp_path, [1, 2, 3])), Shard.open(put(tmp_path, [4, 2]))
    third = Shard.open(write_shard(tmp_path, Recipe(), "f", [], [nothing], ["003.jpg", "never.jpg"]))
    expected = {"001.jpg": (first, 0), "002.jpg": (second, 1), "004.jpg": (second, 0)}
    assert newest([third, first, second]) == expected
    assert newest([]) == {}
    assert (third.is_claim, first.is_claim) == (False, False)
    assert Shard.open(write_shard(tmp_path, Recipe(), "f", [], [nothing])).is_claim


def test_shards_are_files_with_the_ending_that_are_not_hidden_in_the_order_of_their_numbers(tmp_path):
    names = [
        "zzz.safetensors",
        f"{2:020d}-1-a.safetensors",
        f"{10**20}-1-a.safetensors",
        f"{3:020d}-1-b.safetensors",
        f"{3:020d}-1-a.safetensors",
    ]
    for name in (*names, ".hidden.safetensors", "notes.txt", "x.safetensors.damaged"):
        (tmp_path / name).touch()
    assert [path.name for path in shard_files(tmp_path)] == [names[index] for index in (0, 1, 4, 3, 2)]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (f"{'0' * 18}42-1-a", 42),
        (f"{'9' * 30}-1-a", 10**30 - 1),
        (f"{'9' * 31}-1-a", 0),
        (f"{'9' * 19}-1-a", 0),
        ("renamed", 0),
        (f"{'٣' * 20}-1-a", 0),
        (f"{'²' * 20}-1-a", 0),
        (f"a-{'9' * 20}-1", 0),
        ("1" * 20, int("1" * 20)),
    ],
)
def test_the_number_of_a_shard_is_at_the_start_of_its_name(name, number):
    assert number_of(Path("folder") / name) == number


@pytest.mark.parametrize(
    ("name", "own"),
    [
        (OWN, True),
        (OWN.replace("1" * 20, "1" * 30), True),
        (OWN.replace("1" * 20, "1" * 31), False),
        (OWN.replace("1" * 20, "1" * 19), False),
        (OWN.replace("-7-", "-77-"), True),
        (OWN.replace("-7-", "--"), False),
        (OWN.replace("0a", "0g"), False),
        (OWN.replace("0a" * 6, "0a" * 5), False),
        (OWN.replace(".safe", "xsafe"), False),
        (OWN + ".damaged", False),
        ("a" + OWN, False),
    ],
)
def test_a_name_is_our_own_or_not(name, own):
    assert is_own_name(Path("folder") / name) is own


def test_a_written_shard_has_a_name_of_our_own(tmp_path):
    assert is_own_name(put(tmp_path, [1]))


def test_what_is_set_aside_overwrites_nothing(tmp_path):
    names = []
    for content in ("one", "two", "three", "four"):
        path = tmp_path / "x.safetensors"
        path.write_text(content)
        moved = set_aside(path)
        assert moved.read_text() == content
        assert not path.exists()
        names.append(moved.name)
    assert names == [f"x.safetensors{number}.damaged" for number in ("", ".2", ".3", ".4")]
    assert shard_files(tmp_path) == []


# --- writing --------------------------------------------------------------------------------------------------------


def test_numbers_go_on_from_the_largest_that_is_known(tmp_path):
    far = 10**25
    assert number_of(write_shard(tmp_path, Recipe(), "f", [Entry("a", None, "1")], [make_bag(1)], after=far)) == far + 1
    assert number_of(put(tmp_path, [2])) == far + 2
    (tmp_path / f"{'9' * 30}-1-a.safetensors").touch()
    with pytest.raises(StoreError, match=f"has a file with the number {'9' * 30}, the largest possible"):
        put(tmp_path, [3])


@pytest.mark.parametrize("sizes", [[3], [1, 0, 4], [4096, 1], [4095, 1, 1], [5000, 5000, 2], [0]])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_moments_of_a_shard_are_those_of_all_its_descriptors(tmp_path, sizes, dtype):
    rng = np.random.default_rng(0)
    bags = []
    for size in sizes:
        boxes = np.sort(rng.random((size, 4), dtype=np.float32))
        bags.append(cast("", Bags(rng.normal(3, 2, (size, 2)).astype(np.float32), [0, size], boxes), dtype))
    path = write_shard(tmp_path, Recipe(), "f", [Entry(f"{i}", None, f"{i}") for i in range(len(sizes))], bags)
    shard = Shard.open(path)
    decoded = Bags.join([shard.bag(index) for index in range(len(sizes))])
    rows = np.hstack([decoded.values, (decoded.boxes[:, :2] + decoded.boxes[:, 2:]) / 2]).astype(np.float64)
    assert shard.moments.shape == (2, 4)
    if len(rows):
        np.testing.assert_allclose(shard.moments[0], rows.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(shard.moments[1], ((rows - rows.mean(axis=0)) ** 2).sum(axis=0), rtol=1e-5)
    else:
        assert not shard.moments.any()


@pytest.mark.parametrize("value", [1e30, np.inf, np.nan])
def test_moments_that_no_number_holds_are_written_without_a_warning(tmp_path, value):
    bag = Bags(np.array([[value, 1], [-value, 2]], np.float32), [0, 2])
    shard = Shard.open(write_shard(tmp_path, Recipe(), "f", [Entry("a", None, "1")], [bag]))
    assert not np.isfinite(shard.moments).all()
    np.testing.assert_allclose(shard.moments[:, 1], [1.5, 0.5])
    same(shard.bag(0), bag)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_bag_is_kept_in_the_type_of_the_store_if_it_fits(dtype):
    bag = make_bag(1).astype(np.float64)
    kept = cast("a.jpg", bag, dtype)
    assert kept.values.dtype == dtype
    same(kept, bag.astype(dtype))


@pytest.mark.parametrize(
    ("value", "dtype", "fits"),
    [
        (65504.0, "float16", True),
        (-65504.0, "float16", True),
        (65520.0, "float16", False),
        (-65520.0, "float16", False),
        (65520.0, "float32", True),
        (1e39, "float32", False),
        (np.nan, "float32", False),
        (-np.inf, "float32", False),
    ],
)
def test_a_number_that_the_type_of_the_store_does_not_hold_is_refused(value, dtype, fits):
    bag = Bags(np.array([[0.0], [value]]), [0, 2])
    if fits:
        cast("a.jpg", bag, dtype)
    else:
        advice = "Look at" if dtype == "float32" else "Keep them in float32"
        with pytest.raises(PhotoError, match=rf"^a.jpg: a descriptor of it .* does not fit into {dtype}\. {advice}"):
            cast("a.jpg", bag, dtype)
    cast("a.jpg", Bags(np.empty((0, 3)), [0, 0]), dtype)
