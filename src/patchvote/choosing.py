"""Choosing a voter's settings: a few candidates, each tried on images that it has not seen, within a budget of time.

With many images a fifth of them is held out once. With few, every image is held out in turn (cross-validation), so that
even twenty photos say how sure one can be. Candidates are compared by the log loss of their probabilities, which tells
more than the share of right answers where images are few. A later candidate must be better than chance differences
would make it, or the earlier one, which did well on other data, stays.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from .bags import Bags
from .labels import hold_out
from .prototype_voter import PrototypeVoter
from .voter import fit_temperature
from .voting import softmax

_MANY = 400  # images from which on one split is enough
_SHARE = 0.2  # of the images, held out
_FOLDS = 5


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Settings to try, and in words what they are."""

    words: str
    voter: Any


@dataclasses.dataclass(frozen=True)
class Tried:
    """What a candidate came to on images that it had not seen."""

    words: str
    accuracy: float
    loss: float
    seconds: float


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """The candidate that did best, and what is known of it.

    Attributes
    ----------
    candidate : Candidate
        The one to train on all images.
    tried : list of Tried
        What was tried, in order.
    images : array of int
        Numbers of the images that were held out; empty where there were too few.
    probability : array of shape (images, classes)
        What the best candidate answered for them.
    temperature, threshold : float
        Set on them.
    why : str
        The reason, for people.
    voters : list of estimators
        Those that answered, one a split.
    voter_of : array of int
        Which of them answered for each image.
    """

    candidate: Candidate
    tried: list[Tried]
    images: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    temperature: float
    threshold: float
    why: str
    voters: list[Any] = dataclasses.field(default_factory=list)
    voter_of: npt.NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))


def choose(
    candidates: Sequence[Candidate],
    bags: Bags,
    numbers: npt.NDArray[np.int64],
    *,
    budget: float,
    whole: Callable[[npt.NDArray[np.int64]], Bags] | None = None,
    rejection: float = 0.05,
    seed: int = 0,
    tell: Callable[[list[Tried]], None] | None = None,
) -> Choice:
    """Try candidates on held-out images, the most promising first, as long as the next is likely to fit the budget.

    Parameters
    ----------
    candidates : sequence of Candidate
        The first is tried in any case.
    bags : Bags
        The images.
    numbers : array of int
        Number of the class of each, from 0.
    budget : float
        Seconds.
    whole : function, optional
        From numbers of images to their bags as they will be asked about, where `bags` holds a part of them only.
    rejection : float
        Share of the rightly named held-out images that "none of these" may cost.
    seed : int
        Of the split.
    tell : function, optional
        Called after each trial with all of them.
    """
    splits = _splits(numbers, seed)
    count = int(numbers.max()) + 1
    if not splits:
        none = np.zeros((0, count))
        why = "one image a class leaves none to try settings on"
        return Choice(candidates[0], [], np.zeros(0, np.int64), none, 1.0, 0.0, why)
    images = np.concatenate([out for _, out in splits])
    asked = [whole(out) if whole is not None else bags[out] for _, out in splits]
    tried: list[Tried] = []
    best: tuple[npt.NDArray[Any], Candidate, npt.NDArray[Any], float, list[Any]] | None = None
    began = time.perf_counter()
    for candidate in candidates:
        if tried and time.perf_counter() - began + max(one.seconds for one in tried) > budget:
            break
        start = time.perf_counter()
        voters = [_fitted(candidate.voter, bags, numbers, keep) for keep, _ in splits]
        means = np.concatenate([v._mean_votes(part) for v, part in zip(voters, asked, strict=True)])
        temperature = fit_temperature(means, numbers[images])
        probability = softmax(means / temperature)
        losses = -np.log(np.maximum(probability[np.arange(len(images)), numbers[images]], 1e-12))
        accuracy = float(np.mean(probability.argmax(axis=1) == numbers[images]))
        tried.append(Tried(candidate.words, accuracy, float(losses.mean()), time.perf_counter() - start))
        if tell is not None:
            tell(tried)
        if best is None or _clearly_less(losses, best[0]):
            best = losses, candidate, probability, temperature, voters
    if best is None:
        raise ValueError("there is no candidate to try.")
    _, candidate, probability, temperature, voters = best
    right = probability.argmax(axis=1) == numbers[images]
    sure = probability.max(axis=1)[right]
    threshold = float(np.quantile(sure, rejection)) if len(sure) else 0.0
    why = _why(tried, len(candidates))
    which = np.repeat(np.arange(len(splits)), [len(out) for _, out in splits])
    return Choice(candidate, tried, images, probability, temperature, threshold, why, voters, which)


def _clearly_less(losses: npt.NDArray[Any], others: npt.NDArray[Any]) -> bool:
    """Whether losses of the same images are smaller by more than the standard error of the difference."""
    apart = others - losses
    return float(apart.mean()) > float(apart.std()) / math.sqrt(len(apart))


def _fitted(voter: Any, bags: Bags, numbers: npt.NDArray[np.int64], keep: npt.NDArray[np.int64]) -> Any:
    """Train on some of the images."""
    if isinstance(voter, PrototypeVoter):  # a weight of 0 leaves images out, and copies nothing
        weight = np.zeros(len(bags))
        weight[keep] = 1
        return clone(voter).fit(bags, numbers, sample_weight=weight)
    return clone(voter).fit(bags[keep].astype(np.float32), numbers[keep])


def _splits(numbers: npt.NDArray[np.int64], seed: int) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return which images to keep and which to hold out; a class with one image keeps it."""
    images = np.arange(len(numbers))
    if len(numbers) >= _MANY:
        return [hold_out(images, numbers, _SHARE, seed)]
    counts = np.bincount(numbers)
    folds = int(min(_FOLDS, counts[counts > 1].min())) if (counts > 1).any() else 0
    if folds < 2:
        return []
    several = images[counts[numbers] > 1]
    alone = images[counts[numbers] == 1]
    cut = StratifiedKFold(folds, shuffle=True, random_state=seed).split(several, numbers[several])
    return [(np.sort(np.concatenate([several[keep], alone])), several[out]) for keep, out in cut]


def _why(tried: list[Tried], candidates: int) -> str:
    left = candidates - len(tried)
    said = f"the best of {len(tried)} on images held out" if len(tried) > 1 else "the default"
    return said + (f"; there was no time to try {left} more" if left else "")
