"""Voter: the base of the estimators that vote.

A voter gives every descriptor a vote for every class. The score of a bag is the mean of its votes, and the class with
the largest score is the prediction. How a descriptor votes is up to the voter's scorer (`scorer`).
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.store import Store
from ..errors import PatchvoteError
from ..utils.engine import Engine
from ..utils.parameters import Parameters
from ..utils.schema import brief
from ..utils.terminal import nearest
from .labels import check_labels, labels_of
from .registry import check_registered
from .scorer import Scorer, from_plain, plain
from .votes import NONE, check_bags, softmax

Numbers = npt.NDArray[np.int64]

_AT_ONCE = 50_000  # descriptors of a store that are held in memory at once


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """How `fit` runs; `Voter.set_options` changes it. A voter ignores what does not concern it."""

    # Megabytes that learning from a store may take. A store that does not fit is read in blocks of random photos in
    # every pass (SNBNL, NBNL), or part by part in every search (NBNN, LocalNBNN).
    memory: float = 1500.0
    # File that keeps the state of a training of SNBNL, written every minute. If it exists, `fit` continues from it, and
    # the prototypes are those of an uninterrupted training, bit by bit; data and settings must be the same.
    checkpoint: str | os.PathLike[str] | None = None
    device: str | None = None  # on which torch makes the steps of SNBNL ("cuda", "mps", "cpu"); by default, numpy does
    # Called with a record after each pass of SNBNL or round of NBNL; returning True ends the training.
    callback: Callable[[dict[str, Any]], Any] | None = None


class Voter(Parameters):
    """Base of the estimators that vote; subclasses define `scorer_class` and `fit`.

    A fitted voter has an attribute ``name_`` for every array ``name`` of its scorer's schema. Voters pass
    scikit-learn's checks of classifiers without inheriting from it: its import takes longer than learning some hundred
    photos, and more memory.

    `fit(X, y, sample_weight)` learns from labelled images: X are `Bags`, a list of arrays, an array with one descriptor
    per image, or a `Store`, which may be larger than memory and has labels of its own; images of the weight 0
    are left out. `partial_fit` takes the same; its `classes`, to expect in the first call, are for tools.

    Attributes
    ----------
    classes_ : array
        The classes, sorted.
    n_features_in_ : int
        Number of features per descriptor.
    positions_ : bool
        Whether the votes use positions.
    temperature_, rejection_threshold_ : float
        Temperature of the softmax that turns scores into probabilities, and smallest largest probability of a bag that
        is not "none of these". `MomentRidge` sets both by left-out images; of other voters they are 1 and 0, unless
        their caller sets them by images that were held out, as `ImageClassifier` does.
    """

    estimator_type = "classifier"
    scorer_class: ClassVar[type[Scorer]]
    options: FitOptions = FitOptions()
    leaves_out: ClassVar[bool] = False  # whether `fit` sets `left_out_`, its answers for left-out photos
    description: ClassVar[str] = ""  # how the parts of a photo vote, for people; by default, the name of the voter

    classes_: npt.NDArray[Any]
    positions_: bool = False
    temperature_: float = 1.0
    rejection_threshold_: float = 0.0

    if TYPE_CHECKING:  # parameters and learned arrays differ from voter to voter

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    # --- what a model needs -----------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """Name of the voter in files, on the command line and in tables."""
        return self.scorer_class.kind

    def set_options(self, **changes: Any) -> Self:
        """Change how `fit` runs, which is no parameter of the estimator, and return the voter; see `FitOptions`."""
        self.options = dataclasses.replace(self.options, **changes)
        return self

    @classmethod
    def default(cls, seed: int) -> Self:
        """Return the voter that an `ImageClassifier` trains, with `seed` as its random state."""
        voter = cls()
        return voter.set_params(random_state=seed) if "random_state" in voter.get_params() else voter

    def check_for_model(self) -> None:
        """Refuse a voter of which no model can be made, before it is trained."""
        check_registered(self.scorer_class)
        settings = self._plain_settings()
        try:
            comes_back = json.loads(json.dumps(settings, allow_nan=False)) == settings
        except (TypeError, ValueError, RecursionError):
            comes_back = False
        if not comes_back:
            raise PatchvoteError(
                "settings of a model must be numbers, text, true, false, None, or lists or tables of these (keys: "
                f"text), got {brief(settings)}."
            )

    def scorer(self) -> Scorer:
        """Return the scorer: arrays and settings, without the estimator."""
        self._check_fitted()
        schema = self.scorer_class.schema
        names = [name for name in (*schema.arrays, *schema.kept) if hasattr(self, f"{name}_")]
        arrays = {name: getattr(self, f"{name}_") for name in names}
        return self.scorer_class(arrays, self._plain_settings(), len(self.classes_), bool(self.positions_))

    @classmethod
    def from_scorer(
        cls, scorer: Scorer, classes: Sequence[str], temperature: float = 1.0, threshold: float = 0.0
    ) -> Self:
        """Restore the fitted estimator that a scorer came from, so that it can learn more."""
        voter = cls(**{name: from_plain(value) for name, value in scorer.settings.items()})
        voter.classes_, voter.n_features_in_ = np.array(classes), scorer.features
        voter.positions_, voter.temperature_, voter.rejection_threshold_ = scorer.positions, temperature, threshold
        for name, array in scorer.arrays.items():
            setattr(voter, f"{name}_", array)
        voter._restored(scorer)
        return voter

    def remember(self, bags: Bags, numbers: Numbers, rng: np.random.Generator) -> None:
        """Keep a sample of the training images if learning more needs one that the model does not hold already."""

    def learn_more(
        self, bags: Bags, labels: npt.NDArray[Any], seen: Mapping[str, int], rng: np.random.Generator
    ) -> None:
        """Learn new images, of known or new classes, without the images that were learned before.

        `seen` is the number of descriptors learned before, per class.
        """
        self.partial_fit(bags.astype(np.float32), labels)

    def fit_on_workers(self, X: Any, y: Any = None, *, engine: Engine) -> Self:
        """Learn as `fit` does, with the workers of an engine if the training can be divided among them."""
        fitted: Self = self.fit(X, y)
        return fitted

    def _restored(self, scorer: Scorer) -> None:
        """Set the attributes that a fitted estimator has besides the arrays of its scorer."""

    # --- what users call --------------------------------------------------------------------------------------------

    def votes(self, X: Any) -> npt.NDArray[Any]:
        """Return the vote of every descriptor of all bags for every class, ``(descriptors, classes)``."""
        self._check_fitted()
        scorer = self.scorer()
        return np.concatenate([scorer.votes(bags) for bags in self._blocks(X)])

    def decision_function(self, X: Any) -> npt.NDArray[Any]:
        """Return the mean votes ``(bags, classes)``; for two classes, those of the second minus those of the first."""
        means = self._mean_votes(X)
        return means[:, 1] - means[:, 0] if len(self.classes_) == 2 else means

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the largest mean vote, for each bag."""
        best = np.argmax(self._mean_votes(X), axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the probability of each class, for each bag."""
        return softmax(self._mean_votes(X) / self.temperature_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of bags whose label is predicted."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    def predict_or_none(self, X: Any, none: Any = NONE) -> npt.NDArray[Any]:
        """Return the class of each bag, or `none` where no class reaches the rejection threshold."""
        probability = self.predict_proba(X)
        labels = self.classes_[np.argmax(probability, axis=1)].astype(object)
        labels[probability.max(axis=1) < self.rejection_threshold_] = none
        return np.asarray(labels)

    # --- reading images ---------------------------------------------------------------------------------------------

    def _blocks(self, X: Any) -> Iterator[Bags]:
        """Yield any accepted form of bags as checked `Bags`: a store block by block, others at once."""
        if not isinstance(X, Store):
            yield self._read(X)
            return
        for bags, _ in X.blocks(self._at_once()):
            yield self._read(bags)

    def _at_once(self) -> int:
        """Return how many descriptors of a store are read and classified at once."""
        return _AT_ONCE

    def _read(self, X: Any, *, fitting: bool = False) -> Bags:
        """Convert bags, a list of arrays or an array into checked `Bags`."""
        if not _holds_bags(X):
            from sklearn.utils.validation import validate_data

            array = validate_data(self, X, reset=fitting, dtype=[np.float32, np.float64, np.float16])
            return Bags.of(array)
        bags = Bags.of(X)
        check_bags(bags)
        if fitting:
            self.n_features_in_ = bags.dim
        elif bags.dim != self.n_features_in_:
            raise ValueError(
                f"bags have {bags.dim} features per descriptor, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input. Were they extracted with the same network?"
            )
        return bags

    def _read_labelled(self, X: Any, y: Any, *, reset: bool) -> tuple[Bags | Store, npt.NDArray[Any]]:
        """Return checked images and their labels; a store is not loaded. With `reset`, earlier ones are forgotten."""
        if reset:  # a memory or a calibration of the model before does not fit what is learned now
            self.temperature_, self.rejection_threshold_ = 1.0, 0.0
            for name in self.scorer_class.schema.kept:
                self.__dict__.pop(f"{name}_", None)
        if not isinstance(X, Store):
            if y is None:
                raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
            bags = self._read(X, fitting=reset)
            return bags, check_labels(y, len(bags))
        if not reset and X.dim != self.n_features_in_:
            raise ValueError(f"the store has {X.dim} features per descriptor, the model {self.n_features_in_}.")
        self.n_features_in_ = X.dim
        return X, check_labels(labels_of(X, y), len(X))

    def _set_classes(self, labels: npt.NDArray[Any], learned: npt.NDArray[Any] | None = None) -> Numbers:
        """Set `classes_` to the classes in `labels` and those `learned` before; return the class number per label."""
        known = np.unique(labels) if learned is None else np.union1d(learned, labels)
        if len(known) < 2:
            raise ValueError(
                f"{type(self).__name__} needs images of at least two classes, got one class: {str(known[0])!r}."
            )
        self.classes_ = known
        return np.searchsorted(known, labels).astype(np.int64)

    def _mean_votes(self, X: Any) -> npt.NDArray[Any]:
        self._check_fitted()
        scorer = self.scorer()
        return np.concatenate([scorer.scores(bags) for bags in self._blocks(X)])

    # --- settings ---------------------------------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Set parameters; what was learned stays."""
        for name, value in params.items():
            if name not in (known := self.get_params()):
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}.{nearest(name, known)}")
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        voter = type(self)(**copy.deepcopy(self.get_params()))
        if "options" in vars(self):  # scikit-learn wants no other attributes of an estimator that is new
            voter.options = self.options
        return voter

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags

        tags = super().__sklearn_tags__()
        tags.input_tags = InputTags()  # arrays are accepted as well as bags
        return tags

    def _check_fitted(self) -> None:
        if not any(name.endswith("_") and not name.startswith("_") for name in vars(self)):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call `fit` first.")

    def _check_settings(self) -> None:
        """Refuse settings that the scorer's schema refuses; estimator and model file share the one table."""
        known = self.scorer_class.schema.settings
        for name, value in self._plain_settings().items():
            if name in known and (wrong := known[name](value)) is not None:
                raise ValueError(f"{name} of {type(self).__name__}{wrong}.")

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings that a model file stores, as plain values, with the exponent that is used."""
        known = self.scorer_class.schema.settings
        settings = {name: plain(value) for name, value in self.get_params().items() if name in known}
        return settings | ({"power": self.power_} if hasattr(self, "power_") else {})


def _holds_bags(X: Any) -> bool:
    """Whether this is a collection of bags, and not a matrix of one descriptor per image."""
    if isinstance(X, Bags):
        return True
    listed = isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1)
    if not listed or not len(X):
        return isinstance(X, list)
    return isinstance(X[0], Bags) or (hasattr(X[0], "__array__") and X[0].ndim == 2)  # tensors of torch as well
