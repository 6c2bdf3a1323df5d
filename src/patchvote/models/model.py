"""The model: all that is needed to name photos, as one value.

It holds a scorer and what surrounds it: the names of the classes, how a photo becomes a bag, how sure it may be.
Whoever holds a `Model` may rely on all of it: whatever does not fit is refused when the model is made or read (`file`).
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
from ..errors import ModelError
from ..utils.schema import brief, text
from ..voters.registry import voter_class
from ..voters.scorer import Scorer
from ..voters.settings import MAX_NAME
from .about import About, check_about

_MAX_CLASSES = 100_000
_TEMPERATURES = 1e-20, 1e20  # votes divided by them stay well within float64
_FINGERPRINT = text(256)
_CARD = text(1 << 23)  # characters; the card of 100,000 classes


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """What was learned, from what, and how good it is.

    Parameters
    ----------
    scorer : Scorer
        What votes.
    classes : tuple of str
        What it tells apart, sorted.
    recipe : Recipe
        How a photo becomes a bag.
    fingerprint : str
        Of the network.
    temperature, threshold : float
        Of the probabilities, and of "none of these".
    about : About
        What people want to know.
    card : str
        The same in words, as Markdown.
    names : tuple of str
        The training photos, where the scorer remembers parts of them.
    descriptors : mapping
        How many descriptors of each class were learned.
    steps : int
        Steps that the training made, where it goes by steps.
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
            if (wrong := check(value)) is not None:
                raise ModelError(f"{name}{wrong}.")
        if self.scorer.classes != len(self.classes):
            raise ModelError(f"votes for {self.scorer.classes} classes do not fit {len(self.classes)} classes.")
        self.scorer.check_settings(self.scorer.settings)
        self.scorer.check_all(len(self.names) if self.names else None)

    @property
    def kind(self) -> str:
        """The name of the voter."""
        return self.scorer.kind

    @property
    def features(self) -> int:
        """Features of a descriptor, without positions."""
        return self.scorer.features

    def probability(self, bag: Bags, votes: npt.NDArray[Any] | None = None) -> npt.NDArray[np.float64]:
        """Return the probability of each class, ``(classes,)``, for one bag, whose votes may be given."""
        # Without the votes of all descriptors at once, which are many where classes are.
        mean = None if votes is None else votes.mean(axis=0, dtype=np.float64, keepdims=True)
        scores = self.scorer.scores(bag) if mean is None else mean
        return np.asarray(self.scorer.probability(scores, bag, self.temperature, self.threshold)[0])


def voter_of(model: Model) -> Any:
    """Make the estimator that a model's scorer came from, so that it can learn more."""
    voter = voter_class(model.kind).from_scorer(model.scorer, model.classes, model.temperature, model.threshold)
    voter.steps_ = model.steps
    return voter


def network_of(model: Model, path: str | Path) -> str:
    """Return the network of a model that was read from `path`: embedded, or an ONNX file beside it.

    A network that was fine-tuned is written beside its model, and moves and is mailed with it.

    Raises
    ------
    UntypedNetworkError
        It is anything else, which is loaded only when the user types its name.
    """
    return beside(model.recipe.network, Path(path))


def _check_classes(classes: tuple[str, ...]) -> None:
    """Refuse classes that no training can have made: too few, too many, without a name, not in order."""
    if not 2 <= len(classes) <= _MAX_CLASSES:
        raise ModelError(f"it needs from 2 to {_MAX_CLASSES:,} classes, and has {len(classes)}.")
    if not all(isinstance(label, str) and label for label in classes):
        raise ModelError("a class has an empty name, or one that is no text.")
    for label in classes:
        # Arrays of text end at a NUL, so that no training can have seen such a name.
        if len(label) > MAX_NAME or label[-1] == "\0":
            raise ModelError(f"a class must have a name of at most {MAX_NAME:,} characters, got {brief(label)}.")
    if list(classes) != sorted(set(classes)):
        raise ModelError("its classes are not in order, or one is there twice.")
