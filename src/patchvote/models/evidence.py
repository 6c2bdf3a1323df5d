"""Evidence: where in a photo the votes for a class come from.

Every descriptor looked at a box of the photo and voted. A map spreads each vote evenly over its box, so that the whole
map adds up to the decision value of the class: nothing is added for beauty, and nothing is lost.
"""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import numpy.typing as npt

from ..errors import PatchvoteError
from ..utils.suggest import nearest
from ..version import __version__


@dataclasses.dataclass(frozen=True)
class Match:
    """A part of the photo, and the part of a training photo that it looks like.

    Parameters
    ----------
    box : tuple
        Left, top, right, bottom in 0..1 of the photo.
    name : str
        The training photo.
    there : tuple
        The box in it.
    distance : float
        Squared, between the two descriptors.
    """

    box: tuple[float, float, float, float]
    name: str
    there: tuple[float, float, float, float]
    distance: float


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """The votes of one photo.

    Parameters
    ----------
    name : str
        The photo.
    classes : tuple of str
        What was voted on.
    votes : array of shape (descriptors, classes)
        Vote of each descriptor for each class.
    boxes : array of shape (descriptors, 4)
        Where each looked: left, top, right, bottom in 0..1 of the upright photo.
    probability : array of shape (classes,)
        What the votes came to.
    matches : tuple of Match
        For voters that remember training photos: the parts that are most like some of them.
    rejected : bool
        Whether "none of these" is the better answer: no class is likely enough.

    Examples
    --------
    >>> boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    >>> evidence = Evidence("a.jpg", ("sea", "land"), np.array([[2.0, 0], [0, 1]]), boxes, np.array([0.6, 0.4]))
    >>> evidence.map("sea", 2, 1), evidence.decision
    (array([[1., 0.]]), array([1. , 0.5]))
    """

    name: str
    classes: tuple[str, ...]
    votes: npt.NDArray[np.float64]
    boxes: npt.NDArray[np.float64]
    probability: npt.NDArray[np.float64]
    matches: tuple[Match, ...] = ()
    rejected: bool = False

    @property
    def decision(self) -> npt.NDArray[np.float64]:
        """Decision value of each class: the mean vote."""
        return np.asarray(self.votes.mean(axis=0))

    @property
    def ranking(self) -> tuple[str, ...]:
        """The classes, the likeliest first."""
        return tuple(self.classes[i] for i in np.argsort(-self.probability, kind="stable"))

    def as_npz(self) -> bytes:
        """Return classes, votes, boxes, probabilities and a map of 64 by 64 per class as the bytes of an .npz file."""
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
        """Return the votes for a class less the strongest for another: above 0 where parts speak for this one."""
        return self._spread(self.advantage(label), width, height)

    def advantage(self, label: str) -> npt.NDArray[np.float64]:
        """Return each descriptor's vote for a class less its strongest vote for another."""
        number = self.number(label)
        others = np.delete(self.votes, number, axis=1)
        return np.asarray(self.votes[:, number] - others.max(axis=1))

    def number(self, label: str) -> int:
        """Return the number of a class, or say which classes there are."""
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
    """Return which share of each span ``(first, last)`` in 0..1 falls on each pixel of a row: shares add up to 1."""
    lines = np.linspace(0, 1, pixels + 1)
    first, last = edges[:, :1].astype(np.float64), edges[:, 1:].astype(np.float64)
    inside = np.clip(np.minimum(last, lines[1:]) - np.maximum(first, lines[:-1]), 0, None)
    return np.asarray(inside / inside.sum(axis=1, keepdims=True))
