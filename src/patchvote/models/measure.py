"""Measure a model on labelled photos: each passes the network once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from .answers import Answer
from .model import Model
from .scores import Scores
from .strangers import Strangers


def measure(
    model: Model, bags: Iterable[tuple[str, Bags]], labels: Mapping[str, str], threshold: float | None = None
) -> Scores | None:
    """Compare the answers for bags with their labels.

    Parameters
    ----------
    model : Model
        Model to measure.
    bags : iterable of tuples
        Name of each photo, and what the model needs of its bag, one at a time.
    labels : mapping
        Class of each photo, by name.
    threshold : float, optional
        Share of the photos of known classes that may be rejected (see `Model.limit`).

    Returns
    -------
    Scores or None
        Answers and expected classes; None where there was no bag.
    """
    names: list[str] = []
    rows: list[npt.NDArray[np.float64]] = []
    familiarity: list[float | None] = []
    for name, bag in bags:
        names.append(name)
        rows.append(model.probability(bag))
        familiarity.append(model.familiarity_of(bag, rows[-1]))
    return scores_of(model, names, rows, familiarity, labels, threshold) if rows else None


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
