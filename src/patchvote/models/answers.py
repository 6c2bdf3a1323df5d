"""Answers of a model for one photo: its class, and the evidence."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.cache import WHOLE
from ..errors import PatchvoteError, PhotoError
from ..voters.outputs import blaming, named, votes_of
from ..voters.votes import NONE
from .evidence import Evidence, Match
from .model import Model
from .pulling import pulls_of

_MAX_VOTES = 50_000_000  # in the evidence of one photo: 400 MB as float64


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer for one photo: `label` and `probability`, and beside them the likeliest classes.

    Parameters
    ----------
    name : str
        Name of the photo.
    likeliest : str or None
        Likeliest class, also of a photo that is rejected; None where the photo could not be read.
    likeliest_probability : float
        Probability of that class.
    runner_up : str or None
        Second likeliest class.
    runner_up_probability : float
        Probability of the second likeliest class.
    rejected : bool
        Whether "none of these" is the better answer.
    error : PhotoError or None
        Reason why the photo could not be read.
    familiarity : float or None
        Share of held-out photos of the model's classes that look at least as strange (see `voters.familiarity`); None
        if the model does not know it.
    classes : tuple of str
        Classes of the model; empty where the photo could not be read.
    probabilities : array of shape (classes,) or None
        Probability of each class.

    Examples
    --------
    >>> answer = Answer("a.jpg", "sea", 0.6, classes=("ice", "land", "sea"), probabilities=np.array([0.1, 0.3, 0.6]))
    >>> answer.label, answer.probability, answer.top(2)
    ('sea', 0.6, [('sea', 0.6), ('land', 0.3)])
    >>> answer = Answer("b.jpg", "sea", 0.6, rejected=True)
    >>> answer.label, answer.probability, answer.likeliest
    ('none of these', None, 'sea')
    """

    name: str
    likeliest: str | None
    likeliest_probability: float = 0.0
    runner_up: str | None = None
    runner_up_probability: float = 0.0
    rejected: bool = False
    error: PhotoError | None = None
    familiarity: float | None = None
    classes: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    probabilities: npt.NDArray[np.float64] | None = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        name: str,
        classes: tuple[str, ...],
        probabilities: npt.NDArray[np.float64],
        rejected: bool,
        familiarity: float | None,
    ) -> Answer:
        """Return the answer for a photo, given the probabilities of the classes."""
        first, second = np.argsort(-probabilities, kind="stable")[:2]
        return cls(
            name,
            classes[first],
            float(probabilities[first]),
            classes[second],
            float(probabilities[second]),
            rejected,
            familiarity=familiarity,
            classes=classes,
            probabilities=probabilities,
        )

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
    probability = model.probability(bag)
    return answer_from(model, name, probability, model.familiarity_of(bag, probability), threshold)


def answer_from(
    model: Model,
    name: str,
    probability: npt.NDArray[np.float64],
    familiarity: float | None,
    threshold: float | None = None,
) -> Answer:
    """Return the answer for a photo, given the probabilities of the classes and its familiarity."""
    return Answer.of(name, model.classes, probability, model.rejects(probability, familiarity, threshold), familiarity)


def answer_in(evidence: Evidence) -> Answer:
    """Return the answer that a photo's evidence gives."""
    return Answer.of(evidence.name, evidence.classes, evidence.probability, evidence.rejected, evidence.familiarity)


def evidence_of(model: Model, name: str, bag: Bags, label: str | None = None) -> Evidence:
    """Return the evidence of a photo; `label` is the class to find matches for, the likeliest by default."""
    if len(bag.values) * len(model.classes) > _MAX_VOTES:
        raise PatchvoteError(
            f"{len(bag.values):,} parts voting for {len(model.classes):,} classes are more than fit in memory at once "
            f"({_MAX_VOTES:,} votes): a model of fewer classes or with fewer parts can be explained."
        )
    needs = model.scorer.needs()
    try:
        kept = needs.of(bag)  # what the answer for the photo comes from
    except ValueError as error:
        raise PhotoError(name, str(error)) from None
    bag = kept if needs is WHOLE else bag
    votes = votes_of(model.scorer, bag)
    probability = model.probability(kept, votes if needs is WHOLE else None)
    familiarity = model.familiarity_of(kept, probability)
    evidence = Evidence(
        name,
        model.classes,
        votes.astype(np.float64),
        bag.boxes.astype(np.float64),
        probability,
        rejected=model.rejects(probability, familiarity),
        familiarity=familiarity,
    )
    matched = evidence.ranking[0] if label is None else label
    evidence.number(matched)
    evidence = dataclasses.replace(evidence, matches=_matches(model, bag, evidence, matched))
    return dataclasses.replace(evidence, pulls=pulls_of(model.scorer, model.names, bag, evidence, matched))


def _matches(model: Model, bag: Bags, evidence: Evidence, label: str) -> tuple[Match, ...]:
    """Return the training parts nearest to parts of the photo, in the order of their votes for the class."""
    if not model.names:
        return ()
    with blaming(model.scorer):
        nearest = model.scorer.matches(bag.frozen(), model.classes.index(label))
        if nearest is None:
            return ()
        images, boxes, distances = map(np.asarray, nearest)
    _check_matches(model, images, boxes, distances, len(bag.values))
    order = np.argsort(-evidence.advantage(label), kind="stable")
    return tuple(Match(_box(bag.boxes[i]), model.names[images[i]], _box(boxes[i]), float(distances[i])) for i in order)


def _check_matches(
    model: Model, images: npt.NDArray[Any], boxes: npt.NDArray[Any], distances: npt.NDArray[Any], count: int
) -> None:
    """Refuse matches that are not one training photo, box and distance per part."""
    shapes = images.shape, boxes.shape, distances.shape
    if shapes != ((count,), (count, 4), (count,)):
        raise PatchvoteError(
            f"{named(model.scorer)} returned matches of the shapes {', '.join(map(str, shapes))}, expected "
            f"({count},), ({count}, 4), ({count},): an image, a box and a distance per descriptor."
        )
    if images.dtype.kind not in "iu" or not (images.min() >= 0 and images.max() < len(model.names)):
        raise PatchvoteError(
            f"{named(model.scorer)} returned matches with numbers of images that are not whole numbers from 0 to "
            f"{len(model.names) - 1}."
        )


def _box(edges: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    left, top, right, bottom = (float(edge) for edge in edges)
    return left, top, right, bottom
