"""Moments of a bag: what its parts show, where, and which features they show together.

The mean of a bag's descriptors forgets where a part stood and what it showed besides. Three kinds of statistics of the
rooted descriptors r (signed square roots) keep some of that, and all of them are means over its parts:

- **what**: the mean of r;
- **where**: the means of a r, b r and a b r, with a from -1 at the top of the image to 1 at its bottom, and b from -1
  in the middle to 1 at the left and right edges;
- **together**: the mean of the products y_j y_k of the features y = (r - offset) D in the fixed basis of the network.

A linear function of these means is a sum over parts: every part votes with a function of what it shows, weighted by
where it stands and by what else it shows. The vector of a photo is what and where, divided by the length of what, and
together, divided by its length, so that bright and dark photos count the same.

Moments depend on the photo and the network alone, never on other photos. They are kept in 8 bits per number: the signed
square root of each, in 255 steps up to the largest of its kind. That changes a vector by 1 % of its distance to the
mean of the collection, and no answer that was measured.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xxhash

from ..networks.bases import DIRECTIONS, Basis
from ..utils.arrays import to_float32
from ..utils.machine import one_blas_thread
from .bags import Bags

__all__ = ["DIRECTIONS", "PLACES", "Basis", "KeptMoments", "MomentBags", "moments", "signed_root"]

Floats = npt.NDArray[np.float32]
Pack = npt.NDArray[np.int8]

PLACES = 4  # means of r, a r, b r and a b r
_STEPS = 127  # of one sign in a number of 8 bits
_LEAST_LAYOUT = 0.02  # of the length of what, for a layout that is more than rounding to 8 bits
_AT_ONCE = 64  # photos whose vectors are in memory at once: 8 MB with 1,280 features


@dataclasses.dataclass(frozen=True, eq=False)
class MomentBags(Bags):
    """Bags of which only the moments are known: each has one descriptor, its mean rooted descriptor."""

    packed: Pack = dataclasses.field(default=None)  # type: ignore[arg-type]  # moments in 8 bits, (bags, moments)
    scale: Floats = dataclasses.field(default=None)  # type: ignore[arg-type]  # largest what, where and together
    basis: Basis = dataclasses.field(default=None)  # type: ignore[assignment]  # of the products

    @classmethod
    def of_packed(cls, packed: Pack, scale: Floats, basis: Basis) -> MomentBags:
        """Return bags, given their packed moments."""
        dim = len(basis.offset)
        what = _unpacked(packed[:, :dim], scale[:, :1])
        return cls(what, np.arange(len(packed) + 1), packed=packed, scale=scale, basis=basis)

    @classmethod
    def joined(cls, parts: Sequence[MomentBags]) -> MomentBags:
        """Return the bags of several collections, one after the other."""
        packed, scale = np.concatenate([p.packed for p in parts]), np.concatenate([p.scale for p in parts])
        return cls.of_packed(packed, scale, parts[0].basis)

    def keys(self) -> list[str]:
        """Return a digest of the moments of each bag: photos that the network cannot tell apart have the same."""
        return [
            xxhash.xxh3_128_hexdigest(packed.tobytes() + scale.tobytes())
            for packed, scale in zip(self.packed, self.scale, strict=True)
        ]

    def rows(self, indices: npt.NDArray[np.int64] | slice | list[int]) -> MomentBags:
        """Return some of the bags."""
        return self.of_packed(self.packed[indices], self.scale[indices], self.basis)

    def vectors(self) -> Floats:
        """Return the vector of each bag."""
        values = np.empty(self.packed.shape, np.float32)
        for start in range(0, len(values), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            for column, part in enumerate(parts_of(self.dim)):
                values[rows, part] = _unpacked(self.packed[rows, part], self.scale[rows, column : column + 1])
            unit(values[rows], self.dim)
        return values

    def blocks_of_vectors(self) -> Iterator[tuple[slice, Floats]]:
        """Yield the vectors in blocks that fit into little memory, with their rows."""
        for start in range(0, len(self), _AT_ONCE):
            rows = slice(start, min(start + _AT_ONCE, len(self)))
            yield rows, self.rows(rows).vectors()


@dataclasses.dataclass(frozen=True, eq=False)
class KeptMoments:
    """Keeps the moments of a bag (see `cache.Kept`), with products in a basis."""

    basis: Basis

    @property
    def name(self) -> str:
        """Name of what is kept; moments along the same directions have the same."""
        return f"moments-{self.basis.digest}"

    def of(self, bag: Bags) -> MomentBags:
        """Return the moments of bags, as they are when they are read again."""
        # Products of a single bag are small, and the network has the other cores.
        with one_blas_thread(), np.errstate(over="ignore"):
            values = moments(bag, self.basis)
        if not np.isfinite(values).all():
            raise ValueError("features are too large for products of them: divide them by a number.")
        packed, scale = _packed(values, bag.dim)
        return MomentBags.of_packed(packed, scale, self.basis)

    def pack(self, kept: Bags) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays to store."""
        made = cast(MomentBags, kept)
        return {"moments": made.packed, "scale": made.scale}

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> MomentBags:
        """Return moments from their stored arrays; ValueError if these have another form."""
        packed, scale = arrays.get("moments"), arrays.get("scale")
        count = moment_count(self.basis)
        if packed is None or scale is None or packed.dtype != np.int8 or scale.dtype != np.float32:
            raise ValueError("it holds no moments.")
        if packed.shape != (1, count) or scale.shape != (1, 3) or not np.isfinite(scale).all():
            raise ValueError("its moments have another form.")
        return MomentBags.of_packed(packed, scale, self.basis)


def signed_root(values: npt.NDArray[Any]) -> Floats:
    """Return ``sign(x) sqrt(|x|)`` of every value, as float32."""
    values = to_float32(values)
    size = np.sqrt(np.abs(values))
    return np.asarray(np.copysign(size, values, out=size))


def places(boxes: npt.NDArray[Any]) -> Floats:
    """Return the factors (1, a, b, a b) of descriptors with these boxes, ``(descriptors, 4)``."""
    x, y = ((boxes[:, :2] + boxes[:, 2:]) / 2).T
    down, aside = 2 * y - 1, 4 * np.abs(x - 0.5) - 1
    return np.stack([np.ones_like(down), down, aside, down * aside], axis=1).astype(np.float32)


def moments(bags: Bags, basis: Basis) -> Floats:
    """Return the moments of each bag: four means of every feature, then the means of products."""
    dim, k = basis.directions.shape
    upper, double = _upper(k), _factors(k)
    result = np.empty((len(bags), moment_count(basis)), np.float32)
    for number, (start, stop) in enumerate(itertools.pairwise(bags.offsets.tolist())):
        r = signed_root(bags.values[start:stop])
        result[number, : PLACES * dim] = _means(r, bags.boxes[start:stop])
        projected = basis.project(r)
        result[number, PLACES * dim :] = (projected.T @ projected / len(r))[upper] * double
    return result


def _means(r: Floats, boxes: npt.NDArray[Any]) -> Floats:
    """Return what and where of a bag: the means of its rooted descriptors, weighted by place."""
    return np.asarray((places(boxes).T @ r / len(r)).ravel())


def moment_count(basis: Basis) -> int:
    """Return the number of moments of a bag."""
    dim, k = basis.directions.shape
    return int(PLACES * dim + k * (k + 1) // 2)


def parts_of(dim: int) -> tuple[slice, slice, slice]:
    """Return what, where and together among the moments of an image."""
    return slice(0, dim), slice(dim, PLACES * dim), slice(PLACES * dim, None)


def lengths(values: npt.NDArray[Any], dim: int) -> npt.NDArray[np.float64]:
    """Return the length of what, and that of together, of each bag ``(bags, 2)``; 1 where it is 0."""
    what, _, together = parts_of(dim)
    both = np.sqrt(np.stack([squares(values[:, part]) for part in (what, together)], axis=1))
    return np.asarray(np.where(both > 0, both, 1.0))


def squares(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the sum of the squares of each row."""
    return np.asarray(np.einsum("bm,bm->b", values, values, dtype=np.float64))


def unit(values: Floats, dim: int) -> Floats:
    """Divide moments by their lengths, in place: what and where by that of what, together by its own."""
    size = lengths(values, dim).astype(np.float32)
    values[:, : PLACES * dim] /= size[:, :1]
    values[:, PLACES * dim :] /= size[:, 1:]
    return values


def photo_vectors(bags: Bags) -> Floats:
    """Return the mean rooted descriptor of each bag, with length 1: what photos are compared by."""
    if isinstance(bags, MomentBags):
        means = np.asarray(bags.values, np.float32).copy()
    else:
        means = np.empty((len(bags), bags.dim), np.float32)
        for number, (start, stop) in enumerate(itertools.pairwise(bags.offsets.tolist())):
            means[number] = signed_root(bags.values[start:stop]).mean(axis=0, dtype=np.float64)
    size = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.where(size > 0, size, 1))


def layouts(bags: Bags, every: int = 1) -> Floats:
    """Return how the features of each bag are laid out, with length 1: what copies of a photo are recognised by.

    It is where, less the part that what alone explains; 0 if the parts of a bag have one place. `every` takes every
    so manieth feature only.
    """
    dim, count = bags.dim, len(bags)
    if isinstance(bags, MomentBags):
        means = np.concatenate([bags.values, _unpacked(bags.packed[:, dim : PLACES * dim], bags.scale[:, 1:2])], axis=1)
    else:
        ranges = itertools.pairwise(bags.offsets.tolist())
        means = np.stack([_means(signed_root(bags.values[a:b]), bags.boxes[a:b]) for a, b in ranges])
    parts = means.reshape(count, PLACES, dim)[:, :, ::every]
    what, where = parts[:, 0], parts[:, 1:]
    square = squares(what)[:, None]
    explained = np.einsum("bpd,bd->bp", where, what) / np.where(square > 0, square, 1)
    rest = np.asarray(where - explained[:, :, None] * what[:, None], np.float32).reshape(count, -1)
    size = np.linalg.norm(rest, axis=1, keepdims=True)
    return np.asarray(rest / np.where(size > _LEAST_LAYOUT * np.sqrt(square), size, np.inf), np.float32)


def symmetric(linear: npt.NDArray[Any], k: int) -> Floats:
    """Return the weights of products as one symmetric matrix per class, ``(classes, k, k)``."""
    return np.take((linear / _factors(k)).astype(np.float32), _entries(k), axis=1)


def _packed(values: Floats, dim: int) -> tuple[Pack, Floats]:
    packed, scale = np.empty(values.shape, np.int8), np.empty((len(values), 3), np.float32)
    for column, part in enumerate(parts_of(dim)):
        size = np.abs(values[:, part]).max(axis=1, initial=0)
        scale[:, column] = size
        share = values[:, part] / np.where(size > 0, size, 1)[:, None]
        packed[:, part] = np.rint(np.copysign(np.sqrt(np.abs(share)) * _STEPS, share))
    return packed, scale


def _unpacked(packed: Pack, scale: npt.NDArray[Any]) -> Floats:
    values = packed.astype(np.float32)
    values *= np.abs(values)
    values *= scale / np.float32(_STEPS * _STEPS)
    return values


@functools.lru_cache(4)
def _upper(k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return rows and columns of the products of k features, each pair once; to be read only."""
    return np.triu_indices(k)


@functools.lru_cache(4)
def _entries(k: int) -> npt.NDArray[np.int64]:
    """Return for each entry of a symmetric matrix which of the products it is."""
    entries = np.empty((k, k), np.int64)
    entries[_upper(k)] = entries.T[_upper(k)] = np.arange(k * (k + 1) // 2)
    return entries


@functools.lru_cache(4)
def _factors(k: int) -> Floats:
    """Return the factor of each product: those of two features stand for two equal entries of a matrix."""
    first, second = _upper(k)
    return np.where(first == second, 1, np.sqrt(2)).astype(np.float32)
