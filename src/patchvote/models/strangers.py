"""Strangers: photos of classes that a model does not know, and how many of them it rejects.

Everything is computed from answers; nothing here depends on photos or voters.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Strangers:
    """Answers for photos of unknown classes.

    Parameters
    ----------
    labels : tuple of str
        True class of each photo, which the model does not know; empty where it was not given.
    predicted : tuple of str
        Likeliest class of each photo, among those that the model knows.
    familiarity : array of shape (photos,)
        Familiarity of each photo; the largest probability if the model has no familiarity.
    threshold : float
        Smallest familiarity (or probability) of an answer; below it, the answer is "none of these".

    Examples
    --------
    >>> strangers = Strangers(("cow", "cow", "hen"), ("cat",) * 3, np.array([0.01, 0.2, 0.02]), 0.05)
    >>> strangers.rejected.tolist(), strangers.auroc(np.array([0.1, 0.3, 0.5]))
    ([True, False, True], 0.888...)
    """

    labels: tuple[str, ...]
    predicted: tuple[str, ...]
    familiarity: Floats
    threshold: float

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rejected(self) -> npt.NDArray[np.bool_]:
        """Which photos are answered with "none of these"."""
        return self.familiarity < self.threshold

    def auroc(self, known: npt.NDArray[Any]) -> float:
        """Return how often a photo of a known class is more familiar than a stranger; ties count half.

        This is the area under the curve of `curve`: 1 if both are told apart at some threshold, 0.5 by guessing.

        Parameters
        ----------
        known : array of shape (known photos,)
            Familiarity (or probability) of photos of known classes.
        """
        ranked = np.sort(known)
        below, up_to = (np.searchsorted(ranked, self.familiarity, side=side).mean() for side in ("left", "right"))
        return float(1 - (below + up_to) / 2 / len(known))

    def curve(self, known: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Return the shares of known photos and of strangers that are rejected, for every threshold, both rising.

        Examples
        --------
        >>> strangers = Strangers(("cow", "cow"), ("cat", "cat"), np.array([0.01, 0.2]), 0.05)
        >>> [share.tolist() for share in strangers.curve(np.array([0.1, 0.3]))]
        [[0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0]]
        """
        levels = np.append(np.unique(np.concatenate([known, self.familiarity])), np.inf)
        found = (np.searchsorted(np.sort(scores), levels, side="left") for scores in (known, self.familiarity))
        of_known, of_strangers = (np.asarray(count / max(int(count[-1]), 1)) for count in found)
        return of_known, of_strangers

    def by_class(self) -> list[tuple[str, int, int, str]]:
        """Return each unknown class: number of photos, number rejected, and the class that the others are named most.

        Classes of which the fewest are rejected come first.
        """
        accepted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for label, predicted, rejected in zip(self.labels, self.predicted, self.rejected.tolist(), strict=True):
            if not rejected:
                accepted[label][predicted] += 1
        rows = []
        for label, count in sorted(collections.Counter(self.labels).items()):
            named = accepted[label]
            rows.append((label, count, count - named.total(), named.most_common(1)[0][0] if named else ""))
        return sorted(rows, key=lambda row: row[2] / row[1])

    def summary(self, known: npt.NDArray[Any]) -> dict[str, Any]:
        """Return the figures as plain numbers, for JSON; `known` as for `auroc`."""
        return {
            "images": len(self),
            "rejected": int(self.rejected.sum()),
            "auroc": self.auroc(known),
            "classes": {
                label: {"images": count, "rejected": rejected, "named": most}
                for label, count, rejected, most in self.by_class()
            },
        }
