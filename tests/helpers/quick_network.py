"""A network that takes no time: the mean and spread of the colours of each cell, and a constant."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from patchvote import Dense, ImageClassifier, Recipe
from patchvote.networks.base import NetworkSpec, Preprocessing

QUICK = Recipe("quick", Dense(sides=(64,)))
SHADES = ("dark", "grey", "light")


class QuickNetwork:
    """Describes cells of 32 px by 7 numbers, as many times as wanted; `delay` seconds per call."""

    def __init__(self, delay: float = 0.0, times: int = 1) -> None:
        self.delay, self.times, self.calls = delay, times, 0
        self.spec = NetworkSpec("quick", 7 * times, 64, 32, Preprocessing(), "after", "0" * 64, "out")

    def __call__(self, images):
        self.calls += len(images)
        time.sleep(self.delay)
        n, height, width, _ = images.shape
        cells = images.reshape(n, height // 32, 32, width // 32, 32, 3).astype(np.float32)
        mean, spread = cells.mean(axis=(2, 4)), cells.std(axis=(2, 4))
        once = np.concatenate([mean / 255, spread / 128, np.ones_like(mean[..., :1])], axis=-1)
        return np.tile(once, self.times)


def quick(voter="auto", cache: Path | bool = False, **more) -> ImageClassifier:
    return ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(), cache=cache, jobs=1, **more)


def loaded(path: Path, cache: Path | bool = False) -> ImageClassifier:
    return ImageClassifier.load(path, backbone=QuickNetwork(), cache=cache, jobs=1)


def noise(count: int, most: int = 256) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, most, (64, 64, 3)).astype(np.uint8) for _ in range(count)]


def shades(count: int, each: tuple[int, ...] | None = None) -> tuple[list[np.ndarray], list[str]]:
    """Photos of three shades in turn, or so many of each, and their labels."""
    numbers = np.arange(count) % 3 if each is None else np.repeat(np.arange(3), each)
    photos = [pixels + np.uint8(75 * number) for pixels, number in zip(noise(len(numbers), 90), numbers, strict=True)]
    return photos, [SHADES[number] for number in numbers]
