"""Answers of a model for one photo, as values and as plain rows of CSV, JSON or a response of the server."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.extract import Described
from ..errors import PhotoError
from ..voters.votes import NONE
from .about import short
from .evidence import Evidence
from .model import Model


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer for one photo: `label` and `probability`, and beside them the likeliest classes.

    Parameters
    ----------
    name : str
        Name of the photo.
    classes : tuple of str
        Classes of the model; empty where the photo could not be read.
    probabilities : array of shape (classes,) or None
        Probability of each class.
    rejected : bool
        Whether "none of these" is the better answer.
    familiarity : float or None
        Share of held-out photos of the model's classes that look at least as strange (see `voters.familiarity`); None
        if the model does not know it.
    error : PhotoError or None
        Reason why the photo could not be read.
    known : bool
        Whether the model has learned from this photo.

    Attributes
    ----------
    likeliest, likeliest_probability
        Likeliest class, also of a photo that is rejected; None where the photo could not be read.
    runner_up, runner_up_probability
        Second likeliest class.

    Examples
    --------
    >>> answer = Answer("b.jpg", ("land", "sea"), np.array([0.4, 0.6]), rejected=True)
    >>> answer.label, answer.probability, answer.likeliest
    ('none of these', None, 'sea')
    """

    name: str
    classes: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    probabilities: npt.NDArray[np.float64] | None = dataclasses.field(default=None, repr=False, compare=False)
    rejected: bool = False
    familiarity: float | None = None
    error: PhotoError | None = None
    known: bool = dataclasses.field(default=False, repr=False, compare=False)
    likeliest: str | None = dataclasses.field(default=None, init=False)
    likeliest_probability: float = dataclasses.field(default=0.0, init=False)
    runner_up: str | None = dataclasses.field(default=None, init=False)
    runner_up_probability: float = dataclasses.field(default=0.0, init=False)

    def __post_init__(self) -> None:
        for name, (label, probability) in zip(("likeliest", "runner_up"), self.top(2), strict=False):
            object.__setattr__(self, name, label)
            object.__setattr__(self, f"{name}_probability", probability)

    @property
    def label(self) -> str | None:
        """The likeliest class, or "none of these" if the photo is rejected; None where it could not be read."""
        return NONE if self.rejected else self.likeliest

    @property
    def probability(self) -> float | None:
        """Probability of the class that is the label; None where the label is no class."""
        return None if self.rejected or self.likeliest is None else self.likeliest_probability

    def top(self, count: int | None = None) -> list[tuple[str, float]]:
        """Return the likeliest classes with their probabilities, the likeliest first; all classes by default."""
        if self.probabilities is None:
            return []
        order = np.argsort(-self.probabilities, kind="stable")[:count]
        return [(self.classes[i], float(self.probabilities[i])) for i in order]


def answer_of(model: Model, name: str, bag: Bags, threshold: float | None = None) -> Answer:
    """Return the answer for a photo, given its bag; `threshold` as for `Model.limit`."""
    probability, familiarity, rejected = model.judge(bag, threshold)
    return Answer(name, model.classes, probability, rejected, familiarity)


def answer_for(model: Model, item: Described, threshold: float | None = None) -> Answer:
    """Return the answer for a photo that was described, or that with the reason why there is none."""
    if item.bag is None:
        return Answer(item.photo.name, error=item.error)
    answer = answer_of(model, item.photo.name, item.bag, threshold)
    return dataclasses.replace(answer, known=short(item.digest) in model.about.known)


def answer_in(evidence: Evidence) -> Answer:
    """Return the answer that a photo's evidence gives."""
    return Answer(evidence.name, evidence.classes, evidence.probability, evidence.rejected, evidence.familiarity)


def row(answer: Answer) -> dict[str, Any]:
    """Return an answer as a dictionary from column to plain value; a rejected photo has no probability of its label."""
    return {
        "file": answer.name,
        "label": answer.label or "",
        "probability": _rounded(answer.probability),
        "likeliest": answer.likeliest or "",
        "likeliest_probability": None if answer.error else _rounded(answer.likeliest_probability),
        "runner_up": answer.runner_up or "",
        "runner_up_probability": None if answer.error else _rounded(answer.runner_up_probability),
        "error": answer.error.reason if answer.error else "",
        "familiarity": _rounded(answer.familiarity),
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
