"""LocalNBNN: one search for all classes.

Only classes among the nearest neighbours of a descriptor get a vote from it: how much nearer they are than the
background, which is the next neighbour. There is one search instead of one per class.

References
----------
McCann and Lowe, "Local Naive Bayes Nearest Neighbor for Image Classification", CVPR 2012.
"""

from __future__ import annotations

from typing import Any

from .base import BankVoter
from .in_parts import DEFAULT_MEMORY
from .votes import LocalVotes


class LocalNBNN(BankVoter):
    """Votes for the classes among the nearest training descriptors.

    Parameters
    ----------
    n_neighbors : int, default 10
        Number of nearest descriptors that vote; the next one is the background.
    search : {"exact", "pca", "hnsw", "ivf"}, default "exact"
        Search for neighbours. All but "exact" are approximate; `recall_` is the share of the neighbours they find.
    normalise, power, position_weight, confidence, dtype, calibration, rejection, memory
        As in `NBNN`.
    random_state : int or None, default 0
        Seed of the choice of held-out images.

    Attributes
    ----------
    recall_ : float
        Share of the neighbours that the search finds: 1 for the exact search; for others, measured on the bank.

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
        calibration: float = 0.2,
        rejection: float = 0.05,
        memory: float = DEFAULT_MEMORY,
        random_state: Any = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.normalise = normalise
        self.power = power
        self.position_weight = position_weight
        self.confidence = confidence
        self.search = search
        self.dtype = dtype
        self.calibration = calibration
        self.rejection = rejection
        self.memory = memory
        self.random_state = random_state
