"""The model: all that is needed to name photos, as one value and as one file.

The file is in the safetensors format: arrays, and a header of JSON with classes, recipe, fingerprint of the network,
settings, scores and a card for people. Reading it runs no code: it gives numbers and words, and every one of them is
checked before anybody uses it. A checksum over all of it tells a damaged file from a whole one; files that were written
before there was one are read without.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from ..backbones.names import beside
from ..bags.recipe import Recipe
from ..errors import ModelError, PatchvoteError
from ..utils.checksums import checksum
from ..utils.files import write_atomically
from ..utils.reading import open_regular
from ..utils.schema import brief
from ..utils.tensors import check_bounds, contents, empty, fill, parse, read_header
from .checks import KINDS as KINDS
from .checks import check_arrays, check_certainty, check_names, check_types, expected_arrays
from .header import check_words

VERSION = 1
_KEY, _CHECKSUM = "patchvote_model", "patchvote_checksum"
_ALGORITHM = "xxh3_64"  # of the checksum, as the header names it
_MOST_BYTES = 1 << 40
_MOST_WORDS = 1 << 25  # characters of the header; in the file, where quotes are escaped, it may take twice as many


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """What was learned, from what, and how good it is.

    Parameters
    ----------
    kind : str
        Name of the voter: one of `KINDS`.
    classes : tuple of str
        What it tells apart, sorted.
    recipe : Recipe
        How a photo becomes a bag.
    fingerprint : str
        Of the network.
    settings : dict
        Of the voter.
    positions : bool
        Whether positions take part in the votes.
    temperature, threshold : float
        Of the probabilities, and of "none of these".
    arrays : dict of arrays
        What the voter learned.
    about : dict
        What people want to know: counts, scores, choices, times, as plain values.
    card : str
        The same in words, as Markdown.
    """

    kind: str
    classes: tuple[str, ...]
    recipe: Recipe
    fingerprint: str
    settings: dict[str, Any]
    positions: bool
    temperature: float
    threshold: float
    arrays: dict[str, npt.NDArray[Any]]
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    card: str = ""

    def __post_init__(self) -> None:
        check_types(self.kind, self.arrays)
        check_names(self.classes)
        check_certainty(self.temperature, self.threshold)
        check_words(self.kind, self.classes, self.settings, self.fingerprint, self.about, self.card)
        named = self.about.get("names")
        images = None if named is None else len(named)
        check_arrays(self.kind, self.arrays, len(self.classes), self.positions, self.settings, images)

    @property
    def features(self) -> int:
        """Features of a descriptor, without positions."""
        array = next(self.arrays[name] for name in ("linear", "weights", "values") if name in self.arrays)
        return int(array.shape[-1]) - 2 * self.positions


def network_of(model: Model, path: str | Path) -> str:
    """Return the network of a model that was read from `path`: embedded, or an ONNX file beside it.

    A network that was fine-tuned is written beside its model, and moves and is mailed with it.

    Raises
    ------
    UntypedNetworkError
        It is anything else, which is loaded only when the user types its name.
    """
    return beside(model.recipe.network, Path(path))


def write_model(model: Model, path: str | Path) -> None:
    """Write a model and its checksum to a file, whole or not at all."""
    header = {
        "version": VERSION,
        "kind": model.kind,
        "classes": list(model.classes),
        "recipe": json.loads(model.recipe.to_json()),
        "fingerprint": model.fingerprint,
        "settings": model.settings,
        "positions": model.positions,
        "temperature": model.temperature,
        "threshold": model.threshold,
        "about": model.about,
        "card": model.card,
        "checksum": _ALGORITHM,
    }
    path, text = Path(path), json.dumps(header, allow_nan=False)
    arrays = {name: np.ascontiguousarray(model.arrays[name]) for name in expected_arrays(model.kind, model.arrays)}
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
        kind = header.get("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            raise ModelError(f"{path} holds a voter that this version does not know: {brief(kind)}.")
        wanted = {name: places[name] for name in expected_arrays(kind, places) if name in places}
        arrays = empty(wanted)
        found = checksum(itertools.chain(fill(file, wanted, arrays), [metadata[_KEY].encode()]))
    if found != metadata.get(_CHECKSUM, found if "checksum" not in header else None):
        raise ModelError(
            f"{path} is damaged: its content does not have the checksum that it was written with. Take it from a "
            "backup, or fit it again."
        )
    try:
        return _from_header(header, arrays)
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


def _from_header(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Model:
    if not isinstance(header["classes"], list):
        raise ModelError(f"classes must be a list, got {brief(header['classes'])}.")
    if not isinstance(header["positions"], bool):
        raise ModelError(f"positions must be true or false, got {brief(header['positions'])}.")
    return Model(
        header["kind"],
        tuple(header["classes"]),
        Recipe.from_json(json.dumps(header["recipe"])),
        header["fingerprint"],
        header["settings"],
        header["positions"],
        _number(header["temperature"], "temperature"),
        _number(header["threshold"], "threshold"),
        arrays,
        header.get("about", {}),
        header.get("card", ""),
    )


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ModelError(f"{name} is {brief(value)}, not a number.")
    return float(value)
