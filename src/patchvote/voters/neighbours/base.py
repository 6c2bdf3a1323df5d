"""What NBNN and LocalNBNN share: a memory of training descriptors, and where each came from."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...bags.bags import Bags
from ...bags.copies import copy_groups
from ...bags.store import Store
from ..base import FEWEST_TO_CALIBRATE, Voter
from ..labels import check_labels, hold_out, labels_of
from ..votes import has_positions, with_positions
from .approximate import APPROXIMATE, Rotation
from .bounds import EvenRotation, squares

PCA_FEATURES = 128  # leading features that the search "pca" looks at
_SAMPLE = 20_000  # descriptors from which a rotation is learned


class BankVoter(Voter):
    """What NBNN and LocalNBNN share: the memory of training descriptors, and what each came from.

    Attributes
    ----------
    values_ : array of shape (n, features)
        The bank: descriptors as they came, with positions; centres as they are compared, where it is condensed.
    mean_ : array of shape (features,)
        Mean of the bank's descriptors, subtracted before they are brought to length 1; 0 where they are not.
    class_ : array of shape (n,)
        Number of the class of each.
    image_ : array of shape (n,)
        Number of the training image that each came from, in the order in which images were given.
    boxes_ : array of shape (n, 4)
        Where in that image it looked.
    """

    normalise: bool
    position_weight: float
    search: str
    dtype: str
    calibration: int
    rejection: float

    values_: npt.NDArray[Any]
    mean_: npt.NDArray[np.float32]
    class_: npt.NDArray[np.int64]
    image_: npt.NDArray[np.int64]
    boxes_: npt.NDArray[np.float32]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Remember the descriptors of labelled images.

        Parameters
        ----------
        X : Bags, list of arrays, array, or Store
            The images.
        y : array of shape (images,), optional
            Their classes; may be left out for a store, which knows them.
        """
        self._check_settings()
        bags, labels = self._images(X, y, reset=True)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs images of at least two classes, got one class: {self.classes_[0]!r}."
            )
        self.positions_ = self.position_weight > 0 and has_positions(bags)
        self._not_calibrated()
        images = np.arange(len(bags))
        share = min(0.2, self.calibration / len(bags))
        keep, out = images, images[:0]
        if share > 0 and len(bags) >= FEWEST_TO_CALIBRATE:
            keep, out = hold_out(images, numbers, share, 0, copy_groups(bags.means()))
        if len(out):
            self._remember(bags[keep], numbers[keep], keep)
            self._calibrate(self._mean_votes(bags[out]), numbers[out], self.rejection)
        self._remember(bags, numbers, images)
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Self:
        """Remember more images, of any class; the result is that of `fit` with all of them.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes : array, optional
            Not needed, since classes may come at any time; there for scikit-learn's tools.
        """
        if not hasattr(self, "values_"):
            return self.fit(X, y)
        bags, labels = self._images(X, y, reset=False)
        known = np.union1d(self.classes_, labels)
        self.class_ = np.searchsorted(known, self.classes_)[self.class_]
        self.classes_ = known
        first = int(self.image_.max()) + 1
        numbers = np.searchsorted(known, labels)
        before: tuple[npt.NDArray[Any], ...] = self.values_, self.class_, self.image_, self.boxes_
        after: tuple[npt.NDArray[Any], ...] = self._descriptors(bags, numbers, np.arange(first, first + len(bags)))
        values, numbers, images, boxes = (np.concatenate([old, new]) for old, new in zip(before, after, strict=True))
        self._set_bank(values, numbers, images, boxes)
        return self

    def _images(self, X: Any, y: Any, *, reset: bool) -> tuple[Bags, npt.NDArray[Any]]:
        if isinstance(X, Store):
            bags, _ = X.load(dtype=np.float32)
            return self._read(bags, fitting=reset), check_labels(labels_of(X, y), len(bags))
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        bags = self._read(X, fitting=reset)
        return bags, check_labels(y, len(bags))

    def _remember(self, bags: Bags, numbers: npt.NDArray[Any], images: npt.NDArray[np.int64]) -> None:
        self._set_bank(*self._descriptors(bags, numbers, images))

    def _descriptors(
        self, bags: Bags, numbers: npt.NDArray[Any], images: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        values = with_positions(bags, slice(0, len(bags.values)), self.positions_)
        return values.astype(self.dtype), numbers[bags.owner].astype(np.int64), images[bags.owner], bags.boxes

    def _comparable(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Bring descriptors to the form in which they are compared."""
        values = values.astype(np.float32)
        own = values[:, : values.shape[1] - 2 * self.positions_]
        if self.normalise:
            own -= self.mean_
            own /= np.maximum(np.sqrt(squares(own)), 1e-12)[:, None]
        if self.positions_:
            values[:, -2:] *= self.position_weight
        return values

    def _set_bank(
        self,
        values: npt.NDArray[Any],
        numbers: npt.NDArray[np.int64],
        images: npt.NDArray[np.int64],
        boxes: npt.NDArray[np.float32],
    ) -> None:
        """Keep a bank, and make it searchable."""
        self.values_, self.class_, self.image_, self.boxes_ = values, numbers, images, boxes
        self.mean_ = np.zeros(values.shape[1] - 2 * self.positions_, np.float32)
        if self.normalise:
            self.mean_ = values[:, : len(self.mean_)].mean(axis=0, dtype=np.float64).astype(np.float32)
        self._make_searchable()

    def _make_searchable(self) -> None:
        raise TypeError(f"{type(self).__name__} does not say how its bank is searched.")

    def _learn_rotation(self) -> EvenRotation | Rotation | None:
        """Learn what the search needs to know of the bank's descriptors; None where it needs nothing."""
        few = self.values_.shape[1] <= PCA_FEATURES
        if few or self.search not in ("exact", "pca") or (self.search == "exact" and self.dtype != "float32"):
            return None
        rng = np.random.default_rng(0)
        chosen = rng.choice(len(self.values_), size=min(_SAMPLE, len(self.values_)), replace=False)
        sample = self._bank_rows(np.sort(chosen))
        return EvenRotation(sample) if self.search == "exact" else Rotation(sample, PCA_FEATURES)

    def _bank_rows(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return rows of the bank in the form in which they are compared."""
        if getattr(self, "condense", None) is not None:
            return np.asarray(self.values_[rows], np.float32)
        return self._comparable(self.values_[rows])

    def _check_settings(self) -> None:
        name = type(self).__name__
        if self.search not in ("exact", *APPROXIMATE):
            raise ValueError(f"search of {name} must be 'exact', 'pca', 'hnsw' or 'ivf', got {self.search!r}.")
        if self.dtype not in ("float32", "float16"):
            raise ValueError(f"dtype of {name} must be 'float32' or 'float16', got {self.dtype!r}.")
        for setting in ("position_weight", "calibration", "rejection"):
            value = getattr(self, setting)
            if not isinstance(value, (int, float, np.number)) or isinstance(value, bool) or not 0 <= value < np.inf:
                raise ValueError(f"{setting} of {name} must be a number of at least 0, got {value!r}.")
        value = getattr(self, "neighbours", 1)
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise ValueError(f"neighbours of {name} must be a whole number of at least 1, got {value!r}.")
