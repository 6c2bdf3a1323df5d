"""What the arrays and classes of a model must be, so that a voter can vote with them and every vote is a number.

Whoever holds a `Model` may rely on all of this: whatever does not hold is refused when the model is made or read.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from ..utils.float16 import all_finite
from ..utils.schema import brief
from ..voters.veto import ARRAYS as VETO
from ..voters.veto import fault

Arrays = dict[str, npt.NDArray[Any]]

MAX_NAME = 1_000  # characters of the name of a class; folders have at most 255

_MAX_CLASSES = 100_000

# Votes are sums of products in float32, which ends at 3e38: of weights with descriptors, or with their mean. With
# numbers up to this one a million products may be added up.
_MAX_NUMBER = 1e15
_SCALES = 1e-30, 1e30  # one over the deviation of a feature
_TEMPERATURES = 1e-20, 1e20  # votes divided by them stay well within float64

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


def expected_arrays(kind: str, names: Container[str]) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return the arrays of a voter: those that it needs and, of the veto of adapted models, those that are there.

    Parameters
    ----------
    kind : str
        Name of the voter: one of `KINDS`.
    names : container of str
        The arrays that are there.
    """
    veto = {name: own for name, own in VETO.items() if name in names} if kind == "BagSVM" else {}
    return KINDS[kind] | veto


def check_names(classes: tuple[str, ...]) -> None:
    """Refuse classes that no training can have made: too few, too many, without a name, not in order."""
    if not 2 <= len(classes) <= _MAX_CLASSES or not all(isinstance(label, str) and label for label in classes):
        raise ModelError(f"it needs from 2 to {_MAX_CLASSES:,} classes with names, and has {len(classes)}.")
    for label in classes:
        # Arrays of text end at a NUL, so that no training can have seen such a name.
        if len(label) > MAX_NAME or label[-1] == "\0":
            raise ModelError(f"a class must have a name of at most {MAX_NAME:,} characters, got {brief(label)}.")
    if list(classes) != sorted(set(classes)):
        raise ModelError("its classes are not in order, or one is there twice.")


def check_certainty(temperature: float, threshold: float) -> None:
    """Refuse a temperature at which probabilities would overflow, and a threshold that is no probability."""
    least, most = _TEMPERATURES
    if not least <= temperature <= most or not 0 <= threshold <= 1:
        raise ModelError(f"temperature {temperature} or threshold {threshold} are out of range.")


def check_types(kind: str, arrays: Arrays) -> None:
    """Refuse arrays that are missing, of a wrong type, or hold what is no number that can be computed with."""
    if kind not in KINDS:
        raise ModelError(f"there is no voter {brief(kind)}.")
    for name, (axes, types) in expected_arrays(kind, arrays).items():
        if name not in arrays:
            raise ModelError(f"the array {name!r} is missing.")
        if arrays[name].ndim != axes or arrays[name].dtype.name not in types:
            raise ModelError(f"the array {name!r} has {arrays[name].ndim} axes of {arrays[name].dtype}.")
        _check_size(name, arrays[name])


def check_arrays(
    kind: str, arrays: Arrays, classes: int, positions: bool, settings: dict[str, Any], images: int | None
) -> None:
    """Refuse arrays that do not fit each other, or that a voter could not vote with.

    Parameters
    ----------
    kind : str
        Name of the voter.
    arrays : dict of arrays
        What it learned, already of the right types.
    classes : int
        Number of classes.
    positions : bool
        Whether positions take part in the votes.
    settings : dict
        Settings of the voter, already checked.
    images : int or None
        Number of images that are named, where they are.
    """
    if "linear" in arrays:
        _check_linear(arrays, classes, positions)
    elif "weights" in arrays:
        _check_prototypes(arrays, classes, positions, settings)
    else:
        _check_bank(kind, arrays, classes, positions, settings)
        if images is not None and arrays["image"].max() >= images:
            raise ModelError("its bank has descriptors of more images than it names.")


def _check_size(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse numbers that are not finite, or so large that what is computed from them would not be."""
    if array.dtype.kind != "f" or not array.size:
        return
    if array.dtype == np.float16:  # its largest number is small enough
        largest = 0.0 if all_finite(array) else np.inf
    else:
        with np.errstate(invalid="ignore"):
            largest = max(float(array.max()), -float(array.min()))  # NaN where any number is
    if not np.isfinite(largest):
        raise ModelError(f"the array {name!r} has numbers that are not finite.")
    if name != "scale" and largest > _MAX_NUMBER:
        raise ModelError(f"the array {name!r} has a number of {largest:.3g}, so large that votes would overflow.")


def _check_linear(arrays: Arrays, classes: int, positions: bool) -> None:
    features = arrays["linear"].shape[1]
    if len(arrays["linear"]) != classes or arrays["bias"].shape != (classes,):
        raise ModelError(f"votes of the shape {arrays['linear'].shape} do not fit {classes} classes.")
    if features < 1:
        raise ModelError("its descriptors have no features.")
    if positions:
        raise ModelError("linear votes have no positions.")
    if arrays["vectors"].shape != (len(arrays["class"]), features):
        raise ModelError("the vectors of its photos do not fit its votes.")
    _check_every_class(arrays["class"], classes)
    if (wrong := fault(arrays, classes, features)) is not None:
        raise ModelError(wrong)


def _check_bank(kind: str, arrays: Arrays, classes: int, positions: bool, settings: dict[str, Any]) -> None:
    rows, dim = arrays["values"].shape
    if any(len(arrays[name]) != rows for name in ("class", "image", "boxes")):
        raise ModelError("its bank has arrays of different lengths.")
    if dim - 2 * positions < 1:
        raise ModelError("its descriptors have no features.")
    if arrays["mean"].shape != (dim - 2 * positions,):
        raise ModelError("mean and bank have different numbers of features.")
    _check_boxes(arrays["boxes"])
    fewest, neighbours = _check_every_class(arrays["class"], classes), settings.get("neighbours", 1)
    if kind == "NBNN" and fewest < neighbours:
        raise ModelError(f"a class has {fewest} descriptors, fewer than {neighbours} neighbours.")
    condensed, image = settings.get("condense") is not None, arrays["image"]
    if (image != -1).any() if condensed else image.min() < 0:  # centres come from no image, all else from one
        raise ModelError("its bank names images that are not there.")


def _check_prototypes(arrays: Arrays, classes: int, positions: bool, settings: dict[str, Any]) -> None:
    weights, values = arrays["weights"], arrays["memory_values"]
    prototypes, dim = weights.shape[0], weights.shape[2]
    if prototypes < 1 or weights.shape[1] != classes or arrays["mean"].shape != (dim,):
        raise ModelError(f"prototypes of the shape {weights.shape} do not fit {classes} classes.")
    if arrays["scale"].shape != (dim,):
        raise ModelError("scale and prototypes have different numbers of features.")
    if dim - 2 * positions < 1:
        raise ModelError("its descriptors have no features.")
    if settings.get("prototypes", prototypes) != prototypes:
        raise ModelError(f"its settings speak of {settings['prototypes']} prototypes, but it has {prototypes}.")
    if values.shape[1] != dim - 2 * positions or len(values) != len(arrays["memory_class"]):
        raise ModelError("the memory does not fit the prototypes.")
    if len(arrays["memory_boxes"]) != len(values):
        raise ModelError("the memory has arrays of different lengths.")
    _check_numbers(arrays["memory_class"], classes)
    _check_boxes(arrays["memory_boxes"])
    _check_reach(weights, arrays["scale"])


def _check_reach(weights: npt.NDArray[Any], scale: npt.NDArray[Any]) -> None:
    """Refuse prototypes whose products with descriptors would overflow, once standardisation is folded into them."""
    least, most = _SCALES
    if not (scale.min() >= least and scale.max() <= most):
        raise ModelError(f"the array 'scale' has numbers from {scale.min():.3g} to {scale.max():.3g}: no scales.")
    largest = np.maximum(weights.max(axis=(0, 1)), -weights.min(axis=(0, 1))).astype(np.float64) * scale
    if largest.max() > _MAX_NUMBER:
        raise ModelError("the arrays 'weights' and 'scale' are so large that votes would overflow.")


def _check_every_class(numbers: npt.NDArray[Any], classes: int) -> int:
    """Refuse numbers of classes that are not there, and classes without any; return how often the rarest is there."""
    _check_numbers(numbers, classes)
    fewest = int(np.bincount(numbers, minlength=classes).min())
    if fewest == 0:
        raise ModelError("there is nothing of one of its classes.")
    return fewest


def _check_numbers(numbers: npt.NDArray[Any], classes: int) -> None:
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < classes):
        raise ModelError("something belongs to a class that is not there.")


def _check_boxes(boxes: npt.NDArray[Any]) -> None:
    if boxes.shape[1] != 4 or (len(boxes) and not (boxes.min() >= 0 and boxes.max() <= 1)):
        raise ModelError("boxes are not within the photo.")
