"""LocalNBNN: one search for all classes.

Only classes among the nearest neighbours of a descriptor get a vote from it: how much nearer they are than the
background, which is the next neighbour. There is one search instead of one per class.

References
----------
McCann and Lowe, "Local Naive Bayes Nearest Neighbor for Image Classification", CVPR 2012.
"""

from __future__ import annotations

from typing import Any

from .bank_votes import LocalVotes
from .nbnn import BankVoter


class LocalNBNN(BankVoter):
    """Votes for the classes among the nearest training descriptors.

    Parameters
    ----------
    n_neighbors : int, default 10
        Number of nearest descriptors that vote; the next one is the background.
    normalise, power, position_weight, confidence, search, dtype, random_state
        As in `NBNN`.

    Attributes
    ----------
    recall_ : float
        Share of the neighbours that the search finds: 1 for the exact search; for "pca", measured on the bank.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(loc=label, size=(20, 4)) for label in (0, 3) for _ in range(3)]
    >>> voter = LocalNBNN(normalise=False).fit(bags, ["sea"] * 3 + ["land"] * 3)
    >>> voter.predict([np.full((5, 4), 3.0)])
    array(['land'], dtype='<U4')
    """

    scorer_class = LocalVotes
    description = "each part of a photo votes for the classes of the most similar parts"

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        normalise: bool = True,
        power: float | str = 1.0,
        position_weight: float = 0.0,
        confidence: float = 0.0,
        search: str = "exact",
        dtype: str = "float32",
        random_state: Any = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.normalise = normalise
        self.power = power
        self.position_weight = position_weight
        self.confidence = confidence
        self.search = search
        self.dtype = dtype
        self.random_state = random_state
