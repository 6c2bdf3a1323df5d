"""Passes: one training of prototypes, which reports its progress, stops early, and continues from a checkpoint.

A checkpoint holds the random state at the beginning of a pass and the number of minibatches since. To continue, the
pass is begun again and these minibatches are skipped, without reading them: what follows is the same to the last bit.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .checkpoint import Checkpoint
from .minibatches import TrainingData
from .start import dead_prototypes, seed_anew
from .stoml3 import Stoml3

Callback = Callable[[dict[str, Any]], Any]
Floats = npt.NDArray[Any]

_PATIENCE = 2  # passes without a better accuracy on held-out images, after which a training ends
_SECONDS_BETWEEN = 1.0  # between two records within a pass


@dataclasses.dataclass(frozen=True)
class Plan:
    """Settings of a training, as in `SNBNL`; `mean` and `scale` standardise descriptors."""

    mean: Floats
    scale: Floats
    batch_size: int
    max_iter: int = 1
    min_steps: int = 0
    average: bool = False
    start_scale: float = 0.0
    callback: Callback | None = None


class Passes:
    """A training from the first prototypes, or from a checkpoint, to the last pass.

    Parameters
    ----------
    name : str
        Purpose of the training: "calibration", "final", or "more" if images are added.
    plan : Plan
        Settings.
    data : TrainingData
        Images to learn from.
    rng : Generator
        Source of random numbers.
    learner : Stoml3
        Object that makes the steps.
    accuracy : function, optional
        Returns the accuracy of prototypes on held-out images.
    checkpoint : Checkpoint, optional
        File that keeps the state.

    Attributes
    ----------
    weights : array
        Learned prototypes: those of the last step, their mean over the last pass, or the best on held-out images.
    history : list of dict
        Record of each pass.
    dead : int
        Prototypes that no descriptor of the very last minibatch activated.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        data: TrainingData,
        rng: np.random.Generator,
        learner: Stoml3,
        accuracy: Callable[[Floats], float] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.name, self.plan, self.data, self.rng, self.learner = name, plan, data, rng, learner
        self.accuracy, self.checkpoint = accuracy, checkpoint
        self.batches = data.minibatches_per_pass(plan.batch_size)
        self.passes = max(plan.max_iter, math.ceil(plan.min_steps / self.batches))
        self.index = self.position = self.stale = self.dead = 0  # passes and minibatches done, passes without progress
        self.loss = 0.0  # sum over the minibatches of this pass
        self.best_accuracy = -1.0
        self.best: Floats | None = None
        self.history: list[dict[str, Any]] = []
        self._random: Any = None  # state of the generator at the beginning of the pass
        self._begun, self._reported, self._before = time.perf_counter(), time.perf_counter(), 0

    @property
    def weights(self) -> Floats:
        """Learned prototypes."""
        return self._last_weights() if self.best is None else self.best

    def _last_weights(self) -> Floats:
        mean = self.learner.mean
        return self.learner.weights if mean is None else mean

    def run(self) -> None:
        """Make all passes that remain."""
        self._begun, self._before = time.perf_counter(), self.index * self.batches + self.position
        while self.index < self.passes and self.stale < _PATIENCE:
            last = self.index == self.passes - 1
            if self.plan.average and last and self.position == 0:
                self.learner.begin_mean()
            if not self.one_pass(reseed=not last):
                self.history.append(self._record(self.index, complete=False))
                return
            record = self._record(self.index + 1) | {"dead": self.dead}
            self._judge(record)
            self.history.append(record)
            self.index, self.position, self.loss = self.index + 1, 0, 0.0
            ended = self.plan.callback is not None and self.plan.callback(record) is True
            self._random = self.rng.bit_generator.state
            self._save(finished=self.index == self.passes or self.stale >= _PATIENCE)
            if ended:
                return

    def one_pass(self, *, reseed: bool = False) -> bool:
        """Learn from every minibatch once; return False if the callback ended the training before.

        With `reseed`, dead prototypes are initialised again.
        """
        plan = self.plan
        self._random, before = self.rng.bit_generator.state, self.position
        for x, labels, weight in self.data.minibatches(
            self.rng, plan.batch_size, plan.mean, plan.scale, skip=self.position
        ):
            # Before the step: of an interrupted pass, the minibatch that shows dead prototypes always remains.
            if self.checkpoint is not None and self.checkpoint.is_due():
                self._save()
            if self.position and self._report():
                return False
            self.loss += self.learner.step(x, labels, weight)
            self.position += 1
        if self.position == before and self.checkpoint is not None:  # no pass has as many minibatches as it says
            raise self.checkpoint.damaged()
        weights, x = self.learner.weights, np.asarray(x)  # on workers, this process has only the numbers of rows
        dead = dead_prototypes(weights, x)
        if reseed and len(dead):
            seed_anew(weights, dead, x, labels, self.rng, plan.start_scale)
            self.learner.weights = weights
        self.dead = len(dead)
        return True

    def _judge(self, record: dict[str, Any]) -> None:
        """Classify the held-out images, if there are any, and keep the best prototypes."""
        if self.accuracy is None:
            return
        weights = self._last_weights()
        record["held_out_accuracy"] = self.accuracy(weights)
        self.stale += 1
        if record["held_out_accuracy"] > self.best_accuracy:
            self.best_accuracy, self.best, self.stale = record["held_out_accuracy"], weights.copy(), 0

    # --- progress ---------------------------------------------------------------------------------------------------

    def _record(self, index: int, *, complete: bool = True) -> dict[str, Any]:
        record = {"training": self.name, "pass": index, "passes": self.passes, "steps": self.learner.t}
        record |= {"loss": self.loss / max(1, self.position)}
        if not complete:
            done = self.index * self.batches + self.position
            rate = (done - self._before) / max(time.perf_counter() - self._begun, 1e-9)
            left = max(0, self.passes * self.batches - done)
            record |= {"complete": False, "share_of_pass": min(1.0, self.position / self.batches)}
            record["descriptors_per_second"] = rate * self.data.descriptors / self.batches
            record["seconds_left"] = left / rate if rate > 0 else math.inf
        return record

    def _report(self) -> bool:
        """Report the progress within a pass, about once per second; return whether the callback ends the training."""
        if self.plan.callback is None or time.perf_counter() - self._reported < _SECONDS_BETWEEN:
            return False
        self._reported = time.perf_counter()
        if self.plan.callback(self._record(self.index + 1, complete=False)) is not True:
            return False
        self._save()
        return True

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _save(self, *, finished: bool = False) -> None:
        if self.checkpoint is None:
            return
        arrays = {"weights": self.learner.weights, "mean": self.learner.mean, "best": self.best}
        state = {
            "finished": finished,
            "pass": self.index,
            "position": self.position,
            "step": self.learner.t,
            "averaged": self.learner.averaged,
            "loss": self.loss,
            "stale": self.stale,
            "dead": self.dead,
            "best_accuracy": self.best_accuracy,
            "history": self.history,
            "random": self._random,
        }
        self.checkpoint.write(self.name, {name: array for name, array in arrays.items() if array is not None}, state)

    def restore(self, arrays: dict[str, Floats], state: dict[str, Any]) -> None:
        """Continue from the arrays and the state that a checkpoint holds.

        Raises
        ------
        PatchvoteError
            The state of the generator cannot be right.
        """
        self.index, self.position, self.stale = state["pass"], state["position"], state["stale"]
        self.loss, self.dead, self.best_accuracy = state["loss"], state["dead"], state["best_accuracy"]
        self.best, self.history = arrays.get("best"), state["history"]
        self.learner.restore(arrays["weights"], arrays.get("mean"), state["step"], state["averaged"])
        try:
            self.rng.bit_generator.state = state["random"]
        except (KeyError, OverflowError, TypeError, ValueError):
            if self.checkpoint is None:
                raise
            raise self.checkpoint.damaged() from None
