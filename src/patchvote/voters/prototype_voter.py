"""PrototypeVoter: what SNBNL and NBNL share, and the sample of descriptors with which SNBNL learns more."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from ..bags.bags import Bags
from ..bags.store import Store
from .base import Voter, joined
from .labels import image_weights
from .minibatches import Limits, TrainingData, limits
from .scorer import Scorer
from .votes import resolved

REMEMBERED = 256  # descriptors kept per class


class PrototypeVoter(Voter):
    """Base of the voters with learned prototypes; subclasses define `_train` and their settings."""

    n_prototypes: int
    q: float
    power: float | str
    position_weight: float
    class_weight: Any
    batch_size: int
    random_state: Any

    power_: float
    weights_: npt.NDArray[Any]
    mean_: npt.NDArray[np.float64]
    scale_: npt.NDArray[np.float64]
    history_: list[dict[str, Any]]

    def _train(self, data: TrainingData, seed: int, training: str) -> None:
        """Train prototypes from scratch; `training` is the purpose, "calibration" or "final"."""
        raise NotImplementedError

    def _begin(self, data: TrainingData, seeds: npt.NDArray[np.int64]) -> None:
        """Prepare the trainings of a fit; called once the features are standardised."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn prototypes from labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            Training images. A store may be larger than memory.
        y : array of shape (images,), optional
            Classes of the images; by default those of the store.
        sample_weight : array of shape (images,), optional
            Weights of the images; those of weight 0 are left out.
        """
        self._check_settings()
        data = self._training_data(X, y, sample_weight)
        seeds = check_random_state(self.random_state).randint(2**31, size=3)
        self._standardise(data)
        self._begin(data, seeds)

        def train(images: npt.NDArray[np.int64], training: str) -> None:
            self._train(data if training == "final" else data.only(images), int(seeds[1]), training)

        def scores(images: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
            scorer = self.scorer()
            return joined([scorer.scores(bags) for bags in data.bags(images)])

        self._train_and_calibrate(data.images, data.labels, data.source, train, scores, int(seeds[0]))
        return self

    def _training_data(
        self, X: Any, y: Any, sample_weight: Any, learned: npt.NDArray[Any] | None = None, *, reset: bool = True
    ) -> TrainingData:
        """Check images and labels, and set `classes_` to the classes `learned` before and those of `y`."""
        source, labels = self._read_labelled(X, y, reset=reset)
        numbers = self._set_classes(labels, learned)
        weight = image_weights(self.classes_, numbers, self.class_weight, sample_weight)
        data = TrainingData(source, numbers, weight, self._limits(source))
        if reset:
            self.power_ = resolved(self.power, self.power == "auto" and data.has_negative_features())
            self.positions_ = data.positions and self.position_weight > 0
        data.positions, data.dim, data.power = self.positions_, source.dim + 2 * self.positions_, self.power_
        return data

    def _standardise(self, data: TrainingData) -> None:
        moments = data.moments()
        self.mean_, self.scale_ = moments.mean, 1 / moments.deviation()
        if data.positions:
            self.scale_[-2:] *= self.position_weight

    def _limits(self, source: Bags | Store) -> Limits:
        """Return how many descriptors of a store may be in memory; bags are there already."""
        if isinstance(source, Bags):
            return Limits(len(source.values), len(source.values))
        return limits(
            self.options.memory,
            dim=source.dim,
            itemsize=np.dtype(source.dtype).itemsize,
            prototypes=self.n_prototypes,
            classes=len(self.classes_),
            batch_size=self.batch_size,
            votes=self.options.calibration > 0,
        )

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings, with the exponent that is used."""
        return super()._plain_settings() | ({"power": self.power_} if hasattr(self, "power_") else {})

    def _restored(self, scorer: Scorer) -> None:
        self.power = self.power_ = float(scorer.settings.get("power", 1.0))
        self.steps_, self.n_iter_, self.history_ = 0, 0, []


@dataclasses.dataclass(frozen=True, eq=False)
class Memory:
    """Random descriptors of each class, a sample of all that were seen, their boxes and class numbers.

    New photos are learned together with them, so that old classes are not forgotten although their photos are not
    available any more.
    """

    values: npt.NDArray[Any]
    boxes: npt.NDArray[Any]
    numbers: npt.NDArray[np.int64]

    @classmethod
    def of(cls, bags: Bags, numbers: npt.NDArray[np.int64], classes: int, rng: np.random.Generator) -> Self:
        """Choose random descriptors of each class."""
        owner = numbers[bags.owner]
        rows = [rng.permutation(np.flatnonzero(owner == number))[:REMEMBERED] for number in range(classes)]
        chosen = np.concatenate(rows)
        return cls(compact(bags.values[chosen]), bags.boxes[chosen].astype(np.float32), owner[chosen].astype(np.int64))

    def bags(self) -> tuple[Bags, npt.NDArray[np.int64]]:
        """Return one bag per class, and the class number of each bag."""
        order = np.argsort(self.numbers, kind="stable")
        present, sizes = np.unique(self.numbers, return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Bags(self.values[order].astype(np.float32), offsets, self.boxes[order]), present

    def merged(
        self,
        known: npt.NDArray[Any],
        new: Bags,
        labels: npt.NDArray[Any],
        classes: npt.NDArray[Any],
        seen: Mapping[str, int],
        rng: np.random.Generator,
    ) -> Self:
        """Return a memory of old and new descriptors, in proportion to how many were seen of each.

        The numbers of this memory refer to the classes `known`, those of the new one to `classes`.
        """
        memory, class_numbers = self.bags()
        memory_labels = known[class_numbers]
        values, boxes, numbers = [], [], []
        for number, label in enumerate(classes.tolist()):
            old = memory[memory_labels == label] if (memory_labels == label).any() else None
            added = new[labels == label] if (labels == label).any() else None
            share = 0.0 if old is None else 1.0
            if old is not None and added is not None:
                before = seen.get(label, len(old.values))
                share = before / (before + len(added.values))
            for part, count in ((old, round(REMEMBERED * share)), (added, round(REMEMBERED * (1 - share)))):
                if part is not None and count:
                    rows = rng.permutation(len(part.values))[:count]
                    values.append(compact(part.values[rows]))
                    boxes.append(part.boxes[rows])
                    numbers.append(np.full(len(rows), number))
        return type(self)(np.concatenate(values), np.concatenate(boxes), np.concatenate(numbers).astype(np.int64))


def compact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return descriptors as float16, or as float32 if one of them is too large for that."""
    fits = float(np.abs(values).max(initial=0)) <= float(np.finfo(np.float16).max)
    return values.astype(np.float16 if fits else np.float32)
