"""KeptMoments: what `MomentSVM` needs of a bag, kept in a store instead of its descriptors.

Moments of a bag (`moment_features`) take a twentieth of its descriptors. Their products are those of projections on a
few directions, which are found in the descriptors of a collection. So they are found in a sample of its photos, and all
photos of a store have moments along the same directions, those of its basis; photos that come later, too.

The bag that a store keeps has the mean descriptor in its first row, then the four means of rooted features, weighted by
place, and then the products, in as many rows as they take. Nothing here needs scikit-learn until directions are to be
found.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bags.bags import Bags
from ..bags.keep import Keep
from ..bags.store import Store
from ..errors import StoreError
from ..utils.checksums import checksum
from ..utils.float16 import to_float32
from ..utils.threads import one_blas_thread
from .moment_features import PLACES, MomentBags, moments, pair_count
from .power import has_negative, resolved

PAIRS = 128  # directions whose products are used by default
_WORD = "moments"  # at the beginning of the name of what is kept


@dataclasses.dataclass(frozen=True, eq=False)
class KeptMoments(Keep):
    """Keeps the moments of each bag along given directions.

    Parameters
    ----------
    power : float
        Exponent of the power normalisation of features.
    directions : array of shape (features, k)
        Directions on which descriptors are projected for their products.
    offset : array of shape (features,)
        Subtracted from descriptors before they are projected.
    pairs : int
        Number of directions that were asked for; there may be fewer.
    number_type : {"float16", "float32"}
        Type of the moments in a new store.

    Examples
    --------
    >>> bag = Bags.of([np.array([[1, 0], [0, 4]], np.float16)])
    >>> keep = KeptMoments(0.5, np.eye(2, 1), np.zeros(2), 1)
    >>> keep.of(bag, "").values.tolist()  # the mean, four means of roots, and the mean of one product
    [[0.5, 2.0], [0.5, 1.0], [0.0, 0.0], [-0.5, -1.0], [0.0, 0.0], [0.5, 0.0]]
    """

    power: float
    directions: npt.NDArray[Any]
    offset: npt.NDArray[Any]
    pairs: int
    number_type: str = "float16"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptMoments) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @functools.cached_property
    def name(self) -> str:
        """Name in the headers of shards: equal if the moments are along the same directions."""
        return f"{_WORD} {self.pairs} {_text(self.power)} {checksum([self.basis])}"

    @property
    def dtype(self) -> str:
        """Type of the numbers in a new store."""
        return self.number_type

    @functools.cached_property
    def basis(self) -> npt.NDArray[np.float32]:
        """Offset and directions, one per row."""
        return np.concatenate([self.offset[None], self.directions.T]).astype(np.float32)

    def of(self, bag: Bags, digest: str) -> Bags:
        """Return the moments of the descriptors as a store of whole bags holds them: in float16."""
        bag = bag.astype(np.float16)
        # On one thread: products of a single bag are small, and the network has the other cores.
        with one_blas_thread():
            stats = moments(bag, self.power, self.directions, self.offset)
        flat = np.concatenate([bag.means()[0], stats[0]])
        rows = np.zeros((self._rows, bag.dim), np.float32)
        rows.reshape(-1)[: len(flat)] = flat
        return Bags.of([rows])

    def read(self, bags: Bags) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the moments and the mean descriptors of bags as `of` returns them.

        Raises
        ------
        StoreError
            If they are not moments of this form.
        """
        if not (bags.sizes == self._rows).all() or bags.dim != len(self.offset):
            raise StoreError("the store says that it keeps moments, but its bags do not have their form.")
        flat = to_float32(bags.values).reshape(len(bags), -1)
        return flat[:, bags.dim : bags.dim + self._count], flat[:, : bags.dim]

    def restored(self, kept: Bags) -> MomentBags:
        """Return the moments and means of bags, in the form in which `MomentVotes` scores them."""
        stats, means = self.read(kept)
        return MomentBags(means, np.arange(len(means) + 1), stats=stats)

    @property
    def _count(self) -> int:
        return PLACES * len(self.offset) + pair_count(self.directions.shape[1])

    @property
    def _rows(self) -> int:
        return 1 + -(-self._count // len(self.offset))


@dataclasses.dataclass(frozen=True)
class MomentCondenser:
    """Finds the directions of a collection, for `MomentSVM` with these settings.

    Parameters
    ----------
    pairs : int
        Number of directions.
    power : float or "auto"
        Exponent of the power normalisation of features.
    """

    pairs: int = PAIRS
    power: float | str = "auto"

    @property
    def name(self) -> str:
        """First words of the names of what it finds."""
        return f"{_WORD} {self.pairs}" + ("" if self.power == "auto" else f" {_text(float(self.power))}")

    def find(self, sample: Store) -> Keep:
        """Return what to keep, with directions that are found in whole bags of some photos."""
        from .moment_svm import MomentSVM

        return MomentSVM(pairs=self.pairs, power=self.power).to_keep(sample)

    def restore(self, store: Store) -> Keep:
        """Return what a store keeps that was begun with an earlier sample."""
        return kept_in(store)

    def accepts(self, store: Store) -> bool:
        """Whether a store has the exponent that "auto" would choose; any other exponent is part of its name.

        Negative features are recognised by their means, the offset. If none of these is negative, although features
        are, a new store is begun, which takes time but never gives another model.
        """
        kept = kept_in(store)
        return self.power != "auto" or kept.power == resolved("auto", has_negative(kept.offset))


def keeps_moments(source: Any) -> bool:
    """Whether bags are those of a store that keeps moments."""
    return isinstance(source, Store) and source.keep.partition(" ")[0] == _WORD


def kept_in(store: Store) -> KeptMoments:
    """Return what a store of moments keeps.

    Raises
    ------
    StoreError
        If its basis does not fit its name, which somebody must have changed.
    """
    try:
        pairs, power = int(store.keep.split(" ")[1]), float(store.keep.split(" ")[2])
        basis = np.asarray(store.basis, np.float32)
        keep = KeptMoments(power, basis[1:].T, basis[0], pairs)
        if keep.name == store.keep and np.isfinite(basis).all() and 0 < power <= 10:
            return keep
    except (ValueError, IndexError):
        pass
    raise StoreError(f"{store.path} says that it keeps moments, but not along which directions.")


def _text(number: float) -> str:
    """Return a number as text from which the same number is read again.

    Examples
    --------
    >>> _text(0.5), _text(1.0), _text(1 / 3)
    ('0.5', '1', '0.3333333333333333')
    """
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))
