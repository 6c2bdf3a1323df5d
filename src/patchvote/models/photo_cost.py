"""The time that a network takes per photo on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..bags.extract import Extractor
from ..photos.find import Photo, find_photos

_TIMED_PHOTOS = 6  # photos on which the time is measured, by default


def seconds_per_photo(extractor: Extractor, photos: Sequence[Photo], count: int = _TIMED_PHOTOS) -> float:
    """Return the seconds per photo that an extractor takes on this machine, from the file to the bag.

    Parameters
    ----------
    extractor : Extractor
        Extractor to measure.
    photos : sequence of Photo
        Photos to choose from, at least one.
    count : int
        Number of photos on which the time is measured, after one that is not counted.
    """
    first, *others = photos[:: max(1, len(photos) // (1 + count))][: 1 + count]
    for _ in extractor.stream([first]):  # the first call of a network allocates its memory
        pass
    others = others or [first]
    start = time.perf_counter()
    for _ in extractor.stream(others):
        pass
    return (time.perf_counter() - start) / len(others)


def example_photos() -> list[Photo]:
    """Return photos to measure with where the user names none: smooth images of 640 x 480 pixels."""
    y, x = np.mgrid[0:480, 0:640]
    images = [
        np.stack([127 + 120 * np.sin((x * (1 + shift) + y * channel) / 40) for channel in range(3)], axis=-1)
        for shift in range(1 + _TIMED_PHOTOS)
    ]
    return list(find_photos([image.astype(np.uint8) for image in images]))
