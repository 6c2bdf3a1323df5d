"""sNBNL with the settings of the paper to the letter, as its pseudocode has them: a row of every table."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from patchvote import SNBNL
from patchvote.voters.minibatches import TrainingData
from patchvote.voters.prototype_training import Passes


@dataclasses.dataclass(eq=False, repr=False)
class PaperSnbnl(SNBNL):
    """sNBNL with lambda 1 and L 1, minibatches of 2,500 and a start of N(0, 1); the answer is the last iterate.

    The paper states the regulariser, the minibatches and that features are standardised; the start and L are those of
    its pseudocode. How many passes it makes it does not say: here as many as ours, and 100 steps at least.
    """

    alpha: float | str = 1.0
    curvature: float = 1.0
    batch_size: int = 2500

    def _first_prototypes(self, data: TrainingData, rng: np.random.Generator) -> npt.NDArray[Any]:
        return rng.standard_normal((self.n_prototypes, len(self.classes_), data.dim)).astype(data.dtype)

    def _train(self, data: TrainingData, seed: int) -> None:
        rng, self.alpha_ = np.random.default_rng(seed), self.alpha
        learner = self._learner(self._first_prototypes(data, rng))
        passes = Passes(data, rng, learner, self.batch_size)
        count = max(self.max_iter, -(-self.min_steps // passes.batches))
        for _ in range(count):
            passes.one_pass()
            passes.position = 0
        self.weights_, self.history_, self.n_iter_ = learner.weights, [], count
        self.steps_, self.dead_prototypes_ = learner.t, passes.dead
