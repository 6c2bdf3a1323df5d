"""Passes: one training of prototypes, which reports its progress and continues exactly from a checkpoint.

A checkpoint holds the random state at the beginning of a pass and the number of minibatches since. To continue, the
pass is begun again and these minibatches are skipped, without reading them: what follows is the same to the last bit.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from ..bags.store import Store
from ..errors import PatchvoteError
from ..utils.files import open_regular, write_file
from ..utils.remote import RemotePath
from ..utils.tensors import checksum, contents, read_arrays, read_header
from .minibatches import Floats, Numbers, TrainingData
from .ml3 import Stoml3

Arrays = dict[str, Floats]

# Size of the first prototypes: standard deviation of random numbers, factor on descriptors and centres.
START_SCALE = 0.01
_SECONDS_BETWEEN_WRITES = 60.0  # between two writes of a checkpoint within a pass
_PROTOTYPES = 512  # whose products with a minibatch are held in memory at once
_MARK, _STATE, _CHECKSUM = "patchvote_training", "state", "checksum"

_PROGRESS = ("index", "position", "loss", "dead", "history")  # attributes of `Passes` that a checkpoint keeps


class Passes:
    """A training from the first prototypes, or from a checkpoint, to the last pass; a pass may also be made alone."""

    def __init__(
        self,
        data: TrainingData,
        rng: np.random.Generator,
        learner: Stoml3,
        batch_size: int,
        callback: Callable[[dict[str, Any]], Any] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.data, self.rng, self.learner, self.batch_size = data, rng, learner, batch_size
        self.callback, self.checkpoint = callback, checkpoint
        self.batches = data.minibatches_per_pass(batch_size)
        self.passes = 1
        self.index = self.position = self.dead = 0  # passes and minibatches done; dead prototypes
        self.loss = 0.0  # sum over the minibatches of this pass
        self.history: list[dict[str, Any]] = []
        self._random: Any = None  # state of the generator at the beginning of the pass
        if checkpoint is not None and checkpoint.saved is not None:
            self._restore(*checkpoint.saved)

    @property
    def weights(self) -> Floats:
        """Learned prototypes: those of the last step, or their mean over the last pass."""
        return self.learner.weights if self.learner.mean is None else self.learner.mean

    def run(self, max_iter: int, min_steps: int) -> None:
        """Make all passes that remain; over the last one, prototypes are averaged, which smooths large steps."""
        self.passes = max(max_iter, math.ceil(min_steps / self.batches))
        while self.index < self.passes:
            last = self.index == self.passes - 1
            if last and self.position == 0:
                self.learner.begin_mean()
            self.one_pass(reseed=not last)
            record: dict[str, Any] = {"pass": self.index + 1, "passes": self.passes, "steps": self.learner.t}
            record |= {"loss": self.loss / self.position, "dead": self.dead}
            self.history.append(record)
            self.index, self.position, self.loss = self.index + 1, 0, 0.0
            ended = self.callback is not None and self.callback(record) is True
            self._random = self.rng.bit_generator.state
            self._save()
            if ended:
                return

    def one_pass(self, *, reseed: bool = False) -> None:
        """Learn from every minibatch once; with `reseed`, dead prototypes are initialised again."""
        self._random = self.rng.bit_generator.state
        for x, labels, weight in self.data.minibatches(self.rng, self.batch_size, self.position):
            # Before the step: of an interrupted pass, the minibatch that shows dead prototypes always remains.
            if self.checkpoint is not None and self.checkpoint.is_due():
                self._save()
            self.loss += self.learner.step(x, labels, weight)
            self.position += 1
        weights = self.learner.weights
        dead = dead_prototypes(weights, x)
        if reseed and len(dead):
            seed_anew(weights, dead, x, labels, self.rng)
            self.learner.weights = weights
        self.dead = len(dead)

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        arrays = {"weights": self.learner.weights}
        if self.learner.mean is not None:
            arrays["mean"] = self.learner.mean
        state = {name: getattr(self, name) for name in _PROGRESS} | {"random": self._random}
        self.checkpoint.write(arrays, state | {"step": self.learner.t, "averaged": self.learner.averaged})

    def _restore(self, arrays: Arrays, state: dict[str, Any]) -> None:
        """Continue from the arrays and the state that a checkpoint holds."""
        for name in _PROGRESS:
            setattr(self, name, state[name])
        self.learner.restore(arrays["weights"].copy(), arrays.get("mean"), state["step"], state["averaged"])
        self.rng.bit_generator.state = state["random"]


# --- first prototypes, and new ones for those that no descriptor activates --------------------------------------------


def first_prototypes(values: Floats, labels: Numbers, count: int, classes: int, start: str, seed: int) -> Floats:
    """Return `count` points per class from a sample: random descriptors ("data") or k-means centres ("kmeans")."""
    rng = np.random.default_rng(seed)
    result = np.empty((count, classes, values.shape[1]), dtype=values.dtype)
    for number in range(classes):
        class_rows = np.flatnonzero(labels == number)
        own = values[rng.choice(class_rows, size=min(len(class_rows), max(count, 5000)), replace=False)]
        if start == "kmeans" and len(own) > count:
            from sklearn.cluster import MiniBatchKMeans

            means = MiniBatchKMeans(count, n_init=1, random_state=int(rng.integers(2**31)), batch_size=1024)
            result[:, number] = means.fit(own).cluster_centers_
        else:
            result[:, number] = own[rng.choice(len(own), size=count, replace=len(own) < count)]
    return result


def dead_prototypes(weights: Floats, x: Floats) -> Numbers:
    """Return the indices, in ``weights.reshape(-1, features)``, of prototypes that no descriptor activates.

    Such a prototype gets no gradient and would never learn.
    """
    flat = weights.reshape(-1, weights.shape[2])
    starts = range(0, len(flat), _PROTOTYPES)
    largest = [(flat[start : start + _PROTOTYPES] @ x.T).max(axis=1) for start in starts]
    return np.flatnonzero(np.concatenate(largest) <= 0)


def seed_anew(weights: Floats, dead: Numbers, x: Floats, labels: Numbers, rng: np.random.Generator) -> None:
    """Replace dead prototypes by random descriptors of their class, made as small as first prototypes."""
    for index in dead:
        prototype, number = divmod(int(index), weights.shape[1])
        class_rows = np.flatnonzero(labels == number)
        if len(class_rows):
            weights[prototype, number] = x[rng.choice(class_rows)] * START_SCALE


# --- checkpoints ------------------------------------------------------------------------------------------------------


class Checkpoint:
    """A safetensors file with the arrays of a training, its state as JSON, and a checksum.

    `mark` is a hash of data and settings, by which a training recognises its checkpoint; `saved` is what the file holds
    when it is opened, if it is there.
    """

    def __init__(self, path: Path, mark: str) -> None:
        self.path, self.mark = path, mark
        self._written = time.monotonic()
        self.saved: tuple[Arrays, dict[str, Any]] | None = None
        if path.exists():
            self.saved = self._read()
        elif not isinstance(path, RemotePath) and not path.parent.is_dir():  # now, not after hours of work
            raise PatchvoteError(f"the checkpoint {path} cannot be written: there is no folder {path.parent}. Make it.")

    def is_due(self) -> bool:
        """Whether the last write is so long ago that the next one is due."""
        return time.monotonic() - self._written >= _SECONDS_BETWEEN_WRITES

    def write(self, arrays: Arrays, state: dict[str, Any]) -> None:
        """Replace the file, atomically."""
        stored = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        metadata = {_MARK: self.mark, _STATE: json.dumps(state)}
        digest = checksum([*contents(stored), json.dumps(metadata).encode()])
        write_file(self.path, [save(stored, metadata | {_CHECKSUM: digest})])
        self._written = time.monotonic()

    def _read(self) -> tuple[Arrays, dict[str, Any]]:
        try:
            with open_regular(self.path) as file:
                metadata, places = read_header(file)
                arrays = read_arrays(file, places)
                texts = {name: metadata[name] for name in (_MARK, _STATE)}
                computed = checksum([*contents(arrays), json.dumps(texts).encode()])
        except OSError as error:
            raise PatchvoteError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        except (ValueError, KeyError) as error:
            raise PatchvoteError(f"{self.path} is not a checkpoint of a training: {error}.") from None
        if metadata.get(_CHECKSUM) != computed:
            raise PatchvoteError(f"{self.path} is damaged: remove it to begin anew, or restore it from a backup.")
        if metadata[_MARK] != self.mark:
            raise PatchvoteError(
                f"{self.path} is of another training (other photos, classes or settings): move it away, or name "
                "another."
            )
        return arrays, json.loads(metadata[_STATE])


def training_mark(
    data: TrainingData, settings: Mapping[str, Any], classes: npt.NDArray[Any], arrays: Iterable[npt.NDArray[Any]]
) -> str:
    """Return a hash of what a training depends on: images, classes, weights, settings, block sizes, and more arrays."""
    settings = dict(settings) | {"most": data.most}
    source = data.source
    content = [np.array([source.content()])] if isinstance(source, Store) else list(vars(source).values())
    texts = json.dumps([settings, classes.tolist()], sort_keys=True, default=str).encode()
    return checksum([texts, data.labels, data.weight, *content, *arrays])
