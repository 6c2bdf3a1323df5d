"""Codes of 8 bits: a bag whose numbers take one byte each, with an offset and a scale per feature.

Offsets and scales belong to the bag, not to the shard or the store: the codes of a photo then depend on the photo
alone, whatever is written beside it, in whatever order and by however many threads. They cost as much as four more
descriptors per bag. Both are float16, rounded so that the codes from 0 to 255 still cover all values; a feature whose
smallest value is 0 keeps its zeros exactly.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ..utils.float16 import to_float32
from .bags import Bags

LEVELS = 255  # steps between the smallest and the largest value of a feature


@dataclasses.dataclass(frozen=True, eq=False)
class Codes:
    """The bag of one photo, in codes.

    Parameters
    ----------
    values : array of shape (n, d), uint8
        Codes of the descriptors.
    scales : array of shape (2, d), float16
        Offset of each feature, and the step between two codes.
    boxes, level
        As in `Bags`.

    Examples
    --------
    >>> codes = encoded(Bags.of([np.array([[0.0, 7.0], [2.0, 7.0]], np.float32)]))
    >>> codes.values.tolist(), codes.bag().values.round(2).tolist()
    ([[0, 0], [255, 0]], [[0.0, 7.0], [2.0, 7.0]])
    """

    values: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.float16]
    boxes: npt.NDArray[np.float32]
    level: npt.NDArray[np.int16]

    @property
    def dim(self) -> int:
        """Number of features per descriptor."""
        return int(self.values.shape[1])

    def bag(self) -> Bags:
        """Return the bag that the codes stand for, in float32."""
        values = np.empty(self.values.shape, np.float32)
        decode(self.values, self.scales, values)
        return Bags(values, np.array([0, len(values)]), self.boxes, self.level)


def encoded(bag: Bags) -> Codes:
    """Return the bag of one photo in codes; its values must be within the range of float16."""
    values = to_float32(bag.values)
    scales = np.zeros((2, bag.dim), np.float16)
    if len(values):
        scales[0] = -_rounded_up(-values.min(axis=0))
        low = scales[0].astype(np.float32)
        scales[1] = _rounded_up((values.max(axis=0) - low) / LEVELS)
        step = scales[1].astype(np.float32)
        codes = np.rint((values - low) / np.where(step > 0, step, 1))
    else:
        codes = values
    return Codes(codes.astype(np.uint8), scales, bag.boxes, bag.level)


def decode(codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.float16], out: npt.NDArray[Any]) -> None:
    """Write the values that codes stand for into an array of floating-point numbers."""
    low, step = scales.astype(np.float32)
    values = out if out.dtype == np.float32 else np.empty(codes.shape, np.float32)
    np.multiply(codes, step, out=values)
    values += low
    if values is not out:
        out[...] = values


def are_sound(scales: npt.NDArray[np.float16]) -> bool:
    """Whether scales that were read from a file are numbers, and no step is negative.

    Examples
    --------
    >>> are_sound(np.array([[0.0], [1.0]], np.float16)), are_sound(np.array([[0.0], [np.nan]], np.float16))
    (True, False)
    """
    return bool(np.isfinite(scales).all()) and bool((scales[1] >= 0).all())


def _rounded_up(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Return the smallest float16 that is not below each value."""
    half = values.astype(np.float16)
    return np.asarray(np.where(half < values, np.nextafter(half, np.float16(np.inf)), half))
