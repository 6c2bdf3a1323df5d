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
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.validation import has_fit_parameter

from ..bags.bags import Bags
from ..utils.budget import fit_until
from ..voters.base import Candidate
from ..voters.calibration import fit_temperature, threshold_for
from ..voters.labels import hold_out, split_groups
from ..voters.votes import softmax

_MANY = 400  # images from which on one split is enough
_SHARE = 0.2  # of the images, held out
_FOLDS = 5
_TIE = 1e-6  # log loss below which two candidates are equally good: rounding makes more of a difference
_LEAST_SECONDS = 1.0  # that the first candidate gets whatever the budget: what takes less is never cut short
_FIRST_ASKED = 16  # images that are asked about in any case, and tell how long the others will take


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
    not_asked : int
        Images that were to be held out, but for which there was no time.
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
    not_asked: int = 0


def choose(
    candidates: Sequence[Candidate],
    bags: Bags,
    labels: npt.NDArray[Any],
    *,
    budget: float,
    groups: npt.NDArray[np.int64] | None = None,
    whole: Callable[[npt.NDArray[np.int64]], Bags] | None = None,
    rejection: float = 0.05,
    seed: int = 0,
    tell: Callable[[list[Tried]], None] | None = None,
) -> Choice:
    """Try candidates on held-out images, the most promising first, as long as the next is likely to fit the budget.

    The budget leaves time for the training on all images that follows. The first candidate is tried in any case, but
    where it takes longer, its trainings end early and fewer images are held out.

    Parameters
    ----------
    candidates : sequence of Candidate
        The first is tried in any case.
    bags : Bags
        The images.
    labels : array
        The class of each.
    budget : float
        Seconds for the trials and one more training.
    groups : array of int, optional
        Of each image the number of the first image that it is a copy of (`copy_groups`); copies are held out together.
    whole : function, optional
        From numbers of images to their bags as they will be asked about, where `bags` holds a part of them only.
    rejection : float
        Share of the rightly named held-out images that "none of these" may cost.
    seed : int
        Of the split.
    tell : function, optional
        Called after each trial with all of them.
    """
    _, numbers = np.unique(labels, return_inverse=True)
    splits = _splits(numbers, seed, groups)
    if not splits:
        none, aside = np.zeros((0, int(numbers.max()) + 1)), "" if groups is None else " (copies aside)"
        why = f"one image a class{aside} leaves none to try settings on"
        return Choice(candidates[0], [], np.zeros(0, np.int64), none, 1.0, 0.0, why)
    asked = [whole(out) if whole is not None else bags[out] for _, out in splits]
    trials, chosen = _trials(candidates, bags, labels, splits, asked, budget, tell)
    best, tried = trials[chosen], [one.told for one in trials]
    return Choice(
        candidates[chosen],
        tried,
        best.images,
        best.probability,
        best.temperature,
        threshold_for(best.probability, numbers[best.images], rejection),
        _why(tried, chosen, len(candidates)),
        best.voters,
        best.voter_of,
        sum(len(out) for _, out in splits) - len(best.images),
    )


def _trials(
    candidates: Sequence[Candidate],
    bags: Bags,
    labels: npt.NDArray[Any],
    splits: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    asked: list[Bags],
    budget: float,
    tell: Callable[[list[Tried]], None] | None,
) -> tuple[list[_Trial], int]:
    """Try candidates as long as the next is likely to fit the budget; return the trials, and which one is best."""
    trials: list[_Trial] = []
    chosen, wanted, began = 0, sum(len(out) for _, out in splits), time.perf_counter()
    for candidate in candidates:
        spent = time.perf_counter() - began
        # The training on all images comes last, and takes about as long as the longest on a part of them.
        if trials and spent + max(one.told.seconds + one.training for one in trials) > budget:
            break
        until = began + max(budget, _LEAST_SECONDS) if not trials else math.inf
        trials.append(_try(candidate, bags, labels, splits, asked, until))
        if tell is not None:
            tell([one.told for one in trials])
        if len(trials[0].images) < wanted:  # a later candidate would be asked about other images
            break
        if _clearly_less(trials[-1].losses, trials[chosen].losses):
            chosen = len(trials) - 1
    if not trials:
        raise ValueError("there is no candidate to try.")
    return trials, chosen


@dataclasses.dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate, and its answers for held-out images; `training` is the longest of its trainings, in seconds."""

    told: Tried
    images: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    losses: npt.NDArray[np.float64]
    temperature: float
    voters: list[Any]
    voter_of: npt.NDArray[np.int64]
    training: float


def _try(
    candidate: Candidate,
    bags: Bags,
    labels: npt.NDArray[Any],
    splits: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    asked: list[Bags],
    until: float,
) -> _Trial:
    """Train a candidate on each split and ask it about what was held out.

    Every training, the later one on all images included, gets the same share of the time until `until`; at that time,
    splits that have not begun are left out.
    """
    start = time.perf_counter()
    _, numbers = np.unique(labels, return_inverse=True)
    voters: list[Any] = []
    images, means, training = [], [], 0.0
    for index, ((keep, out), part) in enumerate(zip(splits, asked, strict=True)):
        now = time.perf_counter()
        if voters and now > until:
            break
        end = now + max(0.0, until - now) / (len(splits) - index + 1)
        voters.append(_fitted(candidate.voter, bags, labels, keep, end))
        training = max(training, time.perf_counter() - now)
        chosen, votes = _ask(voters[-1], part, end)
        images.append(out[chosen])
        means.append(votes)
    every, votes = np.concatenate(images), np.concatenate(means)
    temperature = fit_temperature(votes, numbers[every])
    probability = softmax(votes / temperature)
    losses = -np.log(np.maximum(probability[np.arange(len(every)), numbers[every]], 1e-12))
    accuracy = float(np.mean(probability.argmax(axis=1) == numbers[every]))
    told = Tried(candidate.words, accuracy, float(losses.mean()), time.perf_counter() - start)
    voter_of = np.repeat(np.arange(len(voters)), [len(part) for part in images])
    return _Trial(told, every, probability, losses, temperature, voters, voter_of, training)


def _ask(voter: Any, bags: Bags, until: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the mean votes for random bags, as many as there is time for, and which they are, in order."""
    order = np.random.default_rng(0).permutation(len(bags))
    began = time.perf_counter()
    first = voter._mean_votes(bags[order[:_FIRST_ASKED]])
    now = time.perf_counter()
    pace = max((now - began) / len(first), 1e-9)
    rest = order[_FIRST_ASKED:]
    if pace * len(rest) > max(_LEAST_SECONDS, until - now):
        rest = rest[: max(0, int((until - now) / pace))]
    votes = np.concatenate([first, voter._mean_votes(bags[rest])]) if len(rest) else first
    chosen = np.concatenate([order[:_FIRST_ASKED], rest])
    back = np.argsort(chosen)
    return chosen[back], votes[back]


def _clearly_less(losses: npt.NDArray[Any], others: npt.NDArray[Any]) -> bool:
    """Whether losses of the same images are smaller by more than a tie and the standard error of the difference."""
    apart = others - losses
    return float(apart.mean()) > _TIE and float(apart.mean()) > float(apart.std()) / math.sqrt(len(apart))


def _fitted(voter: Any, bags: Bags, labels: npt.NDArray[Any], keep: npt.NDArray[np.int64], until: float) -> Any:
    """Train on some of the images."""
    if not has_fit_parameter(voter, "sample_weight"):
        return fit_until(voter, until, bags[keep].astype(np.float32), labels[keep])
    weight = np.zeros(len(bags))  # a weight of 0 leaves images out, and copies nothing
    weight[keep] = 1
    return fit_until(voter, until, bags, labels, sample_weight=weight)


def _splits(
    numbers: npt.NDArray[np.int64], seed: int, groups: npt.NDArray[np.int64] | None = None
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return which images to keep and which to hold out, copies together; a class with one group of copies keeps it."""
    images = np.arange(len(numbers))
    groups = images if groups is None else groups
    if len(numbers) >= _MANY:
        keep, out = hold_out(images, numbers, _SHARE, seed, groups)
        return [(keep, out)] if len(out) else []
    leaders = images[groups == images]
    counts = np.bincount(numbers[leaders], minlength=int(numbers.max()) + 1)
    folds = int(min(_FOLDS, counts[counts > 1].min())) if (counts > 1).any() else 0
    if folds < 2:
        return []
    several = leaders[counts[numbers[leaders]] > 1]
    cut = StratifiedKFold(folds, shuffle=True, random_state=seed).split(several, numbers[several])
    splits = [split_groups(images, several[out], numbers, groups) for _, out in cut]
    return [(keep, out) for keep, out in splits if len(out)]


def _why(tried: list[Tried], chosen: int, candidates: int) -> str:
    """Say why a candidate was chosen: it has the smallest loss, or no later one has a clearly smaller one."""
    apart = [one.loss - tried[chosen].loss for one in tried]
    if len(tried) == 1:
        said = "the default"
    elif max(map(abs, apart)) <= _TIE:
        said = f"the first of {len(tried)} that are equally good on images held out, by log loss"
    elif min(apart) >= -_TIE:
        said = f"the best of {len(tried)} on images held out, by log loss"
    else:
        said = "no later one was clearly better on images held out (log loss within one standard error)"
    left = candidates - len(tried)
    return said + (f"; there was no time to try {left} more" if left else "")
