"""Keep: what of each bag a store keeps.

A bag of the default recipe takes 0.6 MB, ten times its photo. Many uses need less of it: some of the descriptors, or
their mean. What a store keeps is part of its kind, so that means are never mistaken for descriptors. Whatever is kept
of a photo depends on its content alone, not on its name, the order of photos or the number of threads.

Voters may need other numbers computed from a bag (`Voter.needs`). Where these depend on the collection, they are
described by a `Condenser`, which finds what to compute in a sample of whole bags.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..utils.checksums import checksum
from ..utils.schema import brief
from .bags import Bags
from .boxes import MAX_DESCRIPTORS

if TYPE_CHECKING:
    from .store import Store


@dataclasses.dataclass(frozen=True)
class Keep:
    """Keeps all descriptors; subclasses keep less.

    Attributes
    ----------
    name : str
        Name in the headers of shards, where equal names mean that bags can be compared; "all" is not written.
    dtype : str
        Type of the numbers in a new store, if none is asked for.
    basis : array of shape (n, features) or None
        Numbers that describe how what is kept was computed; every shard holds them.
    """

    @property
    def name(self) -> str:
        """Name in the headers of shards."""
        return "all"

    @property
    def dtype(self) -> str:
        """Type of the numbers in a new store."""
        return "float16"

    @property
    def basis(self) -> npt.NDArray[np.float32] | None:
        """Numbers that describe how what is kept was computed."""
        return None

    def of(self, bag: Bags, digest: str) -> Bags:
        """Return what is kept of the bag of one photo, whose content has this digest."""
        return bag

    def restored(self, kept: Bags) -> Bags:
        """Return bags with the means of the whole ones, to which scorers that need no more give the same scores."""
        return kept


ALL = Keep()


@dataclasses.dataclass(frozen=True)
class Some(Keep):
    """Keeps at most `count` descriptors of each photo, drawn at random; that of the whole photo is always kept.

    The photo's content is the seed. Descriptors at even distances in the bag would come from the same columns of the
    grid in every photo.
    """

    count: int = 64

    @property
    def name(self) -> str:
        """Name in the headers of shards."""
        return str(self.count)

    def of(self, bag: Bags, digest: str) -> Bags:
        """Return the chosen descriptors, in their order."""
        size = len(bag.values)
        if size <= self.count:
            return bag
        rng = np.random.default_rng(int(checksum([digest.encode()]), 16))
        first = int(bag.level[0] == 0)  # the descriptor of the whole photo
        rows = np.sort(rng.choice(np.arange(first, size), self.count - first, replace=False))
        rows = np.concatenate([np.arange(first), rows])
        return Bags(bag.values[rows], np.array([0, len(rows)]), bag.boxes[rows], bag.level[rows])


@dataclasses.dataclass(frozen=True)
class Mean(Keep):
    """Keeps the mean of each bag, as a bag of one descriptor.

    Means that come from moments in a cache are rounded to float16 once more.
    """

    @property
    def name(self) -> str:
        """Name in the headers of shards."""
        return "mean"

    @property
    def dtype(self) -> str:
        """Type of the numbers in a new store: float32, so that models of means are those of whole bags."""
        return "float32"

    def of(self, bag: Bags, digest: str) -> Bags:
        """Return the mean of the descriptors as a store of whole bags holds them: in float16.

        So it does not matter whether the bag comes from such a store or from the network.
        """
        return Bags.of(bag.astype(np.float16).means())


class Condenser(Protocol):
    """Finds what a voter needs of each bag of a collection, in whole bags of some of its photos."""

    @property
    def name(self) -> str:
        """First words of the names of what it finds."""

    def find(self, sample: Store) -> Keep:
        """Return what to keep, found in a sample of whole bags."""

    def restore(self, store: Store) -> Keep:
        """Return what a store keeps that was begun with an earlier sample."""

    def accepts(self, store: Store) -> bool:
        """Whether a store of such a name keeps what it would look for itself, apart from the sample."""


def keep_of(keep: Any) -> Keep:
    """Return what to keep: "all", "mean", a number of descriptors, or a `Keep`.

    Raises
    ------
    StoreError
        It is none of these.

    Examples
    --------
    >>> keep_of("mean"), keep_of(64), keep_of("64").name
    (Mean(), Some(count=64), '64')
    """
    if isinstance(keep, Keep):
        return keep
    if keep in ("all", "mean"):
        return ALL if keep == "all" else Mean()
    text = str(keep) if isinstance(keep, (int, np.integer)) and not isinstance(keep, bool) else keep
    if not isinstance(text, str) or not _is_count(text):
        raise StoreError(
            f"what a store keeps of each photo must be 'all', 'mean', or a number of descriptors from 1 to "
            f"{MAX_DESCRIPTORS:,}, got {brief(keep)}."
        )
    return Some(int(text))


def has_parts(name: str) -> bool:
    """Whether a store that keeps this, by its name, has descriptors of parts of photos.

    Examples
    --------
    >>> has_parts("all"), has_parts("64"), has_parts("mean")
    (True, True, False)
    """
    return name == "all" or _is_count(name)


def in_words(name: str) -> str:
    """Return in words what a store keeps, by its name.

    Examples
    --------
    >>> in_words("64"), in_words("mean")
    ('at most 64 descriptors of each photo', 'the mean of each photo')
    """
    if _is_count(name):
        return f"at most {int(name):,} descriptors of each photo"
    words = {"all": "all descriptors of each photo", "mean": "the mean of each photo"}
    return words.get(name, "a summary of each photo")


def _is_count(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]{0,5}", text) is not None and int(text) <= MAX_DESCRIPTORS
