"""The file of a model: safetensors arrays, and a header of JSON with a checksum over the whole content.

Reading a file runs no code: it yields numbers and text, which are all checked before they are used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from ..bags.recipe import Recipe
from ..errors import ModelChangedError, ModelError, PatchvoteError
from ..photos.find import near_path
from ..utils.files import locked, open_regular, stamp, write_atomically
from ..utils.machine import memory
from ..utils.remote import RemotePath
from ..utils.remote import place as path_of
from ..utils.schema import brief, flag, listed, record, table, text, whole
from ..utils.tensors import (
    Place,
    check_bounds,
    checksum,
    content_of,
    contents,
    header_of,
    parse,
    read_arrays,
    read_header,
)
from ..voters.familiarity import ARRAYS, SETTINGS, Familiarity
from ..voters.registry import kind_of, scorer_class
from ..voters.scorer import MAX_NAME, Scorer, Spec
from .about import About, check_about
from .model import Model

VERSION = 3
_KEY, _CHECKSUM = "patchvote_model", "patchvote_checksum"
_ALGORITHM = "xxh3_64"  # name of the checksum in the header
_MAX_HEADER = 1 << 25  # characters of the header; in the file, where quotes are escaped, it may take twice as many
_OF = "familiarity."  # prefix of the arrays of a familiarity: names of a scorer's arrays have no dots
_ORDER = "The model comes first, then the photos; `patchvote fit PHOTOS MODEL` makes a model."
# Fields of a model that stand in the header as they are.
_PLAIN = ("fingerprint", "temperature", "threshold", "descriptors", "steps")
_LISTS = ("classes", "names", "digests")
# What `Model` does not check itself, or not before it uses it.
_HEADER = record(
    {
        "classes": listed(text(1 << 20)),
        "names": listed(text(1 << 15)),  # characters of the longest path of any system
        "digests": listed(text(64)),
        "descriptors": table(whole(0, 1 << 53), text(MAX_NAME)),
        "steps": whole(0, 1 << 53),
        "positions": flag,
        "about": check_about,
        **dict.fromkeys(("recipe", "settings", "fingerprint", "temperature", "threshold"), lambda value: None),
    }
)


def write_model(model: Model, path: str | Path) -> None:
    """Write a model and its checksum to a file, atomically."""
    about = model.about.to_plain()
    del about["seconds"]  # the same photos give the same file, however long that took
    header = {name: getattr(model, name) for name in ("kind", *_PLAIN, *_LISTS)} | {
        "version": VERSION,
        "recipe": json.loads(model.recipe.to_json()),
        "settings": model.scorer.settings,
        "positions": model.scorer.positions,
        "about": about,
        "checksum": _ALGORITHM,
    }
    if model.familiarity is not None:
        header["familiarity"] = model.familiarity.settings
    path, text = path_of(path), json.dumps(header, allow_nan=False)
    arrays = arrays_of(model)
    metadata = {_KEY: text, _CHECKSUM: checksum(itertools.chain(contents(arrays), [text.encode()]))}
    # Large numbers first, so that every array begins at a multiple of the size of its numbers.
    parts = {name: [array] for name, array in sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)}
    try:
        _check_length(text)
        check_bounds(text.encode())
        write_atomically(path, itertools.chain([header_of(parts, metadata)], content_of(parts)))
    except (OSError, ValueError) as error:  # a file with too many photos or classes could not be read again
        raise ModelError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.") from error


def read_model(path: str | Path) -> Model:
    """Read a model from a file, and verify its checksum."""
    path = path_of(path)
    with _opened(path) as file:
        metadata, places = read_header(file)
        header = _header(path, metadata.get(_KEY))
        scorer = _scorer_class(path, header.get("kind"))
        known = known_arrays(scorer)
        wanted = {name: places[name] for name in known if name in places}
        _check_places(wanted, known)
        arrays = read_arrays(file, wanted)
        computed = checksum(itertools.chain(contents(arrays), [metadata[_KEY].encode()]))
    if computed != metadata.get(_CHECKSUM):
        raise ModelError(
            f"{path} is damaged: its content does not have the checksum that it was written with. Take it from a "
            "backup, or fit it again."
        )
    try:
        return _from_header(scorer, header, arrays)
    except ModelError as error:
        raise ModelError(f"{path} is damaged: {error}") from error
    except (PatchvoteError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: its header makes no sense ({str(error)[:300]}).") from error


def arrays_of(model: Model) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a model's file: those of its scorer and, with their prefix, those of its familiarity."""
    own = {} if model.familiarity is None else model.familiarity.arrays
    return {**model.scorer.arrays, **{_OF + name: array for name, array in own.items()}}


def known_arrays(scorer: type[Scorer]) -> dict[str, Spec]:
    """Return the arrays that are read from the file of a model with such a scorer."""
    return {**scorer.schema.arrays, **scorer.schema.kept, **{_OF + name: spec for name, spec in ARRAYS.items()}}


def checksum_of(path: str | Path) -> str:
    """Return the checksum that a model file contains."""
    with _opened(path_of(path)) as file:
        return read_header(file)[0][_CHECKSUM]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file; errors while it is read become a `ModelError` that names the file."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise ModelError(
            f"{path} is not a model: there is no such file.{near_path(path)} "
            f"`patchvote fit PHOTOS {path.name}` makes one."
        ) from None
    except OSError as error:
        raise ModelError(f"{path} is not a model: {error.strerror}. {_ORDER}") from None
    try:
        with file:
            yield file
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise ModelError(f"{path} is not a model, or is damaged: {error}. {_ORDER}") from error
    except MemoryError as error:
        raise ModelError(f"{path} is larger than the memory of this machine.") from error


def _header(path: Path, text: str | None) -> dict[str, Any]:
    if text is None:
        raise ModelError(f"{path} is a safetensors file, but not a model of patchvote. {_ORDER}")
    _check_length(text)
    header = parse(text.encode())
    if header.get("version") != VERSION:
        raise ModelError(f"{path} was made by another version of patchvote: fit it again.")
    return header


def _check_length(text: str) -> None:
    if len(text) > _MAX_HEADER:
        raise ValueError(f"its header has {len(text):,} characters, more than {_MAX_HEADER:,}")


def _check_places(places: Mapping[str, Place], known: Mapping[str, Spec]) -> None:
    """Refuse arrays with an impossible type or size before memory is allocated: a file may claim any size."""
    for name, place in places.items():
        axes, types = known[name]
        if len(place.shape) != len(axes.split()) or place.dtype not in types:
            raise ValueError(f"the array {name!r} has {len(place.shape)} axes of {brief(place.dtype)}")
    if sum(place.stop - place.start for place in places.values()) > memory():
        raise MemoryError


def _scorer_class(path: Path, kind: Any) -> type[Scorer]:
    """Return the scorer class of this kind, which may belong to another package."""
    try:
        return scorer_class(kind_of(str(kind)))
    except PatchvoteError as error:
        raise ModelError(
            f"{path} holds a voter that this version does not know: {brief(kind)}. ({brief(str(error))})"
        ) from None


def _from_header(scorer: type[Scorer], header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Model:
    if (fault := _HEADER(header)) is not None:
        raise ModelError(f"{fault.lstrip('.')}.")
    scorer.check_settings(header["settings"])
    fields: dict[str, Any] = {name: header[name] for name in _PLAIN} | {name: tuple(header[name]) for name in _LISTS}
    return Model(
        scorer(arrays, header["settings"], len(header["classes"]), header["positions"]),
        recipe=Recipe.from_json(json.dumps(header["recipe"])),
        about=About.from_plain(header["about"]),
        familiarity=_familiarity(header.get("familiarity"), arrays),
        **fields,
    )


def _familiarity(settings: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Familiarity | None:
    """Return the familiarity of a file, checked as far as this is possible without the model; None if it has none."""
    own = {name: arrays[_OF + name] for name in ARRAYS if _OF + name in arrays}
    if settings is None and not own:
        return None
    if (fault := SETTINGS(settings)) is not None:
        raise ModelError(f"familiarity{fault}.")
    if missing := [name for name in ARRAYS if name not in own]:
        raise ModelError(f"the array {_OF + missing[0]!r} is missing.")
    return Familiarity(**own, rejection=float(settings["rejection"]))


@dataclasses.dataclass(frozen=True)
class Saved:
    """The file of a model, links resolved, and its stamp when it was last read or written: no change is lost."""

    place: Path | None = None
    seen: tuple[int, ...] | None = None

    @classmethod
    def read(cls, path: str | Path) -> tuple[Model, Self]:
        """Read a model, and the state of its file."""
        file = _resolved(path)
        seen = stamp(file)  # before reading: a change in between is detected later
        return read_model(path), cls(file, seen)

    def is_at(self, path: str | Path) -> bool:
        """Whether the model is stored in this file."""
        return self.place is not None and self.place == _resolved(path)

    def write(self, model: Model, path: str | Path) -> Self:
        """Write a model atomically, unless its file was changed meanwhile; return the new state of its file."""
        file = _resolved(path)
        with locked(file):
            if self.is_at(file) and stamp(file) != self.seen:
                raise ModelChangedError(
                    f"{path} was changed by another process since it was read: it was not written. Load it again and "
                    "repeat."
                )
            write_model(model, path)
            return type(self)(file, stamp(file))


def change_and_save(
    classifier: Any, change: Callable[[Any], Any], path: Path, *, reload: Callable[[], Any]
) -> tuple[Any, bool]:
    """Change a classifier's model and write it; if its file has changed meanwhile, reload it and change the new one.

    Return the classifier whose model was written, and whether it has changed. A model that has not is not written to
    the file that it was read from.
    """
    while True:  # whenever this process fails, another one has succeeded
        before = classifier.model
        change(classifier)
        changed = classifier.model is not before
        try:
            if changed or not classifier.is_from(path):
                classifier.save(path)
            return classifier, changed
        except ModelChangedError:
            classifier = reload()


def _resolved(path: str | Path) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise ModelError(f"path of a model must be the name of a file, got {path!r:.80}.")
    where = path_of(path)
    return where if isinstance(where, RemotePath) else Path(os.path.realpath(where))
