"""Evidence: where in a photo the votes for a class come from.

Every descriptor describes a box of the photo and votes. A map spreads each vote evenly over its box, so the sum over
the map equals the decision value of the class. Maps are neither smoothed nor enhanced.
"""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import PatchvoteError
from ..photos.find import Photo
from ..utils.terminal import nearest
from ..version import __version__


@dataclasses.dataclass(frozen=True)
class Match:
    """A part of a photo, and the most similar part of a training photo.

    Parameters
    ----------
    box : tuple
        Left, top, right and bottom of the part, in 0..1 of the photo.
    name : str
        Name of the training photo.
    there : tuple
        Box of the part in the training photo.
    distance : float
        Squared distance between the two descriptors.
    """

    box: tuple[float, float, float, float]
    name: str
    there: tuple[float, float, float, float]
    distance: float


@dataclasses.dataclass(frozen=True)
class Pull:
    """A training photo that pulled a photo towards a class.

    Parameters
    ----------
    name : str
        Name of the training photo.
    label : str
        Its class, which is the one that it pulled towards.
    share : float
        Its share of what all training photos of the class did.
    """

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
    pulls : tuple of Pull
        Training photos that pulled the photo towards its likeliest class, or the one that was asked about, the
        strongest first; empty where the model cannot tell (`pulling.cannot_tell` says why).
    rejected : bool
        Whether "none of these" is the better answer.
    familiarity : float or None
        Share of held-out photos of the model's classes that look at least as strange; None if the model does not know.
    photo : Photo or None
        The photo itself, which `plot` shows.

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
        from .notebook import picture_of

        return picture_of(self, labels, side)

    def _repr_html_(self) -> str:
        from .notebook import evidence_html

        return evidence_html(self)

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
        if not label:
            raise PatchvoteError(f"the name of the class is empty.{nearest('', self.classes)}")
        if label not in self.classes:
            raise PatchvoteError(f"there is no class {label!r}.{nearest(label, self.classes)}")
        return self.classes.index(label)

    def _spread(self, votes: npt.NDArray[np.float64], width: int, height: int) -> npt.NDArray[np.float64]:
        for name, pixels in (("width", width), ("height", height)):
            if not isinstance(pixels, (int, np.integer)) or pixels < 1:
                raise PatchvoteError(
                    f"{name} of a map must be a whole number of pixels, at least 1, got {pixels!r:.80}."
                )
        across, down = _coverage(self.boxes[:, 0::2], width), _coverage(self.boxes[:, 1::2], height)
        return np.asarray((down * (votes / len(votes))[:, None]).T @ across)


def _coverage(edges: npt.NDArray[np.float64], pixels: int) -> npt.NDArray[np.float64]:
    """Return the share of each span ``(first, last)`` in 0..1 that falls on each pixel of a row; shares add up to 1."""
    lines = np.linspace(0, 1, pixels + 1)
    first, last = edges[:, :1].astype(np.float64), edges[:, 1:].astype(np.float64)
    inside = np.clip(np.minimum(last, lines[1:]) - np.maximum(first, lines[:-1]), 0, None)
    return np.asarray(inside / inside.sum(axis=1, keepdims=True))
