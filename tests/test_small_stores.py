"""Small stores: some descriptors of each photo, their mean, or codes of 8 bits."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import NBNN, SNBNL, Bags, BagSVM, Extractor, MomentSVM, Recipe, Store, StoreError, fill
from patchvote.bags.codes import LEVELS, encoded
from patchvote.bags.entries import Entry
from patchvote.bags.keep import ALL, Keep, Mean, Some, keep_of
from patchvote.bags.shard import Shard
from patchvote.bags.shard_writing import cast, write_shard
from patchvote.engines.local import LocalEngine
from patchvote.utils.moments import Moments

RECIPE = Recipe("quick", QUICK.sampling.__class__(sides=(128,)))  # 17 descriptors per square photo


@pytest.fixture
def photos(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    for label, colour in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for index in range(6):
            pixels = rng.normal(colour, 40, (128, 128, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{index}.png")
    return tmp_path / "photos"


def extractor(jobs: int = 1) -> Extractor:
    return Extractor(RECIPE, backbone=QuickNetwork(times=20), jobs=jobs)


def bags_of(folder: Path) -> dict[str, Bags]:
    return {name: bag for name, bag, _ in Store.open(folder).images()}


def same(one: Bags, other: Bags) -> None:
    for name in ("values", "offsets", "boxes", "level"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# --- some descriptors -----------------------------------------------------------------------------------------------


def test_a_store_keeps_so_many_descriptors_of_each_photo_with_that_of_the_whole_photo_first(photos, tmp_path):
    fill(tmp_path / "all", photos, extractor())
    filled = fill(tmp_path / "some", photos, extractor(), keep=5)
    assert filled.descriptors == 12 * 17  # those that were extracted
    whole, some = bags_of(tmp_path / "all"), bags_of(tmp_path / "some")
    for name, bag in some.items():
        assert bag.sizes.tolist() == [5]
        assert bag.level.tolist() == [0, 1, 1, 1, 1]
        rows = [row.tolist() for row in whole[name].values]
        places = [rows.index(row.tolist()) for row in bag.values]
        assert places == sorted(set(places))
        np.testing.assert_array_equal(bag.boxes, whole[name].boxes[places])
    assert len({tuple(bag.boxes[1:].ravel().tolist()) for bag in some.values()}) > 6  # other parts in every photo
    store = Store.open(tmp_path / "some")
    assert (store.keep, store.extracted.tolist(), store.sizes.tolist()) == ("5", [17] * 12, [5] * 12)


def test_the_choice_depends_on_the_content_of_a_photo_alone(photos, tmp_path):
    fill(tmp_path / "one", photos, extractor(), keep=5)
    renamed = tmp_path / "renamed"
    for number, path in enumerate(random.Random(1).sample(sorted(photos.rglob("*.png")), 12)):
        (renamed / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, renamed / path.parent.name / f"{number}.png")
    fill(tmp_path / "other", renamed, extractor(jobs=3), keep=5)

    def by_content(folder):
        store = Store.open(folder)
        return {
            entry.digest: bag.values.tolist() for entry, (_, bag, _) in zip(store.entries, store.images(), strict=True)
        }

    assert by_content(tmp_path / "one") == by_content(tmp_path / "other")


def test_a_photo_with_fewer_descriptors_keeps_them_all(photos, tmp_path):
    fill(tmp_path / "all", photos, extractor())
    fill(tmp_path / "many", photos, extractor(), keep=17)
    for name, bag in bags_of(tmp_path / "many").items():
        same(bag, bags_of(tmp_path / "all")[name])
    header = Shard.open(next((tmp_path / "many").iterdir()))
    assert header.entries.descriptors.tolist() == [0] * 12


@pytest.mark.parametrize("keep", [0, -1, True, 2.5, "some", "0", "064", "1e3", "²", "", None, 10**6, ["all"]])
def test_nonsense_is_not_something_to_keep(keep):
    with pytest.raises(StoreError, match="must be 'all', 'mean', or a number of descriptors from 1 to 100,000"):
        keep_of(keep)


# --- means ----------------------------------------------------------------------------------------------------------


def test_a_store_of_means_holds_the_means_of_the_whole_bags_bit_for_bit(photos, tmp_path):
    fill(tmp_path / "all", photos, extractor())
    fill(tmp_path / "means", photos, extractor(), keep="mean")
    whole, store = Store.open(tmp_path / "all"), Store.open(tmp_path / "means")
    np.testing.assert_array_equal(store.load()[0].values, whole.load(dtype=np.float16)[0].means())
    assert (store.keep, store.summary()["dtype"]) == ("mean", ["float32"])
    assert store.extracted.tolist() == whole.sizes.tolist()
    assert store.summary()["bytes"] < whole.summary()["bytes"] / 5


def test_linear_votes_learn_the_same_from_means_and_others_refuse_them(photos, tmp_path):
    fill(tmp_path / "all", photos, extractor())
    fill(tmp_path / "means", photos, extractor(), keep="mean")
    whole, means = Store.open(tmp_path / "all"), Store.open(tmp_path / "means")
    learned, expected = BagSVM().fit(means), BagSVM().fit(whole)
    np.testing.assert_array_equal(learned.linear_, expected.linear_)
    np.testing.assert_array_equal(learned.predict(means), expected.predict(whole))
    for voter in (SNBNL(), NBNN(), MomentSVM()):
        with pytest.raises(StoreError, match=f"keeps the mean of each photo, but {type(voter).__name__} needs desc"):
            voter.fit(means)
        with pytest.raises(StoreError, match="needs descriptors of its parts"):
            voter.fit(whole).predict(means)
    with pytest.raises(StoreError, match="keeps the mean of each photo, but this needs descriptors"):
        means.whole([0])
    same(whole.whole([3]), whole.load([3], np.float16)[0])


# --- codes of 8 bits ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([1e-7, 1e-3, 1.0, 300.0, 6e4]))
def test_codes_are_within_half_a_step_and_keep_zeros(seed, size, scale):
    rng = np.random.default_rng(seed)
    values = np.maximum(rng.normal(rng.normal(size=6) > 0, 1, (size, 6)), -0.5) * scale
    values[:, 0] = np.maximum(values[:, 0], 0)  # as after a ReLU
    values[:, 1] = scale  # never changes
    values = np.clip(values, -6.5e4, 6.5e4).astype(np.float32)
    codes = encoded(Bags.of([values]))
    low, step = codes.scales.astype(np.float64)
    exact = low + codes.values * step
    assert (np.abs(exact - values) <= step / 2 * 1.001 + 1e-30).all()
    np.testing.assert_allclose(codes.bag().values, exact, rtol=1e-5, atol=1e-6 * scale)
    assert (codes.bag().values[:, 0][values[:, 0] == 0] == 0).all()
    # A step is as small as float16 allows: little more than the range of the feature, divided by the number of steps.
    spread, half = np.ptp(values.astype(np.float64), axis=0), np.finfo(np.float16)
    slack = 2 * np.maximum(np.abs(values).max(axis=0) * float(half.eps), float(half.smallest_subnormal))
    assert (step <= (spread + slack) / LEVELS * 1.01 + float(half.smallest_subnormal)).all()


def test_a_store_of_codes_is_read_as_any_other(photos, tmp_path):
    fill(tmp_path / "all", photos, extractor(), dtype="float32")
    fill(tmp_path / "codes", photos, extractor(), dtype="uint8")
    store, whole = Store.open(tmp_path / "codes"), Store.open(tmp_path / "all")
    assert store.dtype == np.float32
    assert store.summary()["dtype"] == ["uint8"]
    for name, bag in bags_of(tmp_path / "codes").items():
        expected = encoded(bags_of(tmp_path / "all")[name])
        same(bag, expected.bag())
    halves = store.load(dtype=np.float16)[0]
    np.testing.assert_array_equal(halves.values, store.load()[0].values.astype(np.float16))
    for voter in (BagSVM(), MomentSVM(), SNBNL(2), NBNN()):
        assert voter.fit(store).score(whole.load()[0], whole.labels) == 1


def test_codes_of_a_photo_do_not_depend_on_its_company(photos, tmp_path, monkeypatch):
    fill(tmp_path / "together", photos, extractor(), dtype="uint8")
    monkeypatch.setattr("patchvote.bags.fill.SHARD_BYTES", 1)  # every photo is a shard
    fill(tmp_path / "alone", photos, extractor(jobs=2), dtype="uint8")
    assert (len(list((tmp_path / "together").iterdir())), len(list((tmp_path / "alone").iterdir()))) == (1, 12)
    for name, bag in bags_of(tmp_path / "alone").items():
        same(bag, bags_of(tmp_path / "together")[name])


def test_codes_of_means_and_numbers_beyond_float16_are_refused(photos, tmp_path):
    with pytest.raises(StoreError, match="codes of 8 bits need several descriptors"):
        fill(tmp_path / "store", photos, extractor(), keep="mean", dtype="uint8")
    with pytest.raises(Exception, match="does not fit into uint8"):
        cast("a.jpg", Bags.of([np.array([[1e5]], np.float32)]), "uint8")


# --- what all small stores share ------------------------------------------------------------------------------------

FORMS = [{"keep": 5}, {"keep": "mean"}, {"dtype": "uint8"}, {"keep": 5, "dtype": "uint8"}]


@pytest.mark.parametrize("form", FORMS)
def test_the_moments_of_shards_are_those_of_what_is_read(photos, tmp_path, form):
    fill(tmp_path / "store", photos, extractor(), **form)
    store, direct = Store.open(tmp_path / "store"), Moments()
    moments, left = store.moments(np.arange(12))
    assert len(left) == 0
    bags = store.load()[0]
    direct.update(np.concatenate([bags.values, (bags.boxes[:, :2] + bags.boxes[:, 2:]) / 2], axis=1))
    np.testing.assert_allclose(moments.mean, direct.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(moments.deviation(), direct.deviation(), rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_kept_is_what_the_store_keeps_unless_it_is_asked_otherwise(photos, tmp_path, form):
    (photos / "red" / "0.png").rename(tmp_path / "later.png")
    fill(tmp_path / "store", photos, extractor(), **form)
    (tmp_path / "later.png").rename(photos / "red" / "0.png")
    assert fill(tmp_path / "store", photos, extractor()).extracted == 1
    store = Store.open(tmp_path / "store")
    assert len(store) == 12
    assert store.keep == str(form.get("keep", "all"))
    assert len(store.summary()["dtype"]) == 1
    other = "all" if "keep" in form else "mean"
    with pytest.raises(StoreError, match="keeps .* of each photo, not .* of each photo. Choose another folder"):
        fill(tmp_path / "store", photos, extractor(), keep=other)


def test_bags_of_two_forms_do_not_mix(tmp_path):
    bag = Bags.of([np.ones((3, 5), np.float16)])
    write_shard(tmp_path, Recipe(), "f", [Entry("a", "x", "1")], [bag])
    write_shard(tmp_path, Recipe(), "f", [Entry("b", "x", "2")], [bag], keep=Some(3))
    with pytest.raises(StoreError, match="two kinds: .* has all descriptors of each photo, .* has at most 3 descri"):
        Store.open(tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_a_moved_photo_takes_what_is_kept_of_it_along(photos, tmp_path, form):
    network = QuickNetwork(times=20)
    fill(tmp_path / "store", photos, Extractor(RECIPE, backbone=network), **form)
    before = Store.open(tmp_path / "store")
    kept, calls = bags_of(tmp_path / "store")["red/5.png"], network.calls
    (photos / "red" / "5.png").rename(photos / "blue" / "moved.png")
    filled = fill(tmp_path / "store", photos, Extractor(RECIPE, backbone=network))
    assert (filled.reused, filled.extracted, filled.forgotten, network.calls) == (1, 0, 1, calls)
    same(bags_of(tmp_path / "store")["blue/moved.png"], kept)
    assert sorted(Store.open(tmp_path / "store").extracted.tolist()) == sorted(before.extracted.tolist())


@pytest.mark.parametrize("form", FORMS)
def test_workers_write_the_same(photos, tmp_path, form):
    fill(tmp_path / "one", photos, extractor(), **form)
    fill(tmp_path / "many", photos, extractor(), **form, engine=LocalEngine())
    for name, bag in bags_of(tmp_path / "many").items():
        same(bag, bags_of(tmp_path / "one")[name])


@pytest.mark.parametrize("form", FORMS)
def test_small_stores_may_be_remote(photos, tmp_path, form):
    fsspec = pytest.importorskip("fsspec")
    fill("memory://small/store", photos, extractor(), **form)
    try:
        fill(tmp_path / "store", photos, extractor(), **form)
        remote = Store.open("memory://small/store")
        assert remote.keep == Store.open(tmp_path / "store").keep
        same(remote.load()[0], Store.open(tmp_path / "store").load()[0])
    finally:
        fsspec.filesystem("memory").rm("/small", recursive=True)


def test_a_store_of_whole_bags_is_written_as_before(photos, tmp_path):
    fill(tmp_path / "store", photos, extractor())
    path = next((tmp_path / "store").iterdir())
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert set(header) == {"__metadata__", "values", "offsets", "boxes", "level", "moments", "checks"}
    assert "keep" not in header["__metadata__"]
    fields = json.loads(header["__metadata__"]["entries"])[0]
    assert list(fields) == ["name", "label", "digest", "size", "modified"]
    assert keep_of("all") == ALL == Keep()


# --- damage and hostile files ---------------------------------------------------------------------------------------


class Odd(Mean):
    """Keeps a mean, with a basis."""

    name = "odd 1"
    basis = np.arange(10, dtype=np.float32).reshape(2, 5)


def small_bag(seed: int) -> Bags:
    rng = np.random.default_rng(seed)
    boxes = np.sort(rng.random((4, 4), dtype=np.float32))
    return Bags(rng.normal(size=(4, 5)).astype(np.float32), np.array([0, 4]), boxes, rng.integers(0, 3, 4))


def small_store(folder: Path, form: str) -> Path:
    folder.mkdir()
    entries = [Entry(f"{seed}.jpg", "ab"[seed % 2], f"digest {seed}", 7, 10**18, 99) for seed in range(6)]
    keep = {"codes": ALL, "some": Some(4), "mean": Mean(), "basis": Odd()}[form]
    bags = [cast("", keep.of(small_bag(seed), "0"), "uint8" if form == "codes" else "float16") for seed in range(6)]
    return write_shard(folder, Recipe(), "f", entries, bags, keep=keep)


def everything(folder: Path) -> tuple:
    store = Store.open(folder)
    bags, labels = store.load()
    basis = None if store.basis is None else store.basis.tobytes()
    arrays = [array.tobytes() for array in (bags.values, bags.boxes, bags.level, bags.offsets)]
    return store.names, [vars(entry) for entry in store.entries], labels.tolist(), store.keep, basis, arrays


@pytest.mark.parametrize("form", ["codes", "some", "mean", "basis"])
def test_of_300_flipped_bits_of_a_small_store_none_changes_what_is_read_unnoticed(tmp_path, form):
    path = small_store(tmp_path / "store", form)
    data, expected = path.read_bytes(), everything(tmp_path / "store")
    for bit in random.Random(form).sample(range(8 * len(data)), 300):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            found = everything(tmp_path / "store")
        except StoreError:
            continue
        assert found == expected, f"bit {bit} changed something"
    path.write_bytes(data)
    assert everything(tmp_path / "store") == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 1])
def test_scales_that_are_no_numbers_are_damage_even_if_the_checksum_is_right(tmp_path, value, row):
    (tmp_path / "store").mkdir()
    codes = encoded(small_bag(0))
    codes.scales[row, 2] = value
    write_shard_of(tmp_path / "store", codes)
    with pytest.raises(StoreError, match="is damaged: what it holds of a.jpg is not what was written"):
        Store.open(tmp_path / "store").load()


def write_shard_of(folder: Path, codes) -> Path:
    with np.errstate(all="ignore"):
        return write_shard(folder, Recipe(), "f", [Entry("a.jpg", "x", "1")], [codes])


def test_a_negative_step_is_damage(tmp_path):
    codes = encoded(small_bag(0))
    codes.scales[1, 0] = -1
    write_shard_of(tmp_path, codes)
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(tmp_path).load()


def changed_header(path: Path, change) -> None:
    """Change the header of a shard, and give it the checksum that fits."""
    from patchvote.bags.shard import COVERED, check_of

    arrays, data = load_file(path), path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    line = json.dumps(header).encode()
    line += b" " * (-len(line) % 8)
    new = len(line).to_bytes(8, "little") + line
    content = bytearray(data[8 + length :])
    place = header["checks"]["data_offsets"][0]
    check = check_of([new, *(arrays[name] for name in COVERED if name in arrays)])
    content[place : place + 8] = check.to_bytes(8, "little")
    path.write_bytes(new + content)


def test_a_changed_header_with_a_fitting_checksum_is_read(tmp_path):
    path = small_store(tmp_path / "store", "codes")
    changed_header(path, lambda header: header["__metadata__"].update(keep="7"))
    assert Store.open(tmp_path / "store").keep == "7"


def shape(name, *size):
    return lambda header: header[name].update(shape=list(size))


HOSTILE = {
    "half the scales": ("codes", shape("scales", 6, 10)),
    "scales of another type": ("codes", lambda header: header["scales"].update(dtype="I16")),
    "codes without scales": ("codes", lambda header: header.update(other=header.pop("scales"))),
    "scales without codes": ("some", lambda header: header.update(scales=header.pop("level"))),
    "a basis of other features": ("basis", shape("basis", 5, 2)),
    "a basis with three axes": ("basis", shape("basis", 1, 2, 5)),
    "a basis that is a number": ("basis", shape("basis", 10)),
    "endless words": ("mean", lambda header: header["__metadata__"].update(keep="m" * 101)),
    "no words": ("mean", lambda header: header["__metadata__"].update(keep="")),
    "words of another type": ("mean", lambda header: header["__metadata__"].update(keep=5)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_headers_of_small_stores_are_refused_in_words(tmp_path, what):
    form, change = HOSTILE[what]
    path = small_store(tmp_path / "store", form)
    changed_header(path, change)
    with pytest.raises(StoreError) as error:
        Shard.open(path)
    assert len(str(error.value)) < 400


def test_a_basis_that_claims_more_than_a_machine_has_is_not_read(tmp_path):
    path = small_store(tmp_path / "store", "basis")
    rows = 1 << 36

    def grow(header):
        end = max(place["data_offsets"][1] for name, place in header.items() if name != "__metadata__")
        start = header["basis"]["data_offsets"][0]
        for name, place in header.items():
            if name != "__metadata__" and place["data_offsets"][0] > start:
                place["data_offsets"] = [offset + 20 * rows for offset in place["data_offsets"]]
        header["basis"].update(shape=[rows + 2, 5], data_offsets=[start, start + 20 * (rows + 2)])
        assert end

    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    grow(header)
    line = json.dumps(header).encode()
    path.write_bytes(len(line).to_bytes(8, "little") + line + data[8 + length :])
    with path.open("r+b") as file:
        file.truncate(8 + len(line) + len(data) - 8 - length + 20 * rows)  # takes no room on the disk
    with pytest.raises(StoreError, match="its basis does not fit its descriptors"):
        Shard.open(path)


def test_what_this_version_does_not_know_is_not_taken_for_descriptors(photos, tmp_path):
    fill(tmp_path / "store", photos, extractor(), keep="mean")
    changed_header(
        next((tmp_path / "store").iterdir()), lambda header: header["__metadata__"].update(keep="dreams of the future")
    )
    with pytest.raises(StoreError, match="keeps a summary of each photo, but BagSVM needs descriptors"):
        BagSVM().fit(Store.open(tmp_path / "store"))
    with pytest.raises(StoreError, match="keeps a summary of each photo, not all descriptors of each photo"):
        fill(tmp_path / "store", photos, extractor())


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_keeps_less_and_info_says_so(place, command):
    done = command("extract", "photos", "means", "--network", "tiny.onnx", "--keep", "mean")
    assert "Of these descriptors, it keeps the mean of each photo." in done.out
    assert done.code == 0
    assert "kept         the mean of each photo" in (told := command("info", "means").out)
    assert "stored as float32" in told
    assert "kB per photo" in told
    assert json.loads(command("info", "means", "--json").out)["keep"] == "mean"
    done = command("extract", "photos", "some", "--network", "tiny.onnx", "--keep", "2", "--dtype", "uint8")
    assert done.code == 0
    assert "kept         at most 2 descriptors of each photo" in (told := command("info", "some").out)
    assert "stored as uint8" in told
    assert command("extract", "photos", "some", "--network", "tiny.onnx").code == 0
    done = command("extract", "photos", "means", "--network", "tiny.onnx", "--keep", "all")
    assert done.code == 1
    assert "keeps the mean of each photo, not all descriptors of each photo" in done.err


def test_a_mistyped_keep_is_wrong_usage(place, command):
    done = command("extract", "photos", "bags", "--network", "tiny.onnx", "--keep", "means")
    assert done.code == 2
    assert "--keep: what a store keeps of each photo must be 'all', 'mean', or a number" in done.err
