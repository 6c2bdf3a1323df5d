"""Baselines with one vector per image and a simple classifier: the whole image, a scale of it, or the mean of its bag.

A comparison of parts with the whole image is fair only if both see the same pixels. `dense` bags hold the cells of a
feature map at several scales; pooling the cells of one scale gives the image at that resolution, without any parts.
`patch` bags hold patches of several sizes, all of which pass the network at the same size: the mean of all of them
("all") has seen the same pixels as a vote of parts.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

from patchvote.bags.bags import Bags
from patchvote.bags.store import Store

Floats = npt.NDArray[np.float32]
SCALES = ("whole", "first", "last", "each", "all")
_BLOCK_DESCRIPTORS = 50_000  # read from a store at once: 256 MB with 1,280 features as float32


def blocks_of(images: Bags | Store) -> Iterator[Bags]:
    """Yield bags that are in memory unchanged, and those of a store block by block."""
    if isinstance(images, Bags):
        yield images
    else:
        yield from (bags for bags, _ in images.blocks(_BLOCK_DESCRIPTORS))


def chosen(images: Bags | Store, rows: npt.NDArray[Any]) -> Any:
    """Return some images, by their numbers or a mask."""
    return images[rows] if isinstance(images, Bags) else images.only(np.array(images.names, object)[rows].tolist())


def at_scale(bags: Bags, level: int) -> Bags:
    """Return the bags with the descriptors of one level only: 0 is the whole image, -1 the last scale."""
    level = int(bags.level.max()) if level < 0 else level
    chosen = bags.level == level
    sizes = np.add.reduceat(chosen, bags.offsets[:-1], dtype=np.int64)
    if (sizes == 0).any():
        raise ValueError(f"bag {int(sizes.argmin())} has no descriptor of level {level}.")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Bags(bags.values[chosen], offsets, bags.boxes[chosen], bags.level[chosen])


def means_at(bags: Bags, scales: str) -> list[Floats]:
    """Return the means of the images, ``(images, features)``, at each of these scales."""
    last = int(bags.level.max())
    levels = {"whole": [0], "first": [1], "last": [last], "each": list(range(1, last + 1))}
    at_scales = [bags] if scales == "all" else [at_scale(bags, level) for level in levels[scales]]
    return [np.asarray(one.means(), np.float32) for one in at_scales]


def side_by_side(means: list[Floats], signed: bool) -> Floats:
    """Return the roots of means, each of length 1, side by side; of `signed` features, no roots are taken."""
    return np.hstack([unit(mean if signed else np.sqrt(np.maximum(mean, 0))) for mean in means])


def unit(rows: Floats) -> Floats:
    """Return rows of length 1."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float32)


def is_signed(images: Bags | Store) -> bool:
    """Whether the mean of some image has a negative feature."""
    return any(bool((bags.means() < 0).any()) for bags in blocks_of(images))


class PooledClassifier(ClassifierMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]
    """A simple classifier of one vector per image, normalised to length 1.

    Standardised features gave 1 to 2 points less on Scene-15.
    """

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Bags | Store, y: Any) -> Self:
        """Learn from labelled images; of a store, at most one block is in memory at a time."""
        self._prepare(X)
        vectors, labels = self._vectors(X), np.asarray(y)
        self.model_ = self._learned(vectors, labels)
        self.classes_ = self.model_.classes_
        return self

    def _learned(self, vectors: Floats, labels: npt.NDArray[Any]) -> Any:
        """Return a classifier trained on vectors."""
        return _by_folds(LinearSVC(random_state=0), (3.0, 1.0, 10.0), vectors, labels, self.random_state)

    def predict(self, X: Bags) -> npt.NDArray[Any]:
        """Return the predicted label of each image."""
        return np.asarray(self.model_.predict(self._vectors(X)))

    def _prepare(self, images: Bags | Store) -> None:
        """Learn from the training images how to compute the vector of an image."""

    def _vectors(self, images: Bags | Store) -> Floats:
        """Return one vector per image."""
        return np.concatenate([self._vectors_of_block(bags) for bags in blocks_of(images)])

    @abc.abstractmethod
    def _vectors_of_block(self, bags: Bags) -> Floats:
        """Return one vector per image of a block."""


def _by_folds(model: Any, strengths: tuple[float, ...], vectors: Floats, labels: npt.NDArray[Any], seed: int) -> Any:
    """Train with the C that cross-validation chooses; with the first where a class has a single image."""
    fewest = int(np.unique(labels, return_counts=True)[1].min())
    name = type(model).__name__.lower()
    made = make_pipeline(Normalizer(), model.set_params(C=strengths[0]))
    if fewest > 1:
        folds = StratifiedKFold(min(3, fewest), shuffle=True, random_state=seed)
        made = GridSearchCV(made, {f"{name}__C": sorted(strengths)}, cv=folds)
    return made.fit(vectors, labels)


def decision_values(model: Any, vectors: Floats) -> npt.NDArray[np.float64]:
    """Return one decision value per class; two classes, which have one function, get half of it with opposite signs."""
    values = np.asarray(model.decision_function(vectors), np.float64)
    return values if values.ndim == 2 else np.stack([-values, values], axis=1) / 2


class WholeImageSvm(PooledClassifier):
    """The descriptor of the whole image (level 0), and a linear SVM."""

    def _vectors_of_block(self, bags: Bags) -> Floats:
        return np.asarray(at_scale(bags, 0).values, np.float32)


class MeanSvm(PooledClassifier):
    """The mean of all descriptors of an image, and a linear SVM."""

    def _vectors_of_block(self, bags: Bags) -> Floats:
        return np.asarray(bags.means(), np.float32)


class PooledSvm(PooledClassifier):
    """The image at the resolution of one scale or of each, pooled, and a linear SVM.

    Of signed features, the mean vector of training is subtracted: tokens of a transformer have much in common, which
    would hide how they differ.

    The `scales` are "whole" (the descriptor of the whole image), "first" or "last" (the cells or patches of that
    scale), "each" (those of each scale, side by side) or "all" (all descriptors of the bag in one mean).
    """

    def __init__(self, scales: str = "last", random_state: int = 0) -> None:
        super().__init__(random_state)
        self.scales = scales

    def _check_settings(self) -> None:
        if self.scales not in SCALES:
            raise ValueError(f"scales must be one of {', '.join(SCALES)}, got {self.scales!r}.")

    def _prepare(self, images: Bags | Store) -> None:
        self.signed_, self.centre_ = is_signed(images), np.float32(0)
        if self.signed_:
            self.centre_ = self._vectors(images).mean(axis=0)

    def _vectors_of_block(self, bags: Bags) -> Floats:
        return np.asarray(side_by_side(means_at(bags, self.scales), self.signed_) - self.centre_)


class BagSvm(PooledClassifier):
    """The power-normalised mean of all descriptors, and a linear SVM.

    Vectors are centred, and scaled to a mean squared length of 1, for which C is the inverse regularisation strength.
    """

    def __init__(self, C: float = 1.0, power: float = 0.5) -> None:
        super().__init__()
        self.C = C
        self.power = power

    def _prepare(self, images: Bags | Store) -> None:
        self.signed_, self.centre_, self.length_ = is_signed(images), np.float32(0), np.float32(1)
        vectors = self._vectors(images)
        self.centre_ = vectors.mean(axis=0)
        self.length_ = np.sqrt(np.mean(np.square(vectors - self.centre_).sum(axis=1))) or np.float32(1)

    def _vectors_of_block(self, bags: Bags) -> Floats:
        means = np.asarray(bags.means(), np.float32)
        vectors = unit(means if self.signed_ else np.maximum(means, 0) ** np.float32(self.power))
        return np.asarray((vectors - self.centre_) / self.length_, np.float32)

    def _learned(self, vectors: Floats, labels: npt.NDArray[Any]) -> Any:
        return LinearSVC(C=self.C, random_state=0).fit(vectors, labels)


class CovarianceSvm(PooledClassifier):
    """The covariance of all descriptors of an image, and a linear SVM: second-order pooling, named as such.

    Descriptors are projected onto the leading principal axes of training; of the covariance of their projections the
    matrix square root is taken, which weighs its directions evenly. The roots of their mean stand beside it.
    """

    def __init__(self, features: int = 96, random_state: int = 0) -> None:
        super().__init__(random_state)
        self.features = features

    def _prepare(self, images: Bags | Store) -> None:
        count, total, products = 0, np.zeros(1), np.zeros((1, 1))
        for bags in blocks_of(images):
            for start in range(0, len(bags.values), _BLOCK_DESCRIPTORS):
                rows = _rooted(bags.values[start : start + _BLOCK_DESCRIPTORS])
                count, total = count + len(rows), total + rows.sum(axis=0, dtype=np.float64)
                products = products + (rows.T @ rows).astype(np.float64)
        mean = total / count
        axes = np.linalg.eigh(products / count - np.outer(mean, mean))[1][:, ::-1][:, : self.features]
        self.mean_, self.axes_ = mean.astype(np.float32), axes.astype(np.float32)

    def _vectors_of_block(self, bags: Bags) -> Floats:
        upper, pooled = np.triu_indices(self.axes_.shape[1]), []
        for number in range(len(bags)):
            parts = (_rooted(bags[number : number + 1].values) - self.mean_) @ self.axes_
            values, turns = np.linalg.eigh(np.cov(parts.T, bias=True))
            root = (turns * np.sqrt(np.maximum(values, 0))) @ turns.T
            root = root * np.sqrt(2 - np.eye(len(root)))  # so that products are those of the whole matrices
            pooled.append(np.concatenate([root[upper], parts.mean(axis=0)]))
        return unit(np.asarray(pooled, np.float32))


def _rooted(values: npt.NDArray[Any]) -> Floats:
    values = values.astype(np.float32)
    return np.asarray(np.copysign(np.sqrt(np.abs(values)), values), np.float32)
