"""Measure a model on labelled photos: each passes the network once; bags of the most confident mistakes are kept."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from .answers import Answer, evidence_of
from .evidence import Evidence
from .model import Model
from .scores import WORST, Scores
from .strangers import Strangers


def measure(
    model: Model,
    bags: Iterable[tuple[str, Bags, Bags | None]],
    labels: Mapping[str, str],
    threshold: float | None = None,
    whole: Callable[[str], Bags | None] = lambda name: None,
) -> tuple[Scores | None, tuple[Evidence, ...]]:
    """Compare the answers for bags with their labels.

    Parameters
    ----------
    model : Model
        Model to measure.
    bags : iterable of tuples
        Name of each photo, what the model needs of its bag, and the whole bag if it is at hand, one at a time.
    labels : mapping
        Class of each photo, by name.
    threshold : float, optional
        Share of the photos of known classes that may be rejected (see `Model.limit`).
    whole : function
        Returns the whole bag of a photo that was not at hand, by its name; None if it cannot be had any more.

    Returns
    -------
    scores : Scores or None
        Answers and expected classes; None where there was no bag.
    mistakes : tuple of Evidence
        Evidence of the mistakes with the highest confidence, in descending order.
    """
    names: list[str] = []
    rows: list[npt.NDArray[np.float64]] = []
    familiarity: list[float | None] = []
    mistakes: list[tuple[float, int, Bags | None]] = []
    for name, bag, at_hand in bags:
        probability = model.probability(bag)
        if model.classes[int(probability.argmax())] != labels[name]:
            bisect.insort(mistakes, (-float(probability.max()), len(names), at_hand), key=lambda mistake: mistake[:2])
            del mistakes[WORST:]
        names.append(name)
        rows.append(probability)
        familiarity.append(model.familiarity_of(bag, probability))
    if not rows:
        return None, ()
    scores = scores_of(model, names, rows, familiarity, labels, threshold)
    shown = ((names[index], whole(names[index]) if bag is None else bag) for _, index, bag in mistakes)
    return scores, tuple(evidence_of(model, name, bag) for name, bag in shown if bag is not None)


def scores_of(
    model: Model,
    names: Sequence[str],
    rows: Sequence[npt.NDArray[np.float64]],
    familiarity: Sequence[float | None],
    labels: Mapping[str, str],
    threshold: float | None = None,
) -> Scores:
    """Return the scores of answers that are known: one row of probabilities and one familiarity per photo."""
    expected = np.array([model.classes.index(labels[name]) for name in names])
    familiar = None if model.familiarity is None else np.array(familiarity, np.float64)
    return Scores(model.classes, tuple(names), expected, np.stack(rows), model.limit(threshold), familiar)


def strangers_of(
    model: Model, answers: Iterable[Answer], labels: Mapping[str, str | None], threshold: float | None = None
) -> Strangers | None:
    """Return the answers for photos of unknown classes; None where none of them could be read."""
    read = [answer for answer in answers if answer.error is None]
    if not read:
        return None
    decisive = [one.likeliest_probability if one.familiarity is None else one.familiarity for one in read]
    return Strangers(
        tuple(labels[answer.name] or "" for answer in read),
        tuple(str(answer.likeliest) for answer in read),
        np.array(decisive, np.float64),
        model.limit(threshold),
    )
