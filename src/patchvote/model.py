"""The model: all that is needed to name photos, as one value and as one file.

The file is in the safetensors format: arrays, and a header of JSON with classes, recipe, fingerprint of the network,
settings, scores and a card for people. Reading it runs no code: it gives numbers and words, and every one of them is
checked before anybody uses it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .backbones.names import beside
from .errors import ModelError, PatchvoteError
from .files import write_atomically
from .reading import check_regular
from .recipe import Recipe

VERSION = 1
_KEY = "patchvote_model"
_MOST_BYTES = 1 << 40
_MOST_CLASSES = 100_000
_MOST_WORDS = 1 << 26  # bytes of the header

# Arrays of each kind of voter: name, number of axes, and the types that are right.
_FLOATS = ("float16", "float32", "float64")
_PROTOTYPES = {"weights": (3, _FLOATS), "mean": (1, _FLOATS), "scale": (1, _FLOATS)}
_MEMORY = {"memory_values": (2, _FLOATS), "memory_boxes": (2, _FLOATS), "memory_class": (1, ("int64",))}
_BANK = {
    "values": (2, _FLOATS),
    "class": (1, ("int64",)),
    "image": (1, ("int64",)),
    "boxes": (2, _FLOATS),
    "mean": (1, _FLOATS),
}
_LINEAR = {
    "linear": (2, _FLOATS),
    "bias": (1, _FLOATS),
    "vectors": (2, _FLOATS),
    "class": (1, ("int64",)),
}
KINDS = {
    "BagSVM": _LINEAR,
    "SNBNL": _PROTOTYPES | _MEMORY,
    "NBNL": _PROTOTYPES | _MEMORY,
    "NBNN": _BANK,
    "LocalNBNN": _BANK,
}


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
        _check(self)

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
    """Write a model to a file, whole or not at all."""
    told = {
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
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in model.arrays.items()}
    path = Path(path)
    try:
        write_atomically(path, [save(arrays, {_KEY: json.dumps(told, allow_nan=False)})])
    except OSError as error:
        raise ModelError(f"{path} cannot be written: {error.strerror or error}.") from error


def read_model(path: str | Path) -> Model:
    """Read a model from a file.

    Raises
    ------
    ModelError
        It is no model, is damaged, or was made by a later version.
    """
    path = Path(path)
    try:
        check_regular(path)
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise ModelError(f"{path} is not a model: {why}. `patchvote fit PHOTOS {path.name}` makes one.") from None
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ModelError(f"{path} is larger than any model.")
        with safe_open(path, framework="np") as file:
            told = _header(path, (file.metadata() or {}).get(_KEY))
            known = KINDS.get(told.get("kind", "")) if isinstance(told.get("kind"), str) else None
            if known is None:
                raise ModelError(f"{path} holds a voter that this version does not know: {told.get('kind')!r}.")
            names = set(file.keys())
            arrays = {name: file.get_tensor(name) for name in known if name in names}
    except (SafetensorError, OSError, RecursionError, UnicodeDecodeError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is not a model, or is damaged: {error}.") from error
    try:
        return _from_header(told, arrays)
    except ModelError as error:
        raise ModelError(f"{path} is damaged: {error}") from error
    except (PatchvoteError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: what its header says makes no sense ({error}).") from error


def _header(path: Path, text: str | None) -> dict[str, Any]:
    if text is None:
        raise ModelError(f"{path} is a safetensors file, but not a model of patchvote.")
    if len(text) > _MOST_WORDS:
        raise ModelError(f"{path} is damaged: its header has {len(text):,} characters.")
    try:
        told = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: its header is not JSON ({error}).") from error
    if not isinstance(told, dict):
        raise ModelError(f"{path} is damaged: its header is not a table.")
    version = told.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelError(f"{path} is damaged: it does not say which version of the format it has.")
    if version > VERSION:
        raise ModelError(
            f"{path} has version {version} of the format; this patchvote knows up to {VERSION}. "
            "Install a newer patchvote: pip install --upgrade patchvote"
        )
    return told


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _from_header(told: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Model:
    classes, settings, about = told["classes"], told["settings"], told.get("about", {})
    if not isinstance(classes, list) or not isinstance(settings, dict) or not isinstance(about, dict):
        raise ModelError("classes, settings or what is told about it are of a wrong type.")
    if not isinstance(told["positions"], bool) or not isinstance(told["fingerprint"], str):
        raise ModelError("positions or fingerprint are of a wrong type.")
    if not isinstance(told.get("card", ""), str):
        raise ModelError("the card is not text.")
    return Model(
        told["kind"],
        tuple(classes),
        Recipe.from_json(json.dumps(told["recipe"])),
        told["fingerprint"],
        settings,
        told["positions"],
        _number(told["temperature"], "temperature"),
        _number(told["threshold"], "threshold"),
        arrays,
        about,
        told.get("card", ""),
    )


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ModelError(f"{name} is {value!r}, not a number.")
    return float(value)


def _check(model: Model) -> None:
    """Refuse whatever a voter could not vote with; the message is put behind the name of the file."""
    classes, arrays = model.classes, model.arrays
    if not 2 <= len(classes) <= _MOST_CLASSES or not all(isinstance(label, str) and label for label in classes):
        raise ModelError(f"it needs from 2 to {_MOST_CLASSES:,} classes with names, and has {len(classes)}.")
    if list(classes) != sorted(set(classes)):
        raise ModelError("its classes are not in order, or one is there twice.")
    if not model.temperature > 0 or not math.isfinite(model.temperature) or not 0 <= model.threshold <= 1:
        raise ModelError(f"temperature {model.temperature} or threshold {model.threshold} are out of range.")
    for name, (axes, kinds) in KINDS[model.kind].items():
        if name not in arrays:
            raise ModelError(f"the array {name!r} is missing.")
        array = arrays[name]
        if array.ndim != axes or array.dtype.name not in kinds:
            raise ModelError(f"the array {name!r} has {array.ndim} axes of {array.dtype}.")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelError(f"the array {name!r} has numbers that are not finite.")
    if "linear" in arrays:
        _check_linear(model)
    elif "weights" in arrays:
        _check_prototypes(model)
    else:
        _check_bank(model)
    if model.features < 1:
        raise ModelError("its descriptors have no features.")


def _check_linear(model: Model) -> None:
    arrays, classes = model.arrays, len(model.classes)
    if len(arrays["linear"]) != classes or arrays["bias"].shape != (classes,):
        raise ModelError(f"votes of the shape {arrays['linear'].shape} do not fit {classes} classes.")
    if model.positions:
        raise ModelError("linear votes have no positions.")
    rows = len(arrays["vectors"])
    if arrays["vectors"].shape[1] != model.features or len(arrays["class"]) != rows:
        raise ModelError("the vectors of its photos do not fit its votes.")
    _check_numbers(arrays["class"], classes)
    power = model.settings.get("power")
    if isinstance(power, bool) or not isinstance(power, (int, float)) or not 0 < power <= 1:
        raise ModelError(f"power is {power!r}, not a number above 0, up to 1.")


def _check_bank(model: Model) -> None:
    arrays, classes = model.arrays, len(model.classes)
    rows = len(arrays["values"])
    if rows < classes or any(len(arrays[name]) != rows for name in ("class", "image", "boxes")):
        raise ModelError("its bank has arrays of different lengths.")
    if arrays["mean"].shape != (model.features,):
        raise ModelError("mean and bank have different numbers of features.")
    _check_rows(arrays["class"], arrays["boxes"], classes)
    if len(np.unique(arrays["class"])) != classes:
        raise ModelError("a class has no descriptor in the bank.")
    if arrays["image"].min() < -1:
        raise ModelError("its bank names images below 0.")


def _check_prototypes(model: Model) -> None:
    arrays = model.arrays
    prototypes, classes, dim = arrays["weights"].shape
    if prototypes < 1 or classes != len(model.classes) or arrays["mean"].shape != (dim,):
        raise ModelError(f"prototypes of the shape {arrays['weights'].shape} do not fit {len(model.classes)} classes.")
    if arrays["scale"].shape != (dim,):
        raise ModelError("scale and prototypes have different numbers of features.")
    q = model.settings.get("q")
    if q != "inf" and (isinstance(q, bool) or not isinstance(q, (int, float)) or not q >= 1):
        raise ModelError(f"q is {q!r}, not a number of at least 1.")
    values = arrays["memory_values"]
    if values.shape[1] != dim - 2 * model.positions or len(values) != len(arrays["memory_class"]):
        raise ModelError("the memory does not fit the prototypes.")
    if len(arrays["memory_boxes"]) != len(values):
        raise ModelError("the memory has arrays of different lengths.")
    _check_rows(arrays["memory_class"], arrays["memory_boxes"], classes)


def _check_numbers(numbers: npt.NDArray[Any], classes: int) -> None:
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < classes):
        raise ModelError("something belongs to a class that is not there.")


def _check_rows(numbers: npt.NDArray[Any], boxes: npt.NDArray[Any], classes: int) -> None:
    _check_numbers(numbers, classes)
    if boxes.shape[1] != 4 or (len(boxes) and not (boxes.min() >= 0 and boxes.max() <= 1)):
        raise ModelError("boxes are not within the photo.")
