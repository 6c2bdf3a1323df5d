"""Scorer: what a voter learned, and how it votes with it.

A model file holds the arrays of a scorer and nothing of the estimator that made them. Code that names photos, draws
evidence, exports a graph or writes a report calls the scorer, and never depends on the kind of voter. Nothing here
learns, and nothing needs more than numpy: a command that names one photo must not wait for the import of a library that
it does not use.

A `Schema` says what the arrays and settings of a scorer must be; the estimator and the model file use the same table.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..errors import ModelError, PatchvoteError
from ..utils.arrays import all_finite
from ..utils.onnx_graph import GraphBuilder
from ..utils.schema import Check, either, number, one_of, record, table, text, whole
from .onnx_nodes import Exported
from .votes import chunk_rows, part_weights, scaled, with_positions

if TYPE_CHECKING:
    from ..bags.cache import Kept
    from ..networks.bases import Basis

Arrays = Mapping[str, npt.NDArray[Any]]
Spec = tuple[str, tuple[str, ...]]  # names of the axes, or their lengths, and the accepted dtypes

FLOATS = ("float16", "float32", "float64")
WHOLE = ("int64",)
BYTES = ("int8",)

# Largest value in an array: a million products of such values with descriptors can be summed in float32.
MAX_NUMBER = 1e15

# --- checks of settings -----------------------------------------------------------------------------------------------

MAX_NAME = 1_000  # characters in the name of a class; names of folders have at most 255


def _label(value: Any) -> str | None:
    """Accept a class: short text, or what is no text, which an estimator may know but no model can store."""
    return text(MAX_NAME)(value) if isinstance(value, str) else None


SHARE = number(0, 1)
WEIGHT = number(0, 1e12)
STRENGTH = number(1e-12, 1e12)
AUTO_STRENGTH = either(one_of("auto"), number(1e-9, 1e12))  # with less, rounding decides
CLASS_WEIGHT = either(one_of(None), one_of("balanced"), table(WEIGHT, _label))
_COUNT = whole(1, 1 << 53)
_CHECKS: Mapping[str, Check] = {  # of settings that mean the same in all voters that have them
    "n_prototypes": _COUNT,
    "n_neighbors": _COUNT,
    "max_iter": _COUNT,
    "batch_size": _COUNT,
    "q": either(one_of("inf"), number(1, 1e30)),  # the largest float32 is 3e38
    "power": either(one_of("auto"), number(1e-6, 1)),
    "position_weight": WEIGHT,
    "confidence": number(0, 10),
    "class_weight": CLASS_WEIGHT,
    "random_state": either(one_of(None), whole(0, (1 << 32) - 1)),
}


def checks(*names: str, **own: Check) -> Mapping[str, Check]:
    """Return the checks of the named settings, and those that a voter has of its own."""
    return {name: _CHECKS[name] for name in names} | own


def plain(value: Any) -> Any:
    """Return the value of a setting in a form that JSON can represent, if it has one."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None  # no seed can restore its state
    if isinstance(value, np.generic):
        value = value.item()
    return "inf" if isinstance(value, float) and value == math.inf else value


def from_plain(value: Any) -> Any:
    """Return the value of a setting from the form that `plain` returns."""
    if isinstance(value, dict):
        return {key: from_plain(item) for key, item in value.items()}
    return math.inf if isinstance(value, str) and value == "inf" else value


# --- what scorers are -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Schema:
    """What the arrays and settings of a scorer must be; axes of one name have one length in all arrays."""

    arrays: Mapping[str, Spec]  # that voting requires
    kept: Mapping[str, Spec] = dataclasses.field(default_factory=dict)  # optional, such as those to learn more
    together: tuple[tuple[str, ...], ...] = ()  # of which a scorer has all or none
    settings: Mapping[str, Check] = dataclasses.field(default_factory=dict)
    needed: tuple[str, ...] = ()  # settings that voting requires


class Scorer(abc.ABC):
    """Votes with what a voter learned; subclasses define `schema`, `votes`, `features` and `check`.

    `arrays` and `settings` (as plain values) have the names of the schema; `positions` tells whether votes use them.
    """

    kind: ClassVar[str]  # name of the voter in files, on the command line and in tables
    schema: ClassVar[Schema]
    remembers: ClassVar[bool] = False  # whether it finds the training descriptors nearest to a descriptor (`matches`)

    def __init__(self, arrays: Arrays, settings: Mapping[str, Any], classes: int, positions: bool = False) -> None:
        known = {**self.schema.arrays, **self.schema.kept}
        self.arrays = {name: arrays[name] for name in known if name in arrays}
        self.settings, self.classes, self.positions = dict(settings), classes, positions

    # --- what a subclass defines ------------------------------------------------------------------------------------

    @abc.abstractmethod
    def votes(self, bags: Bags) -> npt.NDArray[Any]:
        """Return the vote of every descriptor for every class, ``(descriptors, classes)``."""

    @property
    @abc.abstractmethod
    def features(self) -> int:
        """Number of features per descriptor, without positions."""

    def check(self, images: int | None = None) -> None:
        """Refuse arrays that are inconsistent by a `ModelError`; their types, and that they are finite, is known.

        `images` is the number of training images whose names the model holds, if it holds them.
        """
        return

    # --- what a subclass may override -------------------------------------------------------------------------------

    @property
    def traces(self) -> bool:
        """Whether it can tell how much each training image pulls a bag towards a class (`pulls`)."""
        return False

    @property
    def adapts(self) -> bool:
        """Whether its models can be adapted to another domain (`Adapted`)."""
        return False

    def needs(self) -> Kept:
        """Return what of a bag its scores and probabilities need, which a cache may keep instead of the whole bag."""
        from ..bags.cache import WHOLE as WHOLE_BAG

        return WHOLE_BAG

    @classmethod
    def learns_from(cls, basis: Basis) -> Kept:
        """Return what of a bag its voter learns from, given the basis of the network."""
        from ..bags.cache import WHOLE as WHOLE_BAG

        return WHOLE_BAG

    def without_memory(self) -> Self:
        """Return the scorer without the arrays that it needs only to learn more."""
        arrays = {name: self.arrays[name] for name in self.schema.arrays}
        return type(self)(arrays, self.settings, self.classes, self.positions)

    def unadapted(self, bags: Bags) -> npt.NDArray[np.float64] | None:
        """Return the probabilities before the voter was adapted, which decide on rejection; None if it was not."""
        return None

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the mean vote of each bag, ``(bags, classes)``."""
        sums = np.add.reduceat(self.votes(bags), bags.offsets[:-1], axis=0, dtype=np.float64)
        return np.asarray(sums / bags.sizes[:, None])

    def matches(self, bags: Bags, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Return the nearest training descriptor of a class for each descriptor, or None if the model holds none.

        Three arrays: the numbers of the training images, in the order in which they were given, the boxes of the
        descriptors in these, and their squared distances.
        """
        return None

    def pulls(self, bags: Bags, number: int) -> npt.NDArray[Any] | None:
        """Return what each training image adds to the score of a class for one bag, or None if it cannot tell.

        One number per training image, in the order in which they were given and in any unit; 0 for other classes.
        """
        return None

    def to_onnx(self, graph: GraphBuilder, maps: list[str], whole: bool, temperature: float) -> Exported:
        """Add nodes that vote to an ONNX graph; by default, this is refused by a `PatchvoteError`.

        `maps` names the feature maps of a photo, of shape (features, rows, columns), one per scale; with `whole`, the
        bag also holds the mean of the first map.
        """
        raise PatchvoteError(
            f"a model of {self.kind} cannot be one graph: its votes are no operations of ONNX. Fit it with another "
            "voter, such as the default."
        )

    # --- checks that all share --------------------------------------------------------------------------------------

    def check_all(self, images: int | None = None) -> None:
        """Refuse arrays that are missing, of a wrong type, too large, or inconsistent."""
        for group in (tuple(self.schema.arrays), *(one for one in self.schema.together if set(one) & set(self.arrays))):
            if missing := [name for name in group if name not in self.arrays]:
                raise ModelError(f"the array {missing[0]!r} is missing.")
        known, sizes = {**self.schema.arrays, **self.schema.kept}, {"class": self.classes}
        for name, array in self.arrays.items():
            axes, types = known[name]
            names = axes.split()
            if array.ndim != len(names) or array.dtype.name not in types:
                expected = f"{len(names)} of {' or '.join(types)}"
                raise ModelError(f"the array {name!r} has {array.ndim} axes of {array.dtype}, expected {expected}.")
            for axis, length in zip(names, array.shape, strict=True):
                if length != (int(axis) if axis.isdecimal() else sizes.setdefault(axis, length)):
                    raise ModelError(
                        f"the array {name!r} of the shape {array.shape} ({axes}) does not fit the other arrays and "
                        f"{self.classes} classes."
                    )
            _check_size(name, np.asarray(array))
        self.check(images)

    @classmethod
    def check_settings(cls, settings: Any) -> None:
        """Refuse unknown settings, and values that the voter would not accept."""
        known = cls.schema.settings
        unknown = sorted(map(repr, set(settings) - set(known))) if isinstance(settings, dict) else []
        if unknown:
            raise ModelError(
                f"{unknown[0][:60]} is not a setting of {cls.kind}. It may come from a newer version of patchvote."
            )
        wrong = record({name: known[name] for name in cls.schema.needed}, known)(settings)
        if wrong is not None:
            raise ModelError(f"settings{wrong}.")


class DescriptorScorer(Scorer):
    """A scorer in which each descriptor votes independently of its bag; subclasses define `vote`.

    Votes are computed in chunks, so that one huge bag takes no more memory than many small ones.
    """

    @abc.abstractmethod
    def vote(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the votes ``(n, classes)`` of descriptors; positions are appended to them if `positions` is set."""

    @property
    def chunk(self) -> int:
        """Number of descriptors whose votes are computed at once."""
        return chunk_rows(self.classes)

    @property
    def power(self) -> float:
        """Exponent of the power normalisation of features."""
        return float(self.settings.get("power", 1.0))

    @property
    def confidence(self) -> float:
        """Exponent of the weights of descriptors (`votes.part_weights`); 0 if all of them count the same."""
        return float(self.settings.get("confidence", 0.0))

    def votes(self, bags: Bags) -> npt.NDArray[Any]:
        """Return the vote of every descriptor for every class, ``(descriptors, classes)``, times its weight."""
        votes = np.concatenate([part for _, part in self._chunks(bags)])
        if self.confidence:
            votes = votes * scaled(part_weights(votes, self.confidence), bags.offsets)[:, None]
        return votes

    def scores(self, bags: Bags) -> npt.NDArray[np.float64]:
        """Return the weighted mean vote of each bag, ``(bags, classes)``, summed in float64."""
        sums, plain = np.zeros(
            (2, len(bags), self.classes)
        )  # those of bags whose parts all have the weight 0 are plain
        totals, owner = np.zeros(len(bags)), bags.owner
        for rows, some in self._chunks(bags):
            first, last = owner[rows][0], owner[rows][-1]
            starts, votes = np.searchsorted(owner[rows], np.arange(first, last + 1)), some.astype(np.float64)
            plain[first : last + 1] += np.add.reduceat(votes, starts, axis=0)
            if self.confidence:
                weights = part_weights(votes, self.confidence)
                totals[first : last + 1] += np.add.reduceat(weights, starts)
                sums[first : last + 1] += np.add.reduceat(votes * weights[:, None], starts, axis=0)
        equal = totals <= 0
        sums[equal], totals[equal] = plain[equal], bags.sizes[equal]
        return np.asarray(sums / totals[:, None])

    def _chunks(self, bags: Bags) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        for start in range(0, len(bags.values), self.chunk):
            rows = slice(start, min(start + self.chunk, len(bags.values)))
            yield rows, self.vote(with_positions(bags, rows, self.positions))


def _check_size(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse values that are not finite, or so large that votes would overflow."""
    if array.dtype.kind != "f" or not array.size:
        return
    if array.dtype == np.float16:  # its largest number is below the limit
        largest = 0.0 if all_finite(array) else np.inf
    else:
        with np.errstate(invalid="ignore"):
            largest = max(float(array.max()), -float(array.min()))  # NaN if any value is
    if not np.isfinite(largest):
        raise ModelError(f"the array {name!r} has numbers that are not finite.")
    if name != "scale" and largest > MAX_NUMBER:
        raise ModelError(f"the array {name!r} has a number of {largest:.3g}, so large that votes would overflow.")


def check_every_class(numbers: npt.NDArray[Any], classes: int) -> int:
    """Refuse class numbers out of range and classes that do not occur; return the count of the rarest class."""
    check_numbers(numbers, classes)
    counts = np.bincount(numbers, minlength=classes)
    if counts.min() == 0:
        raise ModelError(f"class number {int(counts.argmin())} has no training data.")
    return int(counts.min())


def check_training_images(arrays: Arrays, classes: int, named: int | None) -> None:
    """Refuse class numbers or sample weights of training images that fit neither one another nor the classes.

    `named` is the number of images that the model has names for; None if it has no names.
    """
    numbers = arrays["class"]
    if named is not None and named != len(numbers):
        raise ModelError(f"it has the names of {named:,} photos, but learned from {len(numbers):,}.")
    check_every_class(numbers, classes)
    weight = arrays.get("weight", np.ones(len(numbers)))
    if weight.min(initial=0) < 0:
        raise ModelError("the sample weights of its photos are negative.")
    check_every_class(numbers[weight > 0], classes)


def check_numbers(numbers: npt.NDArray[Any], classes: int) -> None:
    """Refuse class numbers that are out of range."""
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < classes):
        raise ModelError(f"a class number is not in the range from 0 to {classes - 1}.")


def check_boxes(boxes: npt.NDArray[Any]) -> None:
    """Refuse boxes that are not within the photo."""
    if len(boxes) and not (boxes.min() >= 0 and boxes.max() <= 1):
        raise ModelError("boxes are not within the photo.")
