from __future__ import annotations

import dataclasses
import json
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from helpers.small_models import ALL_KINDS, bank_model, header_of, prototypes_model, remade, same, with_header
from patchvote import ModelError
from patchvote.models.file import checksum_of, read_model, write_model
from patchvote.models.model import Model


@pytest.mark.parametrize("model", ALL_KINDS.values(), ids=ALL_KINDS)
def test_a_model_comes_back_as_it_was(model, tmp_path):
    write_model(model, tmp_path / "m")
    back = read_model(tmp_path / "m")
    assert same(back, model)


def tampered(model: Model, folder: Path, **changes) -> Path:
    """Write a model whose header says something else, and is signed as anybody could sign it."""
    write_model(model, folder / "whole")
    header = header_of(folder / "whole") | changes
    text = json.dumps({name: value for name, value in header.items() if value is not ...})
    return with_header(folder / "whole", folder / "tampered", text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 1}, "made by another version of patchvote: fit it again"),
        ({"version": "1"}, "does not say which version"),
        ({"version": ...}, "does not say which version"),
        ({"kind": "Forest"}, "a voter that this version does not know: 'Forest'"),
        ({"kind": ["SNBNL"]}, "does not know"),
        ({"kind": "nbnn", "settings": {}}, "the array 'values' is missing"),
        ({"kind": "nbnn"}, "'q' is not a setting of nbnn"),
        ({"classes": ["cat", "dog"]}, "do not fit 2 classes"),
        ({"classes": ["cat", "cat", "dog"]}, "one is there twice"),
        ({"classes": ["cat", 3, "dog"]}, "must be text"),
        ({"classes": []}, "from 2 to"),
        ({"classes": "cat"}, "classes must be a list"),
        ({"temperature": 0}, "temperature must be a number"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": 1e999}, "not JSON"),
        ({"threshold": 7}, "threshold must be a number"),
        ({"positions": 1}, "positions must be true or false"),
        ({"positions": False}, "memory does not fit"),
        ({"recipe": {"mode": "telepathy"}}, "not a recipe"),
        ({"recipe": ...}, "recipe is missing"),
        ({"settings": []}, "settings must be a table"),
        ({"settings": {"q": 0.5}}, "settings.q must be a number from 1 to 1e[+]30, got 0.5"),
        ({"settings": {"q": "two"}}, "settings.q must be a number .* got 'two'"),
        ({"settings": {}}, "settings.q is missing"),
        ({"about": 3}, "about must be a table"),
        ({"card": {}}, "card must be text"),
        ({"fingerprint": None}, "fingerprint must be text"),
    ],
)
def test_a_header_that_lies_is_refused_with_the_reason(changes, said, tmp_path):
    with pytest.raises(ModelError, match=said):
        read_model(tampered(prototypes_model(), tmp_path, **changes))


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        ("weights", np.full((2, 3, 8), np.nan, np.float32), "not finite"),
        ("weights", np.zeros((2, 3, 8), np.int8), "axes of int8"),
        ("weights", np.zeros((6, 8), np.float32), "2 axes"),
        ("weights", np.zeros((0, 3, 8), np.float32), "do not fit"),
        ("mean", np.zeros(7), "do not fit"),
        ("scale", np.zeros(7), "different numbers of features"),
        ("memory_class", np.full(12, 3), "not in the range from 0 to 2"),
        ("memory_class", np.arange(11) % 3, "memory does not fit"),
        ("memory_boxes", np.full((12, 4), 2, np.float32), "not within the photo"),
        ("memory_boxes", np.zeros((12, 3), np.float32), "not within the photo"),
        ("memory_values", np.zeros((12, 5), np.float16), "memory does not fit"),
    ],
)
def test_an_array_that_does_not_fit_is_refused_with_the_reason(name, array, said, tmp_path):
    good = prototypes_model()
    with pytest.raises(ModelError, match=said):
        remade(good, arrays={**good.scorer.arrays, name: array})


def hostile_files(folder: Path) -> dict[str, Path]:
    """Files that are no models, each in its own way."""
    write_model(prototypes_model(), folder / "good")
    good = (folder / "good").read_bytes()
    (length,) = struct.unpack("<Q", good[:8])
    deep = json.dumps({"__metadata__": {"patchvote_model": "[" * 100_000}}).encode()
    files = {
        "empty": b"",
        "one byte": b"\x80",
        "text": b"hello world, this is no model at all",
        "zeros": bytes(4096),
        "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R.",
        "zip": b"PK\x03\x04" + bytes(200),
        "huge header": struct.pack("<Q", 1 << 62) + good[8:],
        "negative header": b"\xff" * 8 + good[8:],
        "half": good[: len(good) // 2],
        "header only": good[: 8 + length],
        "too long": good + b"more",
        "other safetensors": save({"x": np.zeros(3)}),
        "deep json": struct.pack("<Q", len(deep)) + deep,
        "huge number": save({"x": np.zeros(3)}, {"patchvote_model": '{"version": ' + "9" * 10_000 + "}"}),
        "not a table": save({"x": np.zeros(3)}, {"patchvote_model": "[1]"}),
        "null": save({"x": np.zeros(3)}, {"patchvote_model": "null"}),
        "claims terabytes": save({"x": np.zeros(3)}).replace(b"[3]", b"[9]"),
    }
    paths = {}
    for name, data in files.items():
        paths[name] = folder / name
        paths[name].write_bytes(data)
    return paths


def test_a_folder_of_hostile_files_is_refused_file_by_file(tmp_path):
    for name, path in hostile_files(tmp_path).items():
        with pytest.raises(ModelError, match=str(path)) as told:
            read_model(path)
        assert len(str(told.value)) < 600, name


def test_what_is_not_a_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="there is no such file. `patchvote fit"):
        read_model(tmp_path / "absent")
    with pytest.raises(ModelError, match="patchvote fit .* makes a model of labelled photos in it"):
        read_model(tmp_path)


def test_mutated_files_load_with_valid_content_or_raise_the_one_error(tmp_path, monkeypatch):
    monkeypatch.setattr("patchvote.models.file.checksum", lambda content: f"{len(list(content)) < 0}")
    # With true checksums, hardly a mutated file would load.
    rng = np.random.default_rng(0)
    originals = []
    for model in (ALL_KINDS["moment-ridge"], prototypes_model(), bank_model()):
        write_model(model, tmp_path / "whole")
        originals.append(np.frombuffer((tmp_path / "whole").read_bytes(), np.uint8))
    path, loaded, refused = tmp_path / "mutated", 0, 0
    longest = 0.0
    for index in range(3000):
        data = originals[index % 3].copy()
        (length,) = struct.unpack("<Q", data[:8].tobytes())
        way = index % 7
        if way == 0:  # any bytes
            data[rng.integers(0, len(data), rng.integers(1, 9))] = rng.integers(0, 256)
        elif way == 1:  # one bit of the header
            data[rng.integers(0, 8 + length)] ^= 1 << rng.integers(0, 8)
        elif way == 2:  # cut off
            data = data[: rng.integers(0, len(data))]
        elif way == 3:  # a piece twice
            start, stop = np.sort(rng.integers(0, len(data), 2))
            data = np.concatenate([data[:stop], data[start:]])
        elif way == 4:  # a digit of the header
            digits = np.flatnonzero((data[: 8 + length] >= 48) & (data[: 8 + length] <= 57))
            data[rng.choice(digits)] = 48 + rng.integers(0, 10)
        elif way == 5:  # numbers of the arrays
            data[8 + length + rng.integers(0, len(data) - 8 - length, 4)] = rng.integers(0, 256, 4)
        else:  # the length of the header
            data[rng.integers(0, 8)] = rng.integers(0, 256)
        path.write_bytes(data.tobytes())
        began = time.perf_counter()
        try:
            model = read_model(path)
        except ModelError:
            refused += 1
        else:
            loaded += 1
            dataclasses.replace(model)  # checks itself again
            assert set(model.scorer.arrays) >= set(model.scorer.schema.arrays)
        longest = max(longest, time.perf_counter() - began)
    assert loaded > 180
    assert refused > 1200
    assert longest < 5


def test_a_mutated_file_takes_no_more_memory_than_the_file_is_large(tmp_path):
    # In a process of its own, whose peak is measured: a header that claims terabytes must not be believed.
    import subprocess
    import sys

    hostile_files(tmp_path)
    code = """
import resource, sys
from pathlib import Path
from patchvote.models.file import read_model
from patchvote import ModelError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in Path(sys.argv[1]).iterdir():
    try:
        read_model(path)
    except ModelError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200_000  # kB


def test_an_interrupted_write_leaves_the_model_that_was_there(tmp_path, monkeypatch):
    write_model(prototypes_model(), tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_model(bank_model(), tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_model_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(ModelError, match="cannot be written"):
        write_model(prototypes_model(), tmp_path / "no" / "folder")


# --- checksum ---------------------------------------------------------------------------------------------------------


def written(model: Model, path: Path) -> Path:
    write_model(model, path)
    return path


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_no_flipped_bit_changes_a_model_unnoticed(kind, tmp_path):
    model = ALL_KINDS[kind]
    data = written(model, tmp_path / "m").read_bytes()
    start = 8 * (8 + int.from_bytes(data[:8], "little"))  # of the arrays, of which every bit counts
    rng = np.random.default_rng(0)
    anywhere = rng.choice(8 * len(data), 300, replace=False).tolist()
    for bit in anywhere + rng.choice(np.arange(start, 8 * len(data)), 100, replace=False).tolist():
        (tmp_path / "flipped").write_bytes(flipped(data, bit))
        try:
            back = read_model(tmp_path / "flipped")
        except ModelError:
            continue
        else:  # it hit what means nothing, such as the name of the checksum
            assert bit < start
            assert same(back, model), f"bit {bit}"


def test_a_checksum_that_was_taken_off_is_missed(tmp_path):
    whole = written(ALL_KINDS["snbnl"], tmp_path / "m")
    bare = with_header(whole, tmp_path / "bare", json.dumps(header_of(whole)), signed=False)
    with pytest.raises(ModelError, match="does not have the checksum"):
        read_model(bare)


def test_the_checksum_depends_on_types_and_shapes_and_words(tmp_path):
    model = ALL_KINDS["snbnl"]
    kinds = [
        model,
        dataclasses.replace(model, card="# Another card"),
        remade(model, arrays={**model.scorer.arrays, "mean": model.scorer.arrays["mean"].astype(np.float32)}),
        remade(model, arrays={**model.scorer.arrays, "scale": model.scorer.arrays["mean"] ** 2 + 0.1}),
    ]
    assert len({checksum_of(written(one, tmp_path / "m")) for one in kinds}) == len(kinds)
