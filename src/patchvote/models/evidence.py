"""Evidence: where in a photo the votes for a class come from, and which training photos pulled it there.

Every descriptor describes a box of the photo and votes. A map spreads each vote evenly over its box, so the sum over
the map equals the decision value of the class. Maps are neither smoothed nor enhanced.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..bags.bags import Bags
from ..bags.cache import WHOLE
from ..errors import PatchvoteError, PhotoError
from ..photos.decode import SHOWN, load_image
from ..photos.find import Photo
from ..utils.terminal import nearest
from ..version import __version__
from ..voters.scorer import Scorer
from .model import Model
from .scores import Scores

_MAX_VOTES = 50_000_000  # in the evidence of one photo: 400 MB as float64
_MOST_PULLS = 5  # training photos that are named

Box = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True)
class Match:
    """A part of a photo, and the most similar part of a training photo.

    Parameters
    ----------
    box, there : tuple
        Left, top, right and bottom of the part in 0..1 of the photo, and of the other part in the training photo.
    name, distance : str and float
        Name of the training photo, and squared distance between the two descriptors.
    """

    box: Box
    name: str
    there: Box
    distance: float


@dataclasses.dataclass(frozen=True)
class Pull:
    """A training photo that pulled a photo towards its own class, and its share of what all of the class did."""

    name: str
    label: str
    share: float


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """The votes of one photo.

    Parameters
    ----------
    name : str
        Name of the photo.
    classes : tuple of str
        Classes that were voted for.
    votes : array of shape (descriptors, classes)
        Vote of each descriptor for each class.
    boxes : array of shape (descriptors, 4)
        Box of each descriptor: left, top, right, bottom in 0..1 of the upright photo.
    probability : array of shape (classes,)
        Probability of each class, as in the answer for the photo.
    matches : tuple of Match
        Most similar parts of training photos, for voters that store those.
    rejected : bool
        Whether "none of these" is the better answer.
    familiarity : float or None
        Share of held-out photos of the model's classes that look at least as strange; None if the model does not know.
    photo : Photo or None
        The photo itself, which `plot` shows.
    pulls : tuple of Pull
        Training photos that pulled the photo towards its likeliest class, or the one that was asked about, the
        strongest first; empty where the model cannot tell (`cannot_tell` says why).

    Examples
    --------
    >>> boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    >>> evidence = Evidence("a.jpg", ("sea", "land"), np.array([[2.0, 0], [0, 1]]), boxes, np.array([0.6, 0.4]))
    >>> evidence.map("sea", 2, 1), evidence.decision
    (array([[1., 0.]]), array([1. , 0.5]))
    """

    name: str
    classes: tuple[str, ...]
    votes: npt.NDArray[np.float64] = dataclasses.field(repr=False)  # thousands of numbers
    boxes: npt.NDArray[np.float64] = dataclasses.field(repr=False)
    probability: npt.NDArray[np.float64]
    matches: tuple[Match, ...] = dataclasses.field(default=(), repr=False)
    rejected: bool = False
    familiarity: float | None = None
    photo: Photo | None = dataclasses.field(default=None, repr=False)
    pulls: tuple[Pull, ...] = ()

    @property
    def decision(self) -> npt.NDArray[np.float64]:
        """Decision value of each class: its mean vote."""
        return np.asarray(self.votes.mean(axis=0))

    @property
    def ranking(self) -> tuple[str, ...]:
        """Classes in the order of their probabilities, the likeliest first."""
        return tuple(self.classes[i] for i in np.argsort(-self.probability, kind="stable"))

    def plot(self, labels: list[str] | None = None, side: int = 420) -> Image.Image:
        """Return a picture of the photo beside its evidence for some classes, the two likeliest by default."""
        from .report.picture import draw

        try:
            photo = None if self.photo is None else load_image(self.photo, SHOWN)
        except PhotoError:  # it was moved or removed since
            photo = None
        return draw(self, photo or Image.new("RGB", (side, side), "white"), labels, side)

    def _repr_png_(self) -> bytes:
        from .report.picture import encoded

        return encoded(self.plot(side=280))

    def as_npz(self) -> bytes:
        """Return classes, votes, boxes, probabilities and a map of 64 by 64 per class, as the bytes of an .npz file."""
        data = io.BytesIO()
        np.savez(
            data,
            patchvote=np.array(__version__),  # first, where `marks` looks for it
            classes=np.array(self.classes),
            votes=self.votes,
            boxes=self.boxes,
            probability=self.probability,
            maps=np.stack([self.map(label, 64, 64) for label in self.classes]),
        )
        return data.getvalue()

    def map(self, label: str, width: int, height: int) -> npt.NDArray[np.float64]:
        """Return the votes for a class as an image ``(height, width)`` whose sum is the decision value."""
        return self._spread(self.votes[:, self.number(label)], width, height)

    def contrast(self, label: str, width: int, height: int) -> npt.NDArray[np.float64]:
        """Return the votes for a class minus the strongest for another: positive where parts support this class."""
        return self._spread(self.advantage(label), width, height)

    def advantage(self, label: str) -> npt.NDArray[np.float64]:
        """Return each descriptor's vote for a class minus its strongest vote for another."""
        number = self.number(label)
        others = np.delete(self.votes, number, axis=1)
        return np.asarray(self.votes[:, number] - others.max(axis=1))

    def number(self, label: str) -> int:
        """Return the index of a class; the error for an unknown class suggests a similar name."""
        if label not in self.classes:
            raise PatchvoteError(f"there is no class {label!r}.{nearest(label, self.classes)}")
        return self.classes.index(label)

    def _spread(self, votes: npt.NDArray[np.float64], width: int, height: int) -> npt.NDArray[np.float64]:
        across, down = _coverage(self.boxes[:, 0::2], width), _coverage(self.boxes[:, 1::2], height)
        return np.asarray((down * (votes / len(votes))[:, None]).T @ across)


def _coverage(edges: npt.NDArray[np.float64], pixels: int) -> npt.NDArray[np.float64]:
    """Return the share of each span ``(first, last)`` in 0..1 that falls on each pixel of a row; shares add up to 1."""
    lines = np.linspace(0, 1, pixels + 1)
    first, last = edges[:, :1].astype(np.float64), edges[:, 1:].astype(np.float64)
    inside = np.clip(np.minimum(last, lines[1:]) - np.maximum(first, lines[:-1]), 0, None)
    return np.asarray(inside / inside.sum(axis=1, keepdims=True))


# --- made by a model --------------------------------------------------------------------------------------------------


def evidence_of(model: Model, name: str, bag: Bags, label: str | None = None) -> Evidence:
    """Return the evidence of a photo; `label` is the class to find matches for, the likeliest by default."""
    if (count := len(bag.values) * len(model.classes)) > _MAX_VOTES:
        raise PatchvoteError(f"{count:,} votes of {len(model.classes):,} classes are more than fit in memory at once.")
    needs = model.scorer.needs()
    try:
        kept = needs.of(bag)  # what the answer for the photo comes from
    except ValueError as error:
        raise PhotoError(name, str(error)) from None
    bag = kept if needs is WHOLE else bag
    votes = model.scorer.votes(bag)
    probability, familiarity, rejected = model.judge(kept, votes=votes if needs is WHOLE else None)
    votes, boxes = votes.astype(np.float64), bag.boxes.astype(np.float64)
    evidence = Evidence(name, model.classes, votes, boxes, probability, rejected=rejected, familiarity=familiarity)
    return traced(evidence, model.scorer, model.names, bag, evidence.ranking[0] if label is None else label)


def evidence_without(without: Callable[[str], tuple[Any, list[str]]], scores: Scores, name: str, bag: Bags) -> Evidence:
    """Return the evidence of a training photo, from a voter that has not learned it (`Fitted.without`)."""
    voter, learned = without(name)
    scorer, index = voter.scorer(), scores.names.index(name)
    votes, boxes = scorer.votes(bag).astype(np.float64), bag.boxes.astype(np.float64)
    rejected = bool(scores.rejected[index])
    evidence = Evidence(name, scores.classes, votes, boxes, scores.probability[index], rejected=rejected)
    return traced(evidence, scorer, learned, bag, evidence.ranking[0])


def traced(evidence: Evidence, scorer: Scorer, names: Sequence[str], bag: Bags, label: str) -> Evidence:
    """Return evidence with the training photos (`names`, as the scorer learned them) behind the votes for a class.

    The default voter says how much each training photo adds to a score, local NBNN how many votes each has given. For
    NBNN, a part of a photo is pulled by the training photo that has the nearest part of the class, as strongly as it
    votes for the class rather than for another. Prototypes are learned from all photos together: none can be named.
    """
    number = evidence.number(label)
    nearest_parts = scorer.matches(bag, number) if names else None
    added: npt.NDArray[Any] | None = scorer.pulls(bag, number) if names and scorer.traces else None
    if nearest_parts is not None:
        images, boxes, distances = nearest_parts
        advantage = evidence.advantage(label)
        matches = tuple(
            Match(tuple(bag.boxes[i].tolist()), names[images[i]], tuple(boxes[i].tolist()), float(distances[i]))
            for i in np.argsort(-advantage, kind="stable")
        )
        evidence = dataclasses.replace(evidence, matches=matches)
        added = np.bincount(np.asarray(images), np.maximum(advantage, 0.0), minlength=len(names))
    if added is None:
        return evidence
    positive = np.maximum(added, 0.0)
    shares = positive / (positive.sum() or 1.0)
    strongest = [i for i in np.argsort(-shares, kind="stable")[:_MOST_PULLS] if shares[i] > 0]
    return dataclasses.replace(evidence, pulls=tuple(Pull(names[i], label, float(shares[i])) for i in strongest))


def cannot_tell(model: Model) -> str | None:
    """Return why a model cannot name the training photos that pulled a photo, in one sentence; None if it can."""
    if model.names:
        return None
    problem = "Which training photos pulled it there cannot be told"
    if model.about.adapted:
        return f"{problem} of an adapted model; the unadapted one can tell."
    if type(model.scorer).traces is Scorer.traces and not model.scorer.remembers:
        return f"{problem}: a model of {model.kind} keeps what it learned of all photos together."
    return f"{problem}: the model was written without its memory, or is of very many photos."
