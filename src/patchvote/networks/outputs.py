"""What networks return, checked against their specification.

A network may come from another package, or from the caller. One that returns too few rows, another order of axes or
cells for another stride would give bags whose boxes are wrong; it is refused in a sentence that names it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BrokenNetworkError, PatchvoteError, first_line
from ..utils.schema import brief
from .base import Backbone, HasWhole, NetworkSpec, Preprocessing

# How far the number of cells along a side may be from side / stride, as a factor and in cells: strides are rounded to
# powers of two (`stride_of`), and a network without padding has a cell less.
_RATIO, _CELLS = 1.5, 1


def descriptors(backbone: Backbone, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.floating[Any]]:
    """Return the descriptors of images: ``(n, rows, columns, d)``, or ``(n, d)`` where there is no stride.

    Raises
    ------
    BrokenNetworkError
        The network failed, or returned something else.
    """
    return _checked(backbone.spec, images, _called(backbone.spec, images, backbone))


def with_whole(
    backbone: Backbone, images: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.floating[Any]] | None]:
    """Return the descriptors of images, and those ``(n, d)`` of the whole images where the network has its own.

    Raises
    ------
    BrokenNetworkError
        The network failed, or returned something else.
    """
    spec = backbone.spec
    if spec.whole == "mean" or not isinstance(backbone, HasWhole):
        return descriptors(backbone, images), None
    maps, whole = _called(spec, images, backbone.with_whole)
    return _checked(spec, images, maps), _checked(dataclasses.replace(spec, stride=None), images, whole)


def _called(spec: NetworkSpec, images: npt.NDArray[np.uint8], network: Callable[..., Any]) -> Any:
    """Return what the code of a network returns; what it raises becomes one kind of error."""
    try:
        return network(images)
    except (PatchvoteError, MemoryError):
        raise
    except Exception as error:  # code of another package may raise anything
        raise BrokenNetworkError(
            f"the network {spec.name!r} failed for images of the shape {images.shape}: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error


def _checked(spec: NetworkSpec, images: npt.NDArray[np.uint8], outputs: Any) -> npt.NDArray[np.floating[Any]]:
    if (wrong := _fault(spec, images.shape, outputs)) is not None:
        raise BrokenNetworkError(f"the network {spec.name!r} returned {wrong}.")
    return np.asarray(outputs)


def _fault(spec: NetworkSpec, shape: tuple[int, ...], outputs: Any) -> str | None:
    """Return what is wrong with the outputs for images of a shape, and what was expected, or None."""
    count, height, width, _ = shape
    sides = () if spec.stride is None else (height, width)
    cells = tuple(max(1, round(side / (spec.stride or 1))) for side in sides)
    expected = f"an array of floating-point numbers of shape {(count, *cells, spec.dim)} for images of shape {shape}"
    if not isinstance(outputs, np.ndarray):
        return f"{brief(type(outputs).__name__)}, expected {expected}"
    if outputs.dtype.kind != "f":
        return f"an array of {outputs.dtype}, expected {expected}"
    found = outputs.shape
    if len(found) != 2 + len(cells) or found[0] != count or found[-1] != spec.dim or 0 in found:
        return f"an array of shape {found}, expected {expected}"
    for side, number in zip(sides, found[1:-1], strict=True):
        right = side / (spec.stride or 1)
        if not right / _RATIO - _CELLS <= number <= right * _RATIO + _CELLS:
            return f"an array of shape {found}, expected {expected}: its stride is {spec.stride} pixels"
    return None


def fault_of_spec(spec: NetworkSpec) -> str | None:
    """Return which field of a specification has a wrong type or value, or None.

    Examples
    --------
    >>> fault_of_spec(NetworkSpec("mine", 64, 224, "32", Preprocessing(), "after", "00ff", "out"))
    "stride must be a whole number, at least 1, or None, got '32'"
    """
    for name in ("dim", "size", "stride"):
        value, optional = getattr(spec, name), ", or None" if name == "stride" else ""
        if not (_is_whole(value) or (optional and value is None)):
            return f"{name} must be a whole number, at least 1{optional}, got {brief(value)}"
    for name in ("name", "weights", "output"):
        if not isinstance(getattr(spec, name), str) or not getattr(spec, name):
            return f"{name} must be text, and not empty, got {brief(getattr(spec, name))}"
    fixed = spec.fixed_size
    if fixed is not None and not (isinstance(fixed, tuple) and len(fixed) == 2 and all(map(_is_whole, fixed))):
        return f"fixed_size must be a tuple of height and width, or None, got {brief(fixed)}"
    if not isinstance(spec.preprocessing, Preprocessing):
        return f"preprocessing must be a Preprocessing, got {brief(spec.preprocessing)}"
    return None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
