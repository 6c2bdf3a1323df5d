"""Bags of made-up photos that test modules share."""

from __future__ import annotations

import numpy as np

from patchvote import Bags

NAMES = np.array(["land", "sea", "sky", "town"])
OTHER_CAMERA = np.array([1.0, 9.0, 0.5, 1.0, 4.0, 1.0])  # gains of the features of `photos`


def photos(
    count: int = 60, classes: int = 3, seed: int = 0, strength: float = 1.0
) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of features that are never negative, as after a rectifier; each class has a strong feature of its own."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    bags = [rng.random((int(rng.integers(3, 12)), 6)) ** 3 + strength * np.eye(6)[label] for label in labels]
    return bags, NAMES[labels]


def placed(images: int = 8, seed: int = 0, shift: float = 1.5) -> tuple[Bags, np.ndarray]:
    """Bags of three classes, with boxes: each class has a feature of its own, in some of its parts."""
    rng = np.random.default_rng(seed)
    bags = []
    for number in np.repeat([0, 1, 2], images):
        size = int(rng.integers(6, 12))
        values = rng.gamma(1.0, 1.0, (size, 5)) + shift * np.eye(5)[number] * (rng.random((size, 1)) < 0.5)
        corner = rng.random((size, 2)) * 0.8
        boxes = np.hstack([corner, corner + 0.2]).astype(np.float32)
        bags.append(Bags(values.astype(np.float32), np.array([0, size]), boxes))
    return Bags.join(bags), np.repeat(NAMES[:3], images)
