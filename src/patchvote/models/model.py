"""The model: everything that is needed to name photos, as one value.

It holds a scorer and its context: the classes, how a photo becomes a bag, and the calibration of probabilities. Every
part of a `Model` is valid: inconsistent values are refused when the model is made or read (`file`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.recipe import Recipe
from ..errors import ModelError, PatchvoteError
from ..networks.base import NetworkSpec
from ..utils.schema import brief, number, record, text
from ..voters.familiarity import Familiarity
from ..voters.registry import DEFAULT, voter_class
from ..voters.scorer import MAX_NAME, Scorer
from ..voters.votes import softmax
from .about import About, check_about

_MAX_CLASSES = 100_000  # more than four times those of ImageNet-21k
_PARTS = record(
    {
        "fingerprint": text(256),
        "temperature": number(1e-20, 1e20),  # votes divided by it stay well within float64
        "threshold": number(0, 1),
        "about": check_about,
    }
)


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
        Temperature of the probabilities, and smallest probability of an answer, if the model has no familiarity.
    about : About
        Metadata for people.
    names : tuple of str
        Names of the training photos, where the scorer stores parts of them or can tell how much each counts.
    digests : tuple of str
        Digests of the training photos, in the same order, where the scorer holds what it needs to forget them.
    descriptors : mapping
        Number of descriptors per class that were learned.
    steps : int
        Number of steps of the training, where it consists of steps.
    familiarity : Familiarity or None
        What decides which photos are "none of these"; None where no photo was left out: then the probability decides.
    """

    scorer: Scorer
    classes: tuple[str, ...]
    recipe: Recipe
    fingerprint: str
    temperature: float
    threshold: float
    about: About = dataclasses.field(default_factory=About)
    names: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    descriptors: Mapping[str, int] = dataclasses.field(default_factory=dict)
    steps: int = 0
    familiarity: Familiarity | None = None

    def __post_init__(self) -> None:
        _check_classes(self.classes)
        parts = {name: getattr(self, name) for name in ("fingerprint", "temperature", "threshold")}
        if (fault := _PARTS(parts | {"about": self.about.to_plain()})) is not None:
            raise ModelError(f"{fault.lstrip('.')}.")
        if self.scorer.classes != len(self.classes):
            raise ModelError(f"votes for {self.scorer.classes} classes do not fit {len(self.classes)} classes.")
        self.scorer.check_settings(self.scorer.settings)
        self.scorer.check_all(len(self.names) if self.names else None)
        if self.digests and len(self.digests) != len(self.names):
            raise ModelError(f"it has {len(self.names):,} names of photos, but {len(self.digests):,} digests.")
        if self.familiarity is not None and (fault := self.familiarity.fault(len(self.classes), self.features)):
            raise ModelError(fault)

    @property
    def kind(self) -> str:
        """Name of the voter."""
        return self.scorer.kind

    @property
    def card(self) -> str:
        """Model card: the metadata as Markdown."""
        from .report.card import card

        return card(self)

    @property
    def features(self) -> int:
        """Number of features per descriptor, without positions."""
        return self.scorer.features

    def probability(self, bag: Bags, votes: npt.NDArray[Any] | None = None) -> npt.NDArray[np.float64]:
        """Return the probability of each class, ``(classes,)``, for one bag, from its votes if they are given."""
        # `scores` does not hold the votes of all descriptors at once, which are large with many classes.
        mean = None if votes is None else votes.mean(axis=0, dtype=np.float64, keepdims=True)
        scores = self.scorer.scores(bag) if mean is None else mean
        return np.asarray(softmax(scores / self.temperature)[0])

    def judge(
        self, bag: Bags, threshold: float | None = None, votes: npt.NDArray[Any] | None = None
    ) -> tuple[npt.NDArray[np.float64], float | None, bool]:
        """Return the probabilities of the classes for one bag, its familiarity, and whether it is "none of these".

        The familiarity is None if the model has none. Of an adapted model, it is that before it was adapted: what is
        rejected does not change.
        """
        probability, familiarity = self.probability(bag, votes), None
        if self.familiarity is not None:
            before = self.scorer.unadapted(bag)
            familiarity = float(self.familiarity.of_bags(probability[None] if before is None else before, bag)[0])
        return probability, familiarity, self.rejects(probability, familiarity, threshold)

    def rejects(
        self, probability: npt.NDArray[np.float64], familiarity: float | None, threshold: float | None = None
    ) -> bool:
        """Whether the answer for a photo is "none of these"; `threshold` as for `limit`."""
        score = float(probability.max()) if familiarity is None else familiarity
        return score < self.limit(threshold)

    def without_memory(self) -> Model:
        """Return the model without what it needs to learn and forget more, which most of its size is."""
        names = self.names if self.scorer.remembers else ()
        return dataclasses.replace(self, scorer=self.scorer.without_memory(), names=names, digests=())

    def limit(self, threshold: float | None = None) -> float:
        """Return the smallest familiarity of an answer, or the smallest probability if the model has no familiarity.

        `threshold` is the share of the photos of known classes that may be rejected; by default that of the model. A
        model that was adapted although that looked unsafe rejects nothing, whatever the threshold.
        """
        if threshold is None or (self.familiarity is None and self.about.adapted):
            return self.threshold if self.familiarity is None else self.familiarity.rejection
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 <= threshold < 1:
            raise PatchvoteError(
                f"threshold must be a share of photos, from 0 to less than 1, got {brief(threshold)}: 0.05 may reject "
                "1 in 20 photos of the model's classes."
            )
        if self.familiarity is None:
            raise PatchvoteError(
                "the model does not know how strange photos of its classes may look, so no threshold can be set: it "
                "was made from too few photos. Fit it again, with more photos."
            )
        return float(threshold)


def voter_of(model: Model) -> Any:
    """Restore the estimator of a model from its scorer, so that it can learn more."""
    voter = voter_class(model.kind).from_scorer(model.scorer, model.classes, model.temperature, model.threshold)
    voter.steps_ = model.steps
    return voter


def check_network(model: Model, spec: NetworkSpec) -> None:
    """Refuse a network with which a model was not made."""
    if spec.fingerprint != model.fingerprint:
        raise ModelError(
            f"the model was made with another network than {spec.name} (checksum of weights and settings "
            f"{model.fingerprint}, not {spec.fingerprint}): its answers would mean nothing. Name the network that it "
            f"was made with, {model.recipe.network}; if its file, or the .toml beside it, has changed, put back what "
            "it was, or fit again."
        )
    if spec.dim != model.features:
        raise ModelError(f"the model is damaged: it has {model.features} features, its network {spec.dim}.")


def check_memory(model: Model) -> None:
    """Refuse a model of the default voter that was written without its photos."""
    if model.kind == DEFAULT and not model.scorer.adapts:
        raise PatchvoteError("the model was written without its memory (--no-memory): fit it again with all photos.")


def _check_classes(classes: tuple[str, ...]) -> None:
    """Refuse classes that no training produces: too few or too many, without a name, not sorted."""
    if not 2 <= len(classes) <= _MAX_CLASSES:
        raise ModelError(f"it needs from 2 to {_MAX_CLASSES:,} classes, and has {len(classes)}.")
    if not all(isinstance(label, str) and label for label in classes):
        raise ModelError("a class has an empty name, or one that is no text.")
    for label in classes:  # arrays of text drop a NUL at the end, so no training produces such a name
        if len(label) > MAX_NAME or label[-1] == "\0":
            raise ModelError(f"a class must have a name of at most {MAX_NAME:,} characters, got {brief(label)}.")
    if list(classes) != sorted(set(classes)):
        raise ModelError("its classes are not in order, or one is there twice.")
