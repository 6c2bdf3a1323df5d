"""LocalNBNN: one search for all classes.

Only classes that are among the nearest neighbours of a descriptor get a vote from it: by how much they are nearer than
the background, which is the first neighbour beyond. One search instead of one a class.

References
----------
McCann and Lowe, "Local Naive Bayes Nearest Neighbor for Image Classification", CVPR 2012.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .approximate import make_bank, recall
from .base import BankVoter

_CANDIDATES = 128  # descriptors a query whose full distances are computed by the search "pca"


class LocalNBNN(BankVoter):
    """Votes for the classes among the nearest training descriptors.

    Parameters
    ----------
    neighbours : int, default 10
        Nearest descriptors that are looked at; the next one is the background.
    search : {"exact", "pca", "hnsw", "ivf"}, default "exact"
        All but the first are approximate, and `recall_` tells which share of the neighbours they find.
    normalise, position_weight, dtype, calibration, rejection
        As in `NBNN`.

    Attributes
    ----------
    recall_ : float
        1 for the exact search; for others, measured on descriptors of the bank.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(loc=label, size=(20, 4)) for label in (0, 3) for _ in range(3)]
    >>> voter = LocalNBNN(normalise=False).fit(bags, ["sea"] * 3 + ["land"] * 3)
    >>> voter.predict([np.full((5, 4), 3.0)])
    array(['land'], dtype='<U4')
    """

    def __init__(
        self,
        neighbours: int = 10,
        *,
        normalise: bool = True,
        position_weight: float = 0.0,
        search: str = "exact",
        dtype: str = "float32",
        calibration: int = 50,
        rejection: float = 0.05,
    ) -> None:
        self.neighbours = neighbours
        self.normalise = normalise
        self.position_weight = position_weight
        self.search = search
        self.dtype = dtype
        self.calibration = calibration
        self.rejection = rejection

    def _make_searchable(self) -> None:
        rotation = self._learn_rotation()
        bank = self._bank_rows(np.arange(len(self.values_))).astype(self.dtype)
        self._bank = make_bank(bank, rotation, self.search, _CANDIDATES)
        self.recall_ = 1.0 if self.search == "exact" else self._measure_recall()

    def _measure_recall(self) -> float:
        rng = np.random.default_rng(0)
        chosen = rng.choice(len(self.values_), size=min(500, len(self.values_)), replace=False)
        count = min(self.neighbours + 1, len(self.values_))
        return recall(self._bank, self._bank_rows(chosen), count)

    def _vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        count = min(self.neighbours, len(self._bank) - 1)
        distances, found = self._bank.nearest(self._comparable(values), count + 1)
        votes = np.zeros((len(values), len(self.classes_)), np.float32)
        background = distances[:, -1]
        rows = np.arange(len(values))
        for place in range(count - 1, -1, -1):  # the nearest of a class comes last, and stays
            votes[rows, self.class_[found[:, place]]] = background - distances[:, place]
        return votes
