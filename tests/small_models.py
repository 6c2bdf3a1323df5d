"""A small model of each kind, made by hand, and files whose header says something else than they were written with."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import struct
from pathlib import Path

import numpy as np

from patchvote import Recipe
from patchvote.models.checks import expected_arrays
from patchvote.models.model import KINDS, Model, read_model
from patchvote.utils.checksums import checksum
from patchvote.utils.tensors import contents
from patchvote.voters.veto import veto_of


def prototypes_model(kind: str = "SNBNL", **changes) -> Model:
    rng = np.random.default_rng(0)
    arrays = {
        "weights": rng.normal(size=(2, 3, 8)).astype(np.float32),
        "mean": rng.normal(size=8),
        "scale": np.ones(8),
        "memory_values": rng.normal(size=(12, 6)).astype(np.float16),
        "memory_boxes": np.tile(np.array([0, 0.25, 0.5, 1], np.float32), (12, 1)),
        "memory_class": np.arange(12) % 3,
    }
    about = {"images": {"cat": 5, "dog": 6, "Käse <b>": 7}, "held_out": None, "tried": [], "seconds": {}}
    made = Model(
        kind, ("Käse <b>", "cat", "dog"), Recipe(), "abc", {"q": 2.0}, True, 1.5, 0.3, arrays, about, "# A card"
    )
    return dataclasses.replace(made, **changes)


def bank_model(kind: str = "NBNN") -> Model:
    rng = np.random.default_rng(0)
    arrays = {
        "values": rng.normal(size=(9, 6)).astype(np.float16),
        "class": np.arange(9) % 3,
        "image": np.arange(9),
        "boxes": np.tile(np.array([0, 0, 1, 1], np.float32), (9, 1)),
        "mean": np.zeros(6, np.float32),
    }
    return Model(kind, ("a", "b", "c"), Recipe(), "abc", {}, False, 1.0, 0.0, arrays)


def linear_model() -> Model:
    rng = np.random.default_rng(0)
    arrays = {
        "linear": rng.normal(size=(3, 6)),
        "bias": rng.normal(size=3),
        "vectors": rng.random(size=(12, 6)).astype(np.float32),
        "class": np.arange(12) % 3,
    }
    about = {"images": {"a": 4, "b": 4, "c": 4}, "chosen": {"words": "linear votes", "why": "as asked for"}}
    return Model("BagSVM", ("a", "b", "c"), Recipe(), "abc", {"power": 0.5, "C": 1.0}, False, 0.5, 0.1, arrays, about)


def adapted_model() -> Model:
    """A model that was adapted to other photos, and keeps what it was before."""
    model = linear_model()
    before = veto_of(model.arrays["linear"] + 0.1, model.arrays["bias"], 0.7, 0.4)
    return dataclasses.replace(model, arrays={**model.arrays, **before})


ALL_KINDS = {
    "BagSVM": linear_model(),
    "adapted BagSVM": adapted_model(),
    "SNBNL": prototypes_model(),
    "NBNL": prototypes_model("NBNL"),
    "NBNN": bank_model(),
    "LocalNBNN": bank_model("LocalNBNN"),
}


def header_of(path: Path) -> dict:
    """What the header of a model file says."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["patchvote_model"])


@functools.lru_cache(maxsize=8)
def _arrays(path: Path, modified: int) -> dict[str, np.ndarray]:
    return read_model(path).arrays


def with_header(whole: Path, path: Path, text: str, *, signed: bool = True) -> Path:
    """Write the model of `whole` with another header; signed as anybody could sign it, or not at all."""
    data = whole.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"] = {"patchvote_model": text}
    if signed:
        arrays = _arrays(whole, whole.stat().st_mtime_ns)
        kind = re.search(r'"kind": "(\w+)"', text)
        known = expected_arrays(kind[1], arrays) if kind and kind[1] in KINDS else arrays
        found = checksum([*contents({name: arrays[name] for name in known if name in arrays}), text.encode()])
        header["__metadata__"]["patchvote_checksum"] = found
    line = json.dumps(header).encode()
    line += b" " * (-len(line) % 8)
    path.write_bytes(struct.pack("<Q", len(line)) + line + data[8 + length :])
    return path


def same(one: Model, other: Model) -> bool:
    """Whether two models are the same, to the last bit."""
    fields = [field.name for field in dataclasses.fields(Model) if field.name != "arrays"]
    return (
        all(getattr(one, name) == getattr(other, name) for name in fields)
        and one.arrays.keys() == other.arrays.keys()
        and all(
            array.dtype == other.arrays[name].dtype
            and array.shape == other.arrays[name].shape
            and array.tobytes() == other.arrays[name].tobytes()
            for name, array in one.arrays.items()
        )
    )
