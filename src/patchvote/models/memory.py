"""The memory of a model of prototypes: a few random descriptors of each class, which stand for all that were seen.

New photos are learned together with the memory, so that old classes are not forgotten though no old photo is at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from .model import Model

REMEMBERED = 256  # descriptors a class in a model's memory
_ADDING_STEPS = 100  # at least so many when photos are added; twice as many cost old classes half a point more


def add_prototypes(
    voter: Any, model: Model, bags: Bags, labels: npt.NDArray[np.str_], rng: np.random.Generator
) -> dict[str, npt.NDArray[Any]]:
    """Train the voter on new bags and memory; return the memory of both."""
    memory, old = _memory_bags(model)
    new = bags.astype(np.float32)
    both, y = Bags.join([memory, new]), np.concatenate([old, labels])
    weight = np.ones(len(both))
    # An old class counts as much as a new one. By number of photos, a new class of 20 beside old ones of 100 would be
    # recognised in half of its photos only.
    weight[: len(old)] = len(new.values) / len(np.unique(labels)) / memory.sizes
    steps, curvature = max(1, round(len(both.values) / voter.minibatch)), voter.curvature
    voter.curvature = max(curvature, 1.0)  # smaller steps than at first: old classes shall keep what they know
    for _ in range(-(-_ADDING_STEPS // steps)):
        voter.partial_fit(both, y, sample_weight=weight)
    voter.curvature = curvature
    return _merged_memory(model, new, labels, voter.classes_, rng)


def remember(
    bags: Bags, numbers: npt.NDArray[np.int64], classes: int, rng: np.random.Generator
) -> dict[str, npt.NDArray[Any]]:
    """Choose random descriptors of each class."""
    owner = numbers[bags.owner]
    rows = [rng.permutation(np.flatnonzero(owner == number))[:REMEMBERED] for number in range(classes)]
    chosen = np.concatenate(rows)
    return {
        "memory_values": bags.values[chosen].astype(np.float16),
        "memory_boxes": bags.boxes[chosen].astype(np.float32),
        "memory_class": owner[chosen].astype(np.int64),
    }


def _memory_bags(model: Model) -> tuple[Bags, npt.NDArray[np.str_]]:
    """Return the memory as a bag a class, and the classes."""
    number = model.arrays["memory_class"]
    order = np.argsort(number, kind="stable")
    there, sizes = np.unique(number, return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    values = model.arrays["memory_values"][order].astype(np.float32)
    return Bags(values, offsets, model.arrays["memory_boxes"][order]), np.array(model.classes)[there]


def _merged_memory(
    model: Model, new: Bags, labels: npt.NDArray[np.str_], classes: npt.NDArray[Any], rng: np.random.Generator
) -> dict[str, npt.NDArray[Any]]:
    """Return a memory of what was known and what is new, each in proportion to the descriptors that it stands for."""
    memory, known = _memory_bags(model)
    seen = model.about.get("descriptors", {})
    values, boxes, numbers = [], [], []
    for number, label in enumerate(classes.tolist()):
        old = memory[known == label] if (known == label).any() else None
        own = new[labels == label] if (labels == label).any() else None
        share = 0.0 if old is None else 1.0
        if old is not None and own is not None:
            before = seen.get(label, len(old.values))
            share = before / (before + len(own.values))
        for part, count in ((old, round(REMEMBERED * share)), (own, round(REMEMBERED * (1 - share)))):
            if part is not None and count:
                rows = rng.permutation(len(part.values))[:count]
                values.append(part.values[rows].astype(np.float16))
                boxes.append(part.boxes[rows])
                numbers.append(np.full(len(rows), number))
    return {
        "memory_values": np.concatenate(values),
        "memory_boxes": np.concatenate(boxes),
        "memory_class": np.concatenate(numbers).astype(np.int64),
    }
