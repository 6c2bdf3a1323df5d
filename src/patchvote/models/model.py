"""The model: everything that is needed to name photos, as one value.

It holds a scorer and its context: the classes, how a photo becomes a bag, and the calibration of probabilities. Every
part of a `Model` is valid: inconsistent values are refused when the model is made or read (`file`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backbones.names import beside
from ..bags.bags import Bags
from ..bags.recipe import Recipe
from ..errors import ModelError, PatchvoteError
from ..utils.schema import brief, text
from ..voters.outputs import blaming, probability_of, scores_of
from ..voters.registry import check_registered, voter_class
from ..voters.scorer import Scorer
from ..voters.settings import MAX_NAME, unstorable
from .about import About, check_about

_MAX_CLASSES = 100_000  # more than four times those of ImageNet-21k
_TEMPERATURES = 1e-20, 1e20  # smallest and largest: votes divided by them stay well within float64
_FINGERPRINT = text(256)
_CARD = text(1 << 23)  # characters: enough for the card of 100,000 classes


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """What was learned, from which photos, and how accurate it is.

    Parameters
    ----------
    scorer : Scorer
        Scorer that votes.
    classes : tuple of str
        Classes that it distinguishes, sorted.
    recipe : Recipe
        How a photo becomes a bag.
    fingerprint : str
        Fingerprint of the network.
    temperature, threshold : float
        Temperature of the probabilities, and threshold below which the answer is "none of these".
    about : About
        Metadata for people.
    card : str
        Model card: the metadata as Markdown.
    names : tuple of str
        Names of the training photos, where the scorer stores parts of them.
    descriptors : mapping
        Number of descriptors per class that were learned.
    steps : int
        Number of steps of the training, where it consists of steps.
    """

    scorer: Scorer
    classes: tuple[str, ...]
    recipe: Recipe
    fingerprint: str
    temperature: float
    threshold: float
    about: About = dataclasses.field(default_factory=About)
    card: str = ""
    names: tuple[str, ...] = ()
    descriptors: Mapping[str, int] = dataclasses.field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        _check_classes(self.classes)
        least, most = _TEMPERATURES
        if not least <= self.temperature <= most or not 0 <= self.threshold <= 1:
            raise ModelError(f"temperature {self.temperature} or threshold {self.threshold} are out of range.")
        for name, check, value in (
            ("fingerprint", _FINGERPRINT, self.fingerprint),
            ("about", check_about, self.about.to_plain()),
            ("card", _CARD, self.card),
        ):
            if (fault := check(value)) is not None:
                raise ModelError(f"{name}{fault}.")
        if self.scorer.classes != len(self.classes):
            raise ModelError(f"votes for {self.scorer.classes} classes do not fit {len(self.classes)} classes.")
        _check_restorable(self.scorer)
        with blaming(self.scorer):
            self.scorer.check_settings(self.scorer.settings)
            self.scorer.check_all(len(self.names) if self.names else None)

    @property
    def kind(self) -> str:
        """Name of the voter."""
        return self.scorer.kind

    @property
    def features(self) -> int:
        """Number of features per descriptor, without positions."""
        return self.scorer.features

    def probability(self, bag: Bags, votes: npt.NDArray[Any] | None = None) -> npt.NDArray[np.float64]:
        """Return the probability of each class, ``(classes,)``, for one bag, from its votes if they are given."""
        # `scores` does not hold the votes of all descriptors at once, which are large with many classes.
        mean = None if votes is None else votes.mean(axis=0, dtype=np.float64, keepdims=True)
        scores = scores_of(self.scorer, bag) if mean is None else mean
        return np.asarray(probability_of(self.scorer, scores, bag, self.temperature, self.threshold)[0])


def voter_of(model: Model) -> Any:
    """Restore the estimator of a model from its scorer, so that it can learn more."""
    voter = voter_class(model.kind).from_scorer(model.scorer, model.classes, model.temperature, model.threshold)
    voter.steps_ = model.steps
    return voter


def network_of(model: Model, path: str | Path) -> str:
    """Return the network of a model that was read from `path`: embedded, or an ONNX file beside it.

    A fine-tuned network is written beside its model, and the two files are moved together.

    Raises
    ------
    UntypedNetworkError
        The network is anything else; such a network is loaded only when the user names it.
    """
    return beside(model.recipe.network, Path(path))


def _check_restorable(scorer: Scorer) -> None:
    """Refuse a scorer that a file could not bring back: of an unregistered kind, or with settings that are no JSON."""
    try:
        check_registered(scorer.kind, type(scorer))
    except PatchvoteError as error:
        raise ModelError(str(error)) from error
    if (fault := unstorable(scorer.settings)) is not None:
        raise ModelError(f"settings of {scorer.kind!r} cannot be stored: {fault}.")


def _check_classes(classes: tuple[str, ...]) -> None:
    """Refuse classes that no training produces: too few or too many, without a name, not sorted."""
    if not 2 <= len(classes) <= _MAX_CLASSES:
        raise ModelError(f"it needs from 2 to {_MAX_CLASSES:,} classes, and has {len(classes)}.")
    if not all(isinstance(label, str) and label for label in classes):
        raise ModelError("a class has an empty name, or one that is no text.")
    for label in classes:
        # Arrays of text drop a NUL at the end, so no training produces such a name.
        if len(label) > MAX_NAME or label[-1] == "\0":
            raise ModelError(f"a class must have a name of at most {MAX_NAME:,} characters, got {brief(label)}.")
    if list(classes) != sorted(set(classes)):
        raise ModelError("its classes are not in order, or one is there twice.")
