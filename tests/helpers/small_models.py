"""A small model of each kind, made by hand, and files whose header says something else than they were written with."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import numpy as np

from patchvote import MomentRidge, Recipe
from patchvote.models.about import About
from patchvote.models.file import arrays_of, read_model
from patchvote.models.model import Model
from patchvote.utils.tensors import checksum, contents
from patchvote.voters.registry import scorer_class

SETTINGS = {"power": 0.5, "confidence": 0.5}


def remade(model: Model, *, arrays=None, settings=None, positions=None, **fields) -> Model:
    """Return a model with other arrays, settings or fields; every part of it is checked again."""
    old, classes = model.scorer, fields.get("classes", model.classes)
    scorer = type(old)(
        old.arrays if arrays is None else arrays,
        old.settings if settings is None else settings,
        len(classes),
        old.positions if positions is None else positions,
    )
    return dataclasses.replace(model, scorer=scorer, **fields)


def prototypes_model(kind: str = "snbnl", **changes) -> Model:
    rng = np.random.default_rng(0)
    arrays = {
        "weights": rng.normal(size=(2, 3, 8)).astype(np.float32),
        "mean": rng.normal(size=8),
        "scale": np.ones(8),
        "memory_values": rng.normal(size=(12, 6)).astype(np.float16),
        "memory_boxes": np.tile(np.array([0, 0.25, 0.5, 1], np.float32), (12, 1)),
        "memory_class": np.arange(12) % 3,
    }
    about = About(images={"cat": 5, "dog": 6, "Käse <b>": 7})
    scorer = scorer_class(kind)(arrays, {"q": 2.0, **SETTINGS}, 3, True)
    model = Model(scorer, ("Käse <b>", "cat", "dog"), Recipe(), "abc", 1.5, 0.3, about)
    return remade(model, **changes)


def bank_model(kind: str = "nbnn") -> Model:
    rng = np.random.default_rng(0)
    arrays = {
        "values": rng.normal(size=(9, 6)).astype(np.float16),
        "class": np.arange(9) % 3,
        "image": np.arange(9),
        "boxes": np.tile(np.array([0, 0, 1, 1], np.float32), (9, 1)),
        "mean": np.zeros(6, np.float32),
    }
    settings = {"n_neighbors": 1, "normalise": True, "search": "exact", "confidence": 0.5}
    return Model(scorer_class(kind)(arrays, settings, 3), ("a", "b", "c"), Recipe(), "abc", 1.0, 0.0)


def ridge_model() -> Model:
    rng = np.random.default_rng(0)
    bags, names = [rng.random((5, 6)) + np.eye(6)[number % 3] for number in range(12)], [f"{i}.jpg" for i in range(12)]
    scorer = MomentRidge().fit(bags, ["abc"[number % 3] for number in range(12)]).scorer()
    about = About(images={"a": 4, "b": 4, "c": 4}, method="by features")
    digests = tuple(f"{number:064x}" for number in range(12))
    return Model(scorer, ("a", "b", "c"), Recipe(), "abc", 0.5, 0.1, about, names=tuple(names), digests=digests)


def adapted_model() -> Model:
    """A model that was adapted to other photos, and keeps what it was before."""
    model = ridge_model().without_memory()
    arrays = model.scorer.arrays
    before = {"unadapted_linear": arrays["linear"] + 0.1, "unadapted_bias": arrays["bias"]}
    return remade(model, arrays={**arrays, **before}, about=About(adapted={"photos": 20}))


ALL_KINDS = {
    "moment-ridge": ridge_model(),
    "adapted": adapted_model(),
    "without memory": ridge_model().without_memory(),
    "snbnl": prototypes_model(),
    "nbnl": prototypes_model("nbnl"),
    "nbnn": bank_model(),
    "local-nbnn": bank_model("local-nbnn"),
}


def parts(path: Path) -> tuple[bytes, bytes]:
    """The header of a model file, and its arrays."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    return data[8:start], data[start:]


def joined(header: bytes, arrays: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + arrays


def header_of(path: Path) -> dict:
    """What the header of a model file says."""
    return json.loads(json.loads(parts(path)[0])["__metadata__"]["patchvote_model"])


@functools.lru_cache(maxsize=8)
def _signed(path: Path, modified: int) -> list:
    return list(contents(arrays_of(read_model(path))))


def with_header(whole: Path, path: Path, text: str, *, signed: bool = True) -> Path:
    """Write the model of `whole` with another header; signed as anybody could sign it, or not at all."""
    header, arrays = parts(whole)
    metadata = {"patchvote_model": text}
    if signed:
        metadata["patchvote_checksum"] = checksum([*_signed(whole, whole.stat().st_mtime_ns), text.encode()])
    path.write_bytes(joined(json.dumps(json.loads(header) | {"__metadata__": metadata}).encode(), arrays))
    return path


def same(one: Model, other: Model) -> bool:
    """Whether two models are the same, to the last bit."""
    return _all_of(one) == _all_of(other)


def _all_of(model: Model) -> list:
    scorer, fields = model.scorer, dataclasses.fields(Model)
    arrays = {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays_of(model).items()}
    rest = [getattr(model, field.name) for field in fields if field.name not in ("scorer", "familiarity")]
    return [arrays, scorer.kind, scorer.settings, scorer.positions, getattr(model.familiarity, "settings", 0), *rest]
