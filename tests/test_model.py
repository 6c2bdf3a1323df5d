"""A model and its file: it comes back as it was, and whatever else a file holds is refused with a reason."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from helpers.small_models import (
    ALL_KINDS,
    bank_model,
    header_of,
    joined,
    parts,
    prototypes_model,
    remade,
    ridge_model,
    same,
    with_header,
)
from patchvote import NBNL, SNBNL, Dense, ImageClassifier, ModelError, PatchvoteError, Recipe
from patchvote.cli.info import info
from patchvote.cli.options import Printing
from patchvote.models.export import export_model
from patchvote.models.file import read_model, write_model
from patchvote.models.model import Model
from patchvote.networks import load
from patchvote.utils.machine import memory
from patchvote.voters.registry import kinds

KINDS = kinds()[:5]
RAW = "raw JSON: "  # before text that stands in the header as it is


def written(model: Model, path: Path) -> Path:
    write_model(model, path)
    return path


@pytest.mark.parametrize("model", ALL_KINDS.values(), ids=ALL_KINDS)
def test_a_model_comes_back_as_it_was(model, tmp_path):
    assert same(read_model(written(model, tmp_path / "m")), model)


# --- what is not a model ----------------------------------------------------------------------------------------------


def test_hostile_files_are_refused_one_by_one_and_take_no_memory(tmp_path):
    header, arrays = parts(written(prototypes_model(), tmp_path / "0"))
    good = joined(header, arrays)
    for number, data in enumerate(
        [
            b"",
            b"hello world, this is no model at all",
            bytes(4096),
            b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R.",
            struct.pack("<Q", 1 << 62) + good[8:],
            good[: len(good) // 2],
            joined(header, b""),
            good + b"more",
            joined(json.dumps({"__metadata__": {"patchvote_model": "[" * 100_000}}).encode(), b""),
            save({"x": np.zeros(3)}, {"patchvote_model": '{"version": ' + "9" * 10_000 + "}"}),
            save({"x": np.zeros(3)}, {"patchvote_model": "[1]"}),
            save({"x": np.zeros(3)}).replace(b"[3]", b"[9]"),  # claims terabytes, which must not be believed
        ]
    ):
        (tmp_path / str(number)).write_bytes(data)
    code = """
import resource, sys
from pathlib import Path
from patchvote import ModelError
from patchvote.models.file import read_model
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in Path(sys.argv[1]).iterdir():
    try:
        read_model(path)
    except ModelError as error:
        assert str(path) in str(error) and len(str(error)) < 600, error
    else:
        raise AssertionError(path)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200_000  # kB


# --- a header or an array that lies -----------------------------------------------------------------------------------


def changed(header, path, value):
    """The text of a header with another value in one place."""
    header = copy.deepcopy(header)
    inner = header
    for key in path[:-1]:
        inner = inner[key]
    raw = value[len(RAW) :] if isinstance(value, str) and value.startswith(RAW) else None
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value if raw is None else "@here@"
    text = json.dumps(header)
    return text if raw is None else text.replace('"@here@"', raw)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("version", 1, "another version"),
        ("kind", ["SNBNL"], "does not know"),
        ("classes", ["cat", "dog"], "2 classes"),
        ("classes", ["cat", "cat", "dog"], "twice"),
        ("classes", ["a", "b\0", "c"], "1,000 characters"),
        ("classes", ["", "b", "c"], "empty name"),
        ("classes", [], "from 2 to"),
        ("temperature", RAW + "1e999", "temperature"),
        ("temperature", RAW + "NaN", "NaN"),
        ("threshold", 7, "threshold"),
        ("positions", False, "memory"),
        ("recipe", {"mode": "dense", "sampling": {"k" * 10_000_000: 1}}, "recipe"),
        ("recipe", {"mode": "dense", "sampling": {"sides": [32] * 500_000}}, "16 sides"),
        ("settings", {}, "settings.q is missing"),
        ("about", RAW + "{" + ",".join(f'"{n}":0' for n in range(1_100_000)) + "}", "1,048,576 values"),
        ("about", {"images": {str(n): n for n in range(300_000)} | {"last": "x"}}, "last"),
        ("about", {"held_out": {"images": 1}}, "accuracy is missing"),
        ("about", {"curve": [{"photos": -1, "accuracy": 0.5}]}, "curve"),
        ("fingerprint", "f" * 60_000_000, "33,554,432"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_header_that_lies_is_refused_with_the_reason_within_two_seconds(name, value, said, tmp_path):
    whole = written(prototypes_model(), tmp_path / "whole")
    file = with_header(whole, tmp_path / "hostile", changed(header_of(whole), (name,), value))
    began = time.process_time()
    with pytest.raises(ModelError, match=said) as caught:
        read_model(file)
    assert time.process_time() - began < 2
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_a_header_is_read_as_strictly_as_by_the_safetensors_library(tmp_path):
    header, arrays = parts(written(prototypes_model(), tmp_path / "m"))
    for changed in (
        "\ufeff".encode() + header,
        header.decode().encode("utf-16"),
        b'{"__metadata__": {}, ' + header[1:],
        header.replace(b'"weights"', b'"mean"', 1),
    ):
        (tmp_path / "m").write_bytes(content := joined(changed, arrays))
        with pytest.raises(SafetensorError):
            deserialize(content)
        with pytest.raises(ModelError, match=r"not JSON|safetensors|one behind"):
            read_model(tmp_path / "m")


SNBNL_MODEL, NBNL_MODEL, BANK = prototypes_model(), prototypes_model("nbnl"), bank_model()


@pytest.mark.parametrize(
    ("model", "arrays", "said"),
    [
        (SNBNL_MODEL, {"weights": np.full((2, 3, 8), np.nan, np.float32)}, "finite"),
        (SNBNL_MODEL, {"weights": np.zeros((6, 8), np.float32)}, "2 axes"),
        (SNBNL_MODEL, {"weights": np.zeros((2, 3, 8), np.int8)}, "int8"),
        (SNBNL_MODEL, {"scale": np.zeros(7)}, "fit"),
        (SNBNL_MODEL, {"memory_class": np.arange(11) % 3}, "memory"),
        *((SNBNL_MODEL, {"scale": np.array([scale] * 8)}, "no scales") for scale in (0.0, -1.0, 1e-310, 1e35)),
        (SNBNL_MODEL, {"memory_class": np.full(12, 3)}, "range"),
        (SNBNL_MODEL, {"memory_boxes": np.full((12, 4), 2, np.float32)}, "photo"),
        (NBNL_MODEL, {"weights": np.full((2, 3, 8), 1e14), "scale": np.full(8, 1e4)}, "overflow"),
        (BANK, {"image": np.full(9, -1)}, "images"),
    ],
)
def test_an_array_that_does_not_fit_is_refused_with_the_reason(model, arrays, said):
    with pytest.raises(ModelError, match=said):
        remade(model, arrays={**model.scorer.arrays, **arrays})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e16, 1e38])
def test_arrays_so_large_that_votes_overflow_are_refused(kind, size):
    model = ALL_KINDS[kind]
    for name, array in model.scorer.arrays.items():
        if array.dtype in (np.float32, np.float64) and "boxes" not in name:
            large = array.copy()
            large.flat[-1] = -size
            with pytest.raises(ModelError, match="overflow|no scales|scales of its photos"):
                remade(model, arrays={**model.scorer.arrays, name: large})


def test_a_model_has_the_names_and_digests_of_the_photos_that_it_holds():
    model = ridge_model()
    for changes in ({"names": model.names[:-1]}, {"digests": model.digests[:-1]}):
        with pytest.raises(ModelError, match="12"):
            dataclasses.replace(model, **changes)


@pytest.mark.parametrize(("shape", "says"), [([2, memory() // 8 + 1], "memory of this"), ([2, 1 << 29, 1], "3 axes")])
def test_an_array_that_claims_what_cannot_be_right_takes_no_memory(shape, says, tmp_path):
    header, arrays = parts(written(ridge_model(), tmp_path / "m"))
    entries, size = json.loads(header), math.prod(shape) * 4
    entries["unused"] = entries["linear"]  # what lay there is read by nobody
    entries["linear"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(arrays), len(arrays) + size]}
    data = joined(json.dumps(entries).encode(), arrays)
    (tmp_path / "m").write_bytes(data)
    os.truncate(tmp_path / "m", len(data) + size)  # as large as it claims, but mostly a hole
    with pytest.raises(ModelError, match=says):
        read_model(tmp_path / "m")


# --- anything at all --------------------------------------------------------------------------------------------------


def test_mutated_files_load_with_valid_content_or_raise_the_one_error(tmp_path, monkeypatch):
    monkeypatch.setattr("patchvote.models.file.checksum", lambda content: f"{len(list(content)) < 0}")
    # With true checksums, hardly a mutated file would load.
    rng, models = np.random.default_rng(0), (ridge_model(), prototypes_model(), bank_model())
    originals = [np.frombuffer(written(model, tmp_path / "whole").read_bytes(), np.uint8) for model in models]
    path, loaded, refused = tmp_path / "mutated", 0, 0
    for index in range(600):
        data = originals[index % 3].copy()
        (length,) = struct.unpack("<Q", data[:8].tobytes())
        way = index % 5
        if way == 0:  # one bit of the header
            data[rng.integers(0, 8 + length)] ^= 1 << rng.integers(0, 8)
        elif way == 1:  # cut off
            data = data[: rng.integers(0, len(data))]
        elif way == 2:  # a piece twice
            start, stop = np.sort(rng.integers(0, len(data), 2))
            data = np.concatenate([data[:stop], data[start:]])
        elif way == 3:  # a digit of the header
            digits = np.flatnonzero((data[: 8 + length] >= 48) & (data[: 8 + length] <= 57))
            data[rng.choice(digits)] = 48 + rng.integers(0, 10)
        else:  # numbers of the arrays
            data[8 + length + rng.integers(0, len(data) - 8 - length, 4)] = rng.integers(0, 256, 4)
        path.write_bytes(data.tobytes())
        try:
            model = read_model(path)
        except ModelError:
            refused += 1
        else:
            loaded += 1
            dataclasses.replace(model)  # checks itself again
            assert set(model.scorer.arrays) >= set(model.scorer.schema.arrays)
    assert loaded > 35
    assert refused > 240


# What no header says that patchvote wrote; not in every place is it wrong.
NUMBERS = (None, True, -1, 0, 10**30, 1e300, RAW + "1e999")
NAMES = ("", "\x1b[2J\x1b]0;owned\x07", "../\udcff\u202e\n\r", "x" * 100_000)
TABLES = ([], [7], {}, {"x": 7}, RAW + "[" * 20 + "]" * 20, RAW + '{"a":' * 900 + "1" + "}" * 900)
HOSTILE = (*NUMBERS, *NAMES, *TABLES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, flowers):
    """A model of each kind, fitted on a few photos, with its network and photos beside it."""
    folder = shutil.copytree(flowers, tmp_path_factory.mktemp("models") / "m")
    recipe = Recipe(str(folder / "tiny.onnx"), Dense((64,)))
    voters = ("moment-ridge", SNBNL(2, max_iter=1), NBNL(2, max_iter=1), "nbnn", "local-nbnn")
    for kind, voter in zip(KINDS, voters, strict=True):
        ImageClassifier(recipe, voter=voter, cache=folder / "bags").fit(folder / "photos").save(folder / kind)
    return folder


@pytest.fixture(scope="module")
def network(folder):
    return load(str(folder / "tiny.onnx"))


def places(value, path=()):
    """Every place of a header, leaves and branches."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def use(path, folder, network):
    """Do with a model whatever a command does."""
    photo = folder / "photos" / "iris" / "0.jpg"
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), errors="replace")):  # as the command line does
        info(path, printing=Printing(as_json=True))
        info(path, card=True, printing=Printing())
    classifier = ImageClassifier.load(path, network=str(folder / "tiny.onnx"), backbone=network, cache=folder / "bags")
    (answer,) = classifier.answers([photo])
    assert np.isfinite(answer.likeliest_probability)
    classifier.explain([photo])
    classifier.evaluate([photo], [classifier.classes[0]])
    classifier.report(folder / "report.html", title="a", measured="b")
    with contextlib.suppress(PatchvoteError):
        export_model(classifier.model, folder / "graph.onnx", network=str(folder / "tiny.onnx"))
    classifier.add([np.full((64, 64, 3), 77, np.uint8)], ["new"])  # a photo that it does not know
    classifier.save(folder / "added")
    read_model(folder / "added")


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_stands_in_a_header_only_the_one_error_comes_out(kind, folder, network):
    header = header_of(folder / kind)
    refused = harmless = 0
    for number, path in enumerate(list(places(header))[1:]):
        for value in HOSTILE[(number + KINDS.index(kind)) % 6 :: 6]:
            file = with_header(folder / kind, folder / "hostile", changed(header, path, value))
            try:
                read_model(file)
                harmless += 1
                if harmless % 6 == 0:  # what was read has a type that all can rely on: some of them will do
                    use(file, folder, network)
            except PatchvoteError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"{path} = {str(value)[:60]!r}: {error!r}") from error
    assert refused > 40
    assert harmless > 10


def test_the_largest_weights_that_a_file_may_have_still_answer(folder, network):
    model = read_model(folder / "snbnl")
    arrays = {name: array.copy() for name, array in model.scorer.arrays.items()}
    arrays["weights"][...], arrays["mean"][...], arrays["scale"][...] = 9e14, 1e12, 1.0
    write_model(remade(model, arrays=arrays, temperature=1e-20), folder / "largest")
    classifier = ImageClassifier.load(folder / "largest", network=str(folder / "tiny.onnx"), backbone=network)
    assert np.isfinite(classifier.predict_proba([folder / "photos" / "iris" / "0.jpg"])).all()


# --- writing, and the checksum ----------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_written_or_read_again_is_not_written(tmp_path):
    with pytest.raises(ModelError, match="cannot be written"):
        write_model(prototypes_model(), tmp_path / "no" / "folder")
    with pytest.raises(ModelError, match="33,554,432"):
        write_model(dataclasses.replace(bank_model(), names=("n" * 1_000,) * 40_000), tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_no_flipped_bit_changes_a_model_unnoticed(kind, tmp_path):
    model = ALL_KINDS[kind]
    whole = written(model, tmp_path / "m")
    with pytest.raises(ModelError, match="checksum"):
        read_model(with_header(whole, tmp_path / "bare", json.dumps(header_of(whole)), signed=False))
    data = whole.read_bytes()
    start = 8 * (8 + int.from_bytes(data[:8], "little"))  # of the arrays, of which every bit counts
    rng = np.random.default_rng(0)
    anywhere = rng.choice(8 * len(data), 150, replace=False).tolist()
    for bit in anywhere + rng.choice(np.arange(start, 8 * len(data)), 50, replace=False).tolist():
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "flipped").write_bytes(damaged)
        try:
            back = read_model(tmp_path / "flipped")
        except ModelError:
            continue
        else:  # it hit what means nothing, such as the name of the checksum
            assert bit < start
            assert same(back, model), f"bit {bit}"
