"""Scorer: what a voter learned, and how it votes with it.

A model file holds the arrays of a scorer and nothing of the estimator that made them. Whoever names photos, draws
evidence, exports a graph or writes a report asks the scorer, and never which kind of voter it is. Nothing here learns,
and nothing needs more than numpy: a command that names one photo must not wait for the import of a library that it does
not use.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import ModelError, PatchvoteError
from ..utils.float16 import all_finite
from ..utils.onnx_graph import GraphBuilder
from ..utils.schema import Check, record
from .onnx_nodes import Exported
from .votes import mean_votes, softmax, votes_in_chunks

Arrays = Mapping[str, npt.NDArray[Any]]
Spec = tuple[int, tuple[str, ...]]  # number of axes, and the types that are right

FLOATS = ("float16", "float32", "float64")
WHOLE = ("int64",)

# Votes are sums of products in float32, which ends at 3e38: of weights with descriptors, or with their mean. With
# numbers up to this one a million products may be added up.
MAX_NUMBER = 1e15


@dataclasses.dataclass(frozen=True)
class Schema:
    """What the arrays and settings of a scorer must be.

    Parameters
    ----------
    arrays : dict
        Arrays without which it cannot vote.
    kept : dict
        Arrays that may be there besides: those from which more can be learned, or a veto.
    settings : dict
        Settings of the voter, each with its check.
    needed : tuple of str
        Settings that voting takes.
    renamed : dict
        From the names that settings had in files of before to their names.
    """

    arrays: Mapping[str, Spec]
    kept: Mapping[str, Spec] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Check] = dataclasses.field(default_factory=dict)
    needed: tuple[str, ...] = ()
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Scorer(abc.ABC):
    """Votes with what a voter learned; subclasses give `schema`, `votes`, `features` and `check`.

    Parameters
    ----------
    arrays : mapping of arrays
        What was learned, by the names in `schema`.
    settings : mapping
        Of the voter, as plain values.
    classes : int
        Number of classes.
    positions : bool, default False
        Whether positions take part in the votes.

    Attributes
    ----------
    kind : str
        The one name of the voter: in files, on the command line, in tables.
    remembers : bool
        Whether training descriptors can be named that a descriptor is like (`matches`).
    adapts : bool
        Whether a model of it can be adapted to another domain.
    """

    kind: ClassVar[str]
    schema: ClassVar[Schema]
    remembers: ClassVar[bool] = False
    adapts: ClassVar[bool] = False

    def __init__(self, arrays: Arrays, settings: Mapping[str, Any], classes: int, positions: bool = False) -> None:
        known = {**self.schema.arrays, **self.schema.kept}
        self.arrays = {name: arrays[name] for name in known if name in arrays}
        self.settings, self.classes, self.positions = dict(settings), classes, positions

    # --- what a subclass gives --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def votes(self, bags: Bags) -> npt.NDArray[Any]:
        """Return the vote of every descriptor for every class, ``(descriptors, classes)``."""

    @property
    @abc.abstractmethod
    def features(self) -> int:
        """Features of a descriptor, without positions."""

    def check(self, images: int | None = None) -> None:
        """Refuse arrays that do not fit each other, or that it could not vote with.

        They have the right types and hold finite numbers already.

        Parameters
        ----------
        images : int, optional
            Number of training images whose names are kept, where they are.

        Raises
        ------
        ModelError
            It says what is wrong.
        """
        return

    # --- what a subclass may give -----------------------------------------------------------------------------------

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the mean vote of each bag, ``(bags, classes)``."""
        sums = np.add.reduceat(self.votes(bags), bags.offsets[:-1], axis=0, dtype=np.float64)
        return np.asarray(sums / bags.sizes[:, None])

    def probability(
        self, scores: npt.NDArray[Any], bags: Bags, temperature: float, threshold: float
    ) -> npt.NDArray[np.float64]:
        """Return the probability of each class, ``(bags, classes)``, from the scores of bags."""
        return softmax(scores / temperature)

    def matches(self, bags: Bags, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Tell which training descriptor of a class each descriptor is nearest to; None where nothing is remembered.

        Returns
        -------
        images : array of shape (descriptors,)
            Numbers of the training images, in the order in which they were given.
        boxes : array of shape (descriptors, 4)
            Where in them.
        distances : array of shape (descriptors,)
            Squared.
        """
        return None

    def to_onnx(
        self, graph: GraphBuilder, maps: list[str], whole: bool, temperature: float, threshold: float
    ) -> Exported:
        """Add nodes that vote to an ONNX graph.

        Parameters
        ----------
        graph : GraphBuilder
            Where nodes are added.
        maps : list of str
            Values of shape (features, rows, columns): the feature maps of a photo, one per scale.
        whole : bool
            Whether the bag also holds the mean of the first map.
        temperature, threshold : float
            Of the probabilities, and of "none of these".

        Raises
        ------
        PatchvoteError
            Its votes are no graph; the message says why.
        """
        raise PatchvoteError(
            f"a model of {self.kind} cannot be one graph: its votes are no operations of ONNX. Fit it with another "
            "voter, such as the default."
        )

    # --- checks that all share --------------------------------------------------------------------------------------

    def check_all(self, images: int | None = None) -> None:
        """Refuse arrays that are missing, of a wrong type, too large, or that do not fit each other."""
        known = {**self.schema.arrays, **self.schema.kept}
        for name, (axes, types) in known.items():
            if name not in self.arrays:
                if name in self.schema.arrays:
                    raise ModelError(f"the array {name!r} is missing.")
                continue
            array = self.arrays[name]
            if array.ndim != axes or array.dtype.name not in types:
                raise ModelError(f"the array {name!r} has {array.ndim} axes of {array.dtype}.")
            _check_size(name, array)
        self.check(images)

    @classmethod
    def upgraded(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Return settings of a file of before under the names and with the meanings of now."""
        return {cls.schema.renamed.get(name, name): value for name, value in settings.items()}

    @classmethod
    def check_settings(cls, settings: Any) -> None:
        """Refuse settings that the voter does not have, or whose values it could not have been given."""
        known = cls.schema.settings
        strange = sorted(map(repr, set(settings) - set(known))) if isinstance(settings, dict) else []
        if strange:
            raise ModelError(
                f"{strange[0][:60]} is not a setting of {cls.kind}. It may come from a newer version of patchvote."
            )
        wrong = record({name: known[name] for name in cls.schema.needed}, known)(settings)
        if wrong is not None:
            raise ModelError(f"settings{wrong}.")


class DescriptorScorer(Scorer):
    """A scorer whose descriptors vote each for itself, whatever else is in the bag; subclasses give `vote`.

    Votes are computed in chunks, so that one huge bag takes no more memory than many small ones.
    """

    @abc.abstractmethod
    def vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the votes ``(n, classes)`` of descriptors, positions appended where `positions` says so."""

    @property
    def width(self) -> int:
        """How many numbers the votes of one descriptor take while they are computed."""
        return self.classes

    def votes(self, bags: Bags) -> npt.NDArray[Any]:
        """Return the vote of every descriptor for every class, ``(descriptors, classes)``."""
        return np.concatenate([votes for _, votes in votes_in_chunks(bags, self.positions, self.vote, self.width)])

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the mean vote of each bag, ``(bags, classes)``."""
        return mean_votes(bags, self.positions, self.vote, self.width)


def _check_size(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse numbers that are not finite, or so large that what is computed from them would not be."""
    if array.dtype.kind != "f" or not array.size:
        return
    if array.dtype == np.float16:  # its largest number is small enough
        largest = 0.0 if all_finite(array) else np.inf
    else:
        with np.errstate(invalid="ignore"):
            largest = max(float(array.max()), -float(array.min()))  # NaN where any number is
    if not np.isfinite(largest):
        raise ModelError(f"the array {name!r} has numbers that are not finite.")
    if name != "scale" and largest > MAX_NUMBER:
        raise ModelError(f"the array {name!r} has a number of {largest:.3g}, so large that votes would overflow.")


def check_every_class(numbers: npt.NDArray[Any], classes: int) -> int:
    """Refuse numbers of classes that are not there, and classes without any; return how often the rarest is there."""
    check_numbers(numbers, classes)
    fewest = int(np.bincount(numbers, minlength=classes).min())
    if fewest == 0:
        raise ModelError("there is nothing of one of its classes.")
    return fewest


def check_numbers(numbers: npt.NDArray[Any], classes: int) -> None:
    """Refuse numbers of classes that are not there."""
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < classes):
        raise ModelError("something belongs to a class that is not there.")


def check_boxes(boxes: npt.NDArray[Any]) -> None:
    """Refuse boxes that reach beyond the photo."""
    if boxes.shape[1] != 4 or (len(boxes) and not (boxes.min() >= 0 and boxes.max() <= 1)):
        raise ModelError("boxes are not within the photo.")
