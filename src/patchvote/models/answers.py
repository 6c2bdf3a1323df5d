"""Answers of a model for one photo: what it is called, and why."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import PatchvoteError, PhotoError
from .evidence import Evidence, Match
from .model import Model

_MOST_VOTES = 50_000_000  # of one photo, that evidence may hold: 400 MB


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a photo is called.

    Parameters
    ----------
    name : str
        The photo.
    label : str or None
        Its likeliest class; None where it could not be read.
    probability : float
        Of that class.
    runner_up : str or None
        The second likeliest class.
    runner_up_probability : float
        Of that one.
    rejected : bool
        Whether "none of these" is the better answer.
    error : PhotoError or None
        Why it could not be read.
    """

    name: str
    label: str | None
    probability: float = 0.0
    runner_up: str | None = None
    runner_up_probability: float = 0.0
    rejected: bool = False
    error: PhotoError | None = None


def answer_of(model: Model, name: str, bag: Bags) -> Answer:
    """Name a photo by its bag."""
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
    """Tell where the votes of a photo come from; `label` is the class to find matches for, the likeliest by default."""
    if len(bag.values) * len(model.classes) > _MOST_VOTES:
        raise PatchvoteError(
            f"{len(bag.values):,} parts voting for {len(model.classes):,} classes are more than fit in memory at once "
            f"({_MOST_VOTES:,} votes): a model of fewer classes or with fewer parts can be explained."
        )
    votes = model.scorer.votes(bag)
    evidence = Evidence(
        name, model.classes, votes.astype(np.float64), bag.boxes.astype(np.float64), model.probability(bag, votes)
    )
    wanted = evidence.ranking[0] if label is None else label
    evidence.number(wanted)
    rejected = bool(evidence.probability.max() < model.threshold)
    return dataclasses.replace(evidence, matches=_matches(model, bag, evidence, wanted), rejected=rejected)


def _matches(model: Model, bag: Bags, evidence: Evidence, label: str) -> tuple[Match, ...]:
    """Return the training parts that parts of the photo are like, those first that speak most for the class."""
    found = model.scorer.matches(bag, model.classes.index(label)) if model.names else None
    if found is None:
        return ()
    images, boxes, distances = found
    order = np.argsort(-evidence.advantage(label), kind="stable")
    return tuple(Match(_box(bag.boxes[i]), model.names[images[i]], _box(boxes[i]), float(distances[i])) for i in order)


def _box(edges: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    left, top, right, bottom = (float(edge) for edge in edges)
    return left, top, right, bottom
