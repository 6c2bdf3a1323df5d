"""Choose the settings of a voter: a few candidates are tried on held-out images, within a time budget.

With many images, a fifth of them is held out once. With few, every image is held out in turn (cross-validation), so
that even twenty photos give an estimate of the accuracy. Candidates are compared by the log loss of their
probabilities, which is more informative than the accuracy where images are few. A later candidate must be better by
more than the standard error; otherwise the earlier one stays, which did well on other data.
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
from ..bags.store import Store
from ..voters.base import Candidate
from ..voters.calibration import fit_temperature, threshold_for
from ..voters.familiarity import REJECTION, HeldOut
from ..voters.labels import hold_out, split_groups
from ..voters.outputs import probability_of
from ..voters.registry import is_own
from .train import train

_MANY_IMAGES = 400  # from here on one split is enough: it holds out 80 images
_HELD_OUT_SHARE = 0.2  # of the images, in that one split
_MAX_FOLDS = 5  # of cross-validation, where images are fewer: a fifth each
_TIE = 1e-6  # difference of log loss up to which two candidates are equally good: it may be due to rounding
_MIN_SECONDS = 1.0  # for the first candidate, whatever the budget: shorter trainings are never cut short
_AT_ONCE = 50_000  # descriptors of a store that are held in memory at once
_FIRST_IMAGES = 16  # tested in any case; their time predicts that of the others


@dataclasses.dataclass(frozen=True)
class Tried:
    """Results of a candidate on held-out images."""

    words: str
    accuracy: float
    loss: float
    seconds: float


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """The best candidate, with its answers for held-out images.

    Attributes
    ----------
    candidate : Candidate
        Candidate to train on all images.
    tried : list of Tried
        Results of all trials, in order.
    images : array of int
        Indices of the held-out images; empty where there were too few images.
    probability : array of shape (images, classes)
        Answers of the best candidate for the held-out images.
    temperature, threshold : float
        Temperature and threshold of rejection, set on the held-out images.
    why : str
        Reason of the choice, for people.
    voters : list of estimators
        Voters that answered, one per split.
    voter_of : array of int
        Index of the voter that answered for each image.
    kept : list of arrays of int
        Indices of the images that each voter was trained on.
    not_asked : int
        Number of images that were to be held out, but for which there was no time.
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
    kept: list[npt.NDArray[np.int64]] = dataclasses.field(default_factory=list)
    not_asked: int = 0

    def folds(self) -> list[HeldOut]:
        """Return the held-out images by the voter that answered for them."""
        of_voters = [self.voter_of == number for number in range(len(self.kept))]
        return [
            HeldOut(kept, self.images[rows], self.probability[rows])
            for kept, rows in zip(self.kept, of_voters, strict=True)
        ]


def choose(
    candidates: Sequence[Candidate],
    bags: Bags | Store,
    labels: npt.NDArray[Any],
    *,
    budget: float,
    groups: npt.NDArray[np.int64] | None = None,
    split: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None,
    whole: Callable[[npt.NDArray[np.int64]], Bags] | None = None,
    seed: int = 0,
    tell: Callable[[list[Tried]], None] | None = None,
    alone: str = "the default",
) -> Choice:
    """Try candidates on held-out images, the most promising first, while the next is likely to fit into the budget.

    The budget includes the training on all images that follows. The first candidate is tried in any case; if it would
    take longer, its trainings stop early and fewer images are tested.

    Parameters
    ----------
    candidates : sequence of Candidate
        Candidates, of which the first is tried in any case.
    bags : Bags or Store
        Bags of the images; a store for voters that read one themselves (`reads_store`).
    labels : array
        Class of each image.
    budget : float
        Seconds for the trials and one more training.
    groups : array of int, optional
        Index of the first image that looks like each image (`copy_groups`); such images are held out together.
    split : pair of arrays of int, optional
        Images to train on and to hold out; by default, splits are drawn.
    whole : function, optional
        Returns the complete bags of images, given their indices, where `bags` holds only a part of each bag.
    seed : int
        Seed of the splits.
    tell : function, optional
        Called after each trial with all trials so far.
    alone : str
        Reason of the choice where one candidate alone was tried.
    """
    _, numbers = np.unique(labels, return_inverse=True)
    splits = _splits(numbers, seed, groups) if split is None else [split] if len(split[1]) else []
    if not splits:
        none, note = np.zeros((0, int(numbers.max()) + 1)), "" if groups is None else " (not counting copies)"
        why = f"one image per class{note} leaves none to try settings on" if split is None else "no image was held out"
        return Choice(candidates[0], [], np.zeros(0, np.int64), none, 1.0, 0.0, why)
    held_out = [whole(out) if whole is not None else some(bags, out) for _, out in splits]
    trials, chosen = _trials(candidates, bags, labels, splits, held_out, budget, tell)
    best, tried = trials[chosen], [trial.result for trial in trials]
    rejection = getattr(candidates[chosen].voter, "rejection", REJECTION)
    return Choice(
        candidates[chosen],
        tried,
        best.images,
        best.probability,
        best.temperature,
        threshold_for(best.probability, numbers[best.images], rejection),
        _why(tried, chosen, len(candidates), alone),
        best.voters,
        best.voter_of,
        [keep for keep, _ in splits[: len(best.voters)]],
        sum(len(out) for _, out in splits) - len(best.images),
    )


def _trials(
    candidates: Sequence[Candidate],
    bags: Bags | Store,
    labels: npt.NDArray[Any],
    splits: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    held_out: Sequence[Bags | Store],
    budget: float,
    tell: Callable[[list[Tried]], None] | None,
) -> tuple[list[_Trial], int]:
    """Try candidates while the next is likely to fit into the budget; return the trials, and the index of the best."""
    trials: list[_Trial] = []
    chosen, planned, start = 0, sum(len(out) for _, out in splits), time.perf_counter()
    for candidate in candidates:
        spent = time.perf_counter() - start
        # The training on all images follows, and takes about as long as the longest training of a trial.
        if trials and spent + max(trial.result.seconds + trial.training for trial in trials) > budget:
            break
        until = start + max(budget, _MIN_SECONDS) if not trials else math.inf
        trials.append(_try(candidate, bags, labels, splits, held_out, until))
        if tell is not None:
            tell([trial.result for trial in trials])
        if len(trials[0].images) < planned:  # a later candidate would be tested on other images
            break
        if clearly_less(trials[-1].losses, trials[chosen].losses):
            chosen = len(trials) - 1
    return trials, chosen


@dataclasses.dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate's answers for held-out images; `training` is its longest training, in seconds."""

    result: Tried
    images: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    losses: npt.NDArray[np.float64]
    temperature: float
    voters: list[Any]
    voter_of: npt.NDArray[np.int64]
    training: float


def _try(
    candidate: Candidate,
    bags: Bags | Store,
    labels: npt.NDArray[Any],
    splits: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    held_out: Sequence[Bags | Store],
    until: float,
) -> _Trial:
    """Train a candidate on each split and test it on the held-out images.

    Every training, including the later one on all images, gets the same share of the time until `until`. Splits that
    have not begun by then are left out.
    """
    start = time.perf_counter()
    _, numbers = np.unique(labels, return_inverse=True)
    voters: list[Any] = []
    images, means, tested_bags, training = [], [], [], 0.0
    for index, ((keep, out), part) in enumerate(zip(splits, held_out, strict=True)):
        now = time.perf_counter()
        if voters and now > until:
            break
        end = now + max(0.0, until - now) / (len(splits) - index + 1)
        voters.append(fitted_on(candidate.voter, bags, labels, keep, end))
        training = max(training, time.perf_counter() - now)
        chosen, votes = _test(voters[-1], part, end)
        images.append(out[chosen])
        means.append(votes)
        tested_bags.append(part if len(chosen) == len(part) else some(part, chosen))
    tested, votes = np.concatenate(images), np.concatenate(means)
    temperature = fit_temperature(votes, numbers[tested])
    probability = np.concatenate(
        [
            _probabilities(voter.scorer(), scores, part, temperature)
            for voter, scores, part in zip(voters, means, tested_bags, strict=True)
        ]
    )
    losses = log_losses(probability, numbers[tested])
    accuracy = float(np.mean(probability.argmax(axis=1) == numbers[tested]))
    result = Tried(candidate.words, accuracy, float(losses.mean()), time.perf_counter() - start)
    voter_of = np.repeat(np.arange(len(voters)), [len(part) for part in images])
    return _Trial(result, tested, probability, losses, temperature, voters, voter_of, training)


def _probabilities(
    scorer: Any, scores: npt.NDArray[Any], bags: Bags | Store, temperature: float
) -> npt.NDArray[np.float64]:
    """Return the probabilities of bags; no threshold is known yet."""
    if isinstance(bags, Bags):
        return probability_of(scorer, scores, bags, temperature, 0.0)
    found, start = [], 0
    for block, _ in bags.blocks(_AT_ONCE, dtype=bags.dtype):
        found.append(probability_of(scorer, scores[start : start + len(block)], block, temperature, 0.0))
        start += len(block)
    return np.concatenate(found)


def _test(voter: Any, bags: Bags | Store, until: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the mean votes for random bags, as many as there is time for, and their indices in ascending order."""
    order = np.random.default_rng(0).permutation(len(bags))
    start = time.perf_counter()
    first = voter._mean_votes(some(bags, order[:_FIRST_IMAGES]))
    now = time.perf_counter()
    seconds_per_bag = max((now - start) / len(first), 1e-9)
    rest = order[_FIRST_IMAGES:]
    if seconds_per_bag * len(rest) > max(_MIN_SECONDS, until - now):
        rest = rest[: max(0, int((until - now) / seconds_per_bag))]
    votes = np.concatenate([first, voter._mean_votes(some(bags, rest))]) if len(rest) else first
    chosen = np.concatenate([order[:_FIRST_IMAGES], rest])
    ascending = np.argsort(chosen)
    return chosen[ascending], votes[ascending]


def log_losses(probability: npt.NDArray[np.float64], expected: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the log loss of each image, from the probabilities of all classes and the number of the right one."""
    right = probability[np.arange(len(expected)), expected]
    return np.asarray(-np.log(np.maximum(right, 1e-12)))


def clearly_less(losses: npt.NDArray[Any], others: npt.NDArray[Any]) -> bool:
    """Whether losses of the same images are smaller by more than a tie and the standard error of the difference."""
    difference = others - losses
    mean, error = float(difference.mean()), float(difference.std()) / math.sqrt(len(difference))
    return mean > _TIE and mean > error


def some(bags: Bags | Store, images: npt.NDArray[np.int64]) -> Bags | Store:
    """Return some images, those of a store as a view of it."""
    return bags.only([bags.names[image] for image in images]) if isinstance(bags, Store) else bags[images]


def leaves_out_by_weight(voter: Any) -> bool:
    """Whether `fitted_on` gives a voter all images, with a weight of 0 for those to leave out."""
    return is_own(voter) and has_fit_parameter(voter, "sample_weight")  # others may take weights and ignore them


def fitted_on(
    voter: Any, bags: Bags | Store, labels: npt.NDArray[Any], keep: npt.NDArray[np.int64], until: float
) -> Any:
    """Train a copy of a voter on some of the images."""
    if not leaves_out_by_weight(voter):
        part = some(bags, keep)
        return train(voter, until, part if isinstance(part, Store) else part.astype(np.float32), labels[keep])
    weight = np.zeros(len(bags))  # a weight of 0 leaves an image out without copying the others
    weight[keep] = 1
    return train(voter, until, bags, labels, sample_weight=weight)


def _splits(
    numbers: npt.NDArray[np.int64], seed: int, groups: npt.NDArray[np.int64] | None = None
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return the splits: images to train on and to hold out, copies together; a class with one group is kept."""
    images = np.arange(len(numbers))
    groups = images if groups is None else groups
    if len(numbers) >= _MANY_IMAGES:
        keep, out = hold_out(images, numbers, _HELD_OUT_SHARE, seed, groups)
        return [(keep, out)] if len(out) else []
    leaders = images[groups == images]
    counts = np.bincount(numbers[leaders], minlength=int(numbers.max()) + 1)
    folds = int(min(_MAX_FOLDS, counts[counts > 1].min())) if (counts > 1).any() else 0
    if folds < 2:
        return []
    several = leaders[counts[numbers[leaders]] > 1]
    fold_splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(several, numbers[several])
    splits = [split_groups(images, several[out], numbers, groups) for _, out in fold_splits]
    return [(keep, out) for keep, out in splits if len(out)]


def _why(tried: list[Tried], chosen: int, candidates: int, alone: str = "the default") -> str:
    """Return why a candidate was chosen: it has the smallest loss, or no later one has a clearly smaller loss."""
    differences = [trial.loss - tried[chosen].loss for trial in tried]
    if len(tried) == 1:
        reason = alone
    elif max(map(abs, differences)) <= _TIE:
        reason = f"the first of {len(tried)} that are equally good on images held out, by log loss"
    elif min(differences) >= -_TIE:
        reason = f"the best of {len(tried)} on images held out, by log loss"
    else:
        reason = "no later one was clearly better on images held out (log loss within one standard error)"
    untried = candidates - len(tried)
    return reason + (f"; there was no time to try {untried} more" if untried else "")
