"""Estimate how long a protocol will take, from stored cells or from short trials."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backbones.names import parts_of
from ..models.photo_cost import seconds_per_photo
from .plan import Group, by_bags
from .runner import Runner
from .splits import Split
from .voters import voter_kind

_FEATURES = 1280  # per descriptor of the default network
_TIMED_PHOTOS = 2  # per network: a protocol may have many, and the estimate is to take seconds


def estimate(runner: Runner, groups: Sequence[Group]) -> tuple[float, float]:
    """Return the seconds that extraction will take, and those of the voters."""
    extraction = voting = 0.0
    trained: set[tuple[str, ...]] = set()  # for runs with stored cells: pairs with the same training photos train once
    speed = _products_per_second()
    for (recipe, networks), same_bags in by_bags(groups).items():
        names = runner.names(same_bags)
        for network, missing in runner.stores.missing(recipe, networks, names):
            if missing:
                photos = [runner.stores.photos[name] for name in missing]
                extractor = runner.stores.extractor(recipe, network)
                extraction += seconds_per_photo(extractor, photos, _TIMED_PHOTOS) * len(missing)
        sampling = runner.stores.extractor(recipe, parts_of(networks)[0]).recipe.sampling
        per_photo = getattr(sampling, "count", 0) or sum((side / 32) ** 2 for side in getattr(sampling, "sides", ()))
        for group in same_bags:
            split = runner.split(group)
            for voter in group.voters:
                training = (voter, recipe, networks, *split.train)
                kept = runner.results.read(group.run(runner.protocol, voter))
                if kept and kept["cells"]:
                    trains = training not in trained or voter_kind(voter).adapts
                    voting += _mean_seconds(kept["cells"], trains)
                    trained.add(training)
                else:
                    voting += _work(runner, voter, split, per_photo) / speed
    return extraction, voting


def _mean_seconds(cells: Sequence[dict[str, Any]], training: bool) -> float:
    """Return the mean seconds of a cell, with or without its training."""
    seconds = float(np.mean([cell["test_seconds"] for cell in cells]))
    return seconds + (float(np.mean([cell["train_seconds"] for cell in cells])) if training else 0.0)


def _work(runner: Runner, voter: str, split: Split, per_photo: float) -> float:
    """Return the approximate number of multiply-adds of a cell, for runs without stored cells."""
    classes = len({runner.labels[name] for name in split.train})
    descriptors = len(split.train) * per_photo, len(split.test) * per_photo
    return voter_kind(voter).work(*descriptors, _FEATURES, classes)


def _products_per_second() -> float:
    """Return the multiply-adds per second of a matrix product on this machine."""
    x = np.ones((512, 1280), np.float32)
    best = min(_seconds(lambda: x @ x.T) for _ in range(5))
    return float(512 * 512 * 1280 / best)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
