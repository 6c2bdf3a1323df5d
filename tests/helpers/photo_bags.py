"""Bags of made-up photos that test modules share."""

from __future__ import annotations

import numpy as np

from patchvote import Bags

NAMES = np.array(["land", "sea", "sky", "town"])
# Gains and offsets of the features of `scenes` with another camera.
GAINS, OFFSETS = np.exp(0.8 * np.random.default_rng(9).standard_normal(24)), np.random.default_rng(8).random(24) / 2


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


def scenes(count: int, seed: int, strength: float = 0.8) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of three classes that have each of many features, more or less, as photos have."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).gamma(0.4, 1.0, (3, 24))
    labels = np.arange(count) % 3
    bags = [np.abs(strength * centres[label] + rng.standard_normal((int(rng.integers(3, 12)), 24))) for label in labels]
    return bags, NAMES[labels]


def strangers(count: int = 25, seed: int = 5) -> list[np.ndarray]:
    """Bags of strong features that no class of `photos` has."""
    rng = np.random.default_rng(seed)
    other = 2.5 / 3 * np.array([0, 0, 0, 1, 1, 1])
    return [rng.random((int(rng.integers(3, 12)), 6)) ** 3 + other for _ in range(count)]
