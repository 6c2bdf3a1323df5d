"""The file of a model.

It is in the safetensors format: arrays, and a header of JSON with classes, recipe, fingerprint of the network,
settings, scores and a card for people. Reading it runs no code: it gives numbers and words, and every one of them is
checked before anybody uses it. A checksum over all of it tells a damaged file from a whole one; files that were written
before there was one are read without.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from ..bags.recipe import Recipe
from ..errors import ModelError, PatchvoteError
from ..utils.checksums import checksum
from ..utils.files import write_atomically
from ..utils.machine import memory
from ..utils.reading import open_regular
from ..utils.schema import brief
from ..utils.tensors import Place, check_bounds, contents, empty, fill, parse, read_header
from ..voters.registry import kind_of, scorer_class
from ..voters.scorer import Scorer, Spec
from .about import About, check_about
from .model import Model

VERSION = 1
_KEY, _CHECKSUM = "patchvote_model", "patchvote_checksum"
_ALGORITHM = "xxh3_64"  # of the checksum, as the header names it
_MOST_BYTES = 1 << 40
_MOST_WORDS = 1 << 25  # characters of the header; in the file, where quotes are escaped, it may take twice as many
_STEERING = ("names", "descriptors", "steps")  # of what a file tells about a model, what the model itself needs


def write_model(model: Model, path: str | Path) -> None:
    """Write a model and its checksum to a file, whole or not at all."""
    told = model.about.to_plain() | {"descriptors": dict(model.descriptors), "steps": model.steps}
    header = {
        "version": VERSION,
        "kind": model.kind,
        "classes": list(model.classes),
        "recipe": json.loads(model.recipe.to_json()),
        "fingerprint": model.fingerprint,
        "settings": model.scorer.settings,
        "positions": model.scorer.positions,
        "temperature": model.temperature,
        "threshold": model.threshold,
        "about": told | ({"names": list(model.names)} if model.names else {}),
        "card": model.card,
        "checksum": _ALGORITHM,
    }
    path, text = Path(path), json.dumps(header, allow_nan=False)
    arrays = {name: np.ascontiguousarray(array) for name, array in model.scorer.arrays.items()}
    metadata = {_KEY: text, _CHECKSUM: checksum([*contents(arrays), text.encode()])}
    try:
        _check_length(text)
        check_bounds(text.encode())
        write_atomically(path, [save(arrays, metadata)])
    except OSError as error:
        raise ModelError(f"{path} cannot be written: {error.strerror or error}.") from error
    except ValueError as error:  # it could not be read again
        raise ModelError(
            f"{path} cannot be written: {error}. It has too many photos or classes for one file."
        ) from None


def read_model(path: str | Path) -> Model:
    """Read a model from a file, and verify its checksum where it has one.

    Raises
    ------
    ModelError
        It is no model, is damaged, or was made by a later version.
    """
    path = Path(path)
    with _opened(path) as file:
        metadata, places = read_header(file)
        header = _header(path, metadata.get(_KEY))
        scorer = _scorer_class(path, header.get("kind"))
        known = {**scorer.schema.arrays, **scorer.schema.kept}
        wanted = {name: places[name] for name in known if name in places}
        _check_places(wanted, known)
        arrays = empty(wanted)
        found = checksum(itertools.chain(fill(file, wanted, arrays), [metadata[_KEY].encode()]))
    if found != metadata.get(_CHECKSUM, found if "checksum" not in header else None):
        raise ModelError(
            f"{path} is damaged: its content does not have the checksum that it was written with. Take it from a "
            "backup, or fit it again."
        )
    try:
        return _from_header(scorer, header, arrays)
    except ModelError as error:
        raise ModelError(f"{path} is damaged: {error}") from error
    except (PatchvoteError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: what its header says makes no sense ({str(error)[:300]}).") from error


def checksum_of(path: str | Path) -> str | None:
    """Return the checksum that a model file carries; None for a file that was written before models had one."""
    with _opened(Path(path)) as file:
        return read_header(file)[0].get(_CHECKSUM)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file, and turn whatever reading it raises into a `ModelError` that names it."""
    try:
        file = open_regular(path)
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise ModelError(f"{path} is not a model: {why}. `patchvote fit PHOTOS {path.name}` makes one.") from None
    try:
        with file:
            if path.stat().st_size > _MOST_BYTES:
                raise ModelError(f"{path} is larger than any model.")
            yield file
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise ModelError(f"{path} is not a model, or is damaged: {error}.") from error
    except MemoryError as error:
        raise ModelError(f"{path} is larger than the memory of this machine.") from error


def _header(path: Path, text: str | None) -> dict[str, Any]:
    if text is None:
        raise ModelError(f"{path} is a safetensors file, but not a model of patchvote.")
    _check_length(text)
    header = parse(text.encode())
    version = header.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelError(f"{path} is damaged: it does not say which version of the format it has.")
    if version > VERSION:
        raise ModelError(
            f"{path} has version {brief(version)} of the format; this patchvote knows up to {VERSION}. "
            "Install a newer patchvote: pip install --upgrade patchvote"
        )
    return header


def _check_length(text: str) -> None:
    if len(text) > _MOST_WORDS:
        raise ValueError(f"its header has {len(text):,} characters, more than {_MOST_WORDS:,}")


def _check_places(places: Mapping[str, Place], known: Mapping[str, Spec]) -> None:
    """Refuse arrays that cannot be right before memory is taken for them: a file may claim any size without having it.

    Raises
    ------
    ValueError
        One has the wrong type or number of axes, or all together are too large.
    """
    for name, place in places.items():
        axes, types = known[name]
        if len(place.shape) != axes or place.dtype not in types:
            raise ValueError(f"the array {name!r} has {len(place.shape)} axes of {brief(place.dtype)}")
    if sum(place.stop - place.start for place in places.values()) > memory():
        raise MemoryError


def _scorer_class(path: Path, kind: Any) -> type[Scorer]:
    """Return what votes in a model of this kind, which may be a spelling of before or another package's."""
    try:
        if not isinstance(kind, str):
            raise PatchvoteError("its kind is no text.")
        return scorer_class(kind_of(kind))
    except PatchvoteError as error:
        raise ModelError(
            f"{path} holds a voter that this version does not know: {brief(kind)}. ({brief(str(error))})"
        ) from None


def _from_header(scorer: type[Scorer], header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Model:
    for name, kind, words in (("classes", list, "a list"), ("positions", bool, "true or false")):
        if not isinstance(header[name], kind):
            raise ModelError(f"{name} must be {words}, got {brief(header[name])}.")
    settings, told = header["settings"], header.get("about", {})
    if isinstance(settings, dict):
        settings = scorer.upgraded(settings)
    scorer.check_settings(settings)
    if (wrong := check_about(told)) is not None:
        raise ModelError(f"about{wrong}.")
    # What steers behaviour stands beside what is told, where files have always had it.
    about = About.from_plain({name: value for name, value in told.items() if name not in _STEERING})
    classes = tuple(header["classes"])
    return Model(
        scorer(arrays, settings, len(classes), header["positions"]),
        classes,
        Recipe.from_json(json.dumps(header["recipe"])),
        header["fingerprint"],
        _number(header["temperature"], "temperature"),
        _number(header["threshold"], "threshold"),
        about,
        header.get("card", ""),
        tuple(told.get("names", ())),
        told.get("descriptors", {}),
        told.get("steps", 0),
    )


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ModelError(f"{name} is {brief(value)}, not a number.")
    return float(value)
