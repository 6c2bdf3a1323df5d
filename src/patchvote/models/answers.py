"""Answers of a model for one photo: its class, and the evidence."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import PatchvoteError, PhotoError
from .evidence import Evidence, Match
from .model import Model

_MAX_VOTES = 50_000_000  # in the evidence of one photo: 400 MB as float64


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer for one photo.

    Parameters
    ----------
    name : str
        Name of the photo.
    label : str or None
        Likeliest class; None where the photo could not be read.
    probability : float
        Probability of that class.
    runner_up : str or None
        Second likeliest class.
    runner_up_probability : float
        Probability of the second likeliest class.
    rejected : bool
        Whether "none of these" is the better answer.
    error : PhotoError or None
        Reason why the photo could not be read.
    """

    name: str
    label: str | None
    probability: float = 0.0
    runner_up: str | None = None
    runner_up_probability: float = 0.0
    rejected: bool = False
    error: PhotoError | None = None


def answer_of(model: Model, name: str, bag: Bags) -> Answer:
    """Return the answer for a photo, given its bag."""
    probability = model.probability(bag)
    first, second = np.argsort(-probability, kind="stable")[:2]
    return Answer(
        name,
        model.classes[first],
        float(probability[first]),
        model.classes[second],
        float(probability[second]),
        bool(probability[first] < model.threshold),
    )


def evidence_of(model: Model, name: str, bag: Bags, label: str | None = None) -> Evidence:
    """Return the evidence of a photo; `label` is the class to find matches for, the likeliest by default."""
    if len(bag.values) * len(model.classes) > _MAX_VOTES:
        raise PatchvoteError(
            f"{len(bag.values):,} parts voting for {len(model.classes):,} classes are more than fit in memory at once "
            f"({_MAX_VOTES:,} votes): a model of fewer classes or with fewer parts can be explained."
        )
    votes = model.scorer.votes(bag)
    evidence = Evidence(
        name, model.classes, votes.astype(np.float64), bag.boxes.astype(np.float64), model.probability(bag, votes)
    )
    matched = evidence.ranking[0] if label is None else label
    evidence.number(matched)
    rejected = bool(evidence.probability.max() < model.threshold)
    return dataclasses.replace(evidence, matches=_matches(model, bag, evidence, matched), rejected=rejected)


def _matches(model: Model, bag: Bags, evidence: Evidence, label: str) -> tuple[Match, ...]:
    """Return the training parts nearest to parts of the photo, in the order of their votes for the class."""
    nearest = model.scorer.matches(bag, model.classes.index(label)) if model.names else None
    if nearest is None:
        return ()
    images, boxes, distances = nearest
    order = np.argsort(-evidence.advantage(label), kind="stable")
    return tuple(Match(_box(bag.boxes[i]), model.names[images[i]], _box(boxes[i]), float(distances[i])) for i in order)


def _box(edges: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    left, top, right, bottom = (float(edge) for edge in edges)
    return left, top, right, bottom
