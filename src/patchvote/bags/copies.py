"""Copies among photos: files of the same content, and photos that look nearly the same.

Copies have to be on the same side of every split. Photos are near copies (encoded again, resized, cropped a little,
mirrored) if their features are laid out alike (`moments.layouts`). Crops of one texture and things of one kind show the
same features in other places, so one limit serves every collection, and two photos are copies or not whatever others
are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .bags import Bags
from .moments import MomentBags, layouts, photo_vectors
from .store import Store

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

# Distance, 1 minus the cosine of two layouts, up to which two photos are near copies: of 720 copies that were saved
# again down to quality 60, made smaller, cropped or mirrored, one was farther (benchmarks/copies.py). Crops of one
# texture begin at 0.38, different photos at 0.8; photos of one thing on one table, from about 0.1 on, are often nearer.
_NEAR = 0.17
# Distance up to which a near copy is certainly one: saving again at quality 95 leaves 0.001 in the median, and the most
# similar pair of different products on white has 0.0042.
_SURE = 0.004
_FEWEST_FEATURES = 64  # needed to find near copies: with fewer, many layouts are near by chance
_MOST_NUMBERS = 1 << 27  # of all layouts, 512 MB; of more photos than that, some features are compared
_DESCRIPTORS = 10_000  # of a store that are read at once
_ROWS, _COSINES = 1024, 1 << 24  # photos compared at once with all others, and cosines: 64 MB
_MOST_PAIRS = 1 << 20  # pairs held to link photos, 16 MB: of n photos that are all alike, there are n * n / 2
_EXAMPLES = 5  # groups that are listed
_NAMES = 4  # photos that are listed per group


def copy_groups(images: Bags | Store, keys: Sequence[str] | None = None) -> Numbers:
    """Return the number of the first photo in the group of copies of each photo; its own if it has no copies.

    Photos of the same key are exact copies; by default those with the same features.
    """
    return groups_of_layouts(*_layouts_and_keys(images, keys))


def groups_of_layouts(looks: Floats, keys: Sequence[Any]) -> Numbers:
    """Return what `copy_groups` does, from the layouts of photos and what tells equal ones."""
    count, held = len(looks), 0
    pairs: list[Numbers] = []
    for more in _pairs(looks, keys):
        pairs.append(more)
        held += len(more)
        if held > _MOST_PAIRS:  # each photo with the first of its group links the same photos
            pairs, held = [np.stack([linked(np.concatenate(pairs), count), np.arange(count)], axis=1)], 0
    return linked(np.concatenate(pairs), count)


def copy_pairs(images: Bags | Store, keys: Sequence[str]) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return pairs of photos that are copies, the earlier one first, and which of them certainly are.

    Every photo is also paired with itself or with the first of its exact copies. Pairs may repeat.
    """
    looks, keys = _layouts_and_keys(images, keys)
    pairs = np.concatenate(list(_pairs(looks, keys)))
    distances = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), _ROWS):
        one, other = pairs[start : start + _ROWS].T
        distances[start : start + _ROWS] = 1 - np.einsum("ij,ij->i", looks[one], looks[other])
    same = np.array([keys[i] == keys[j] for i, j in pairs.tolist()], bool)
    return pairs, np.asarray(same | (distances <= _SURE))


def _layouts_and_keys(images: Bags | Store, keys: Sequence[str] | None) -> tuple[Floats, Sequence[Any]]:
    """Return the layouts of photos, and what tells equal ones."""
    least = max(1, images.dim // _FEWEST_FEATURES)
    every = min(least, -(-len(images) * 3 * images.dim // _MOST_NUMBERS))
    if isinstance(images, MomentBags):
        return layouts(images, every), images.keys() if keys is None else keys
    if isinstance(images, Bags):
        return layouts(images, every), [row.tobytes() for row in photo_vectors(images)] if keys is None else keys
    blocks = images.blocks(_DESCRIPTORS, dtype=images.dtype)
    keys = [entry.digest for entry in images.entries] if keys is None else keys
    return np.concatenate([layouts(bags, every) for bags, _ in blocks]), keys


def linked(pairs: Numbers, count: int) -> Numbers:
    """Return the groups of photos that pairs link, directly or through others, as `copy_groups` does."""
    one, other = pairs.T
    first, before = np.arange(count), None
    while before is None or not np.array_equal(first, before):
        before, lowest = first.copy(), np.minimum(first[one], first[other])
        np.minimum.at(first, one, lowest)
        np.minimum.at(first, other, lowest)
        first = first[first]  # so that long chains take few rounds
    return first


def _pairs(looks: Floats, keys: Sequence[Any]) -> Iterator[Numbers]:
    """Yield the pairs of `copy_pairs`, some at a time."""
    yield _equal_pairs(keys)
    if looks.shape[1] < 3 * _FEWEST_FEATURES:
        return
    count = len(looks)
    rows = max(1, min(_ROWS, _COSINES // max(1, count)))
    for start in range(0, count, rows):
        one, other = np.nonzero(looks[start : start + rows] @ looks[start:].T >= 1 - _NEAR)
        later = other > one
        yield np.stack([one[later], other[later]], axis=1) + start


def equal_groups(digests: Sequence[str]) -> Numbers:
    """Find exact copies only; the result is as that of `copy_groups`."""
    return _equal_pairs(digests)[:, 0]


def _equal_pairs(keys: Sequence[Any]) -> Numbers:
    """Return a pair for each photo: the first photo with the same key, and the photo."""
    first: dict[Any, int] = {}
    return np.array([(first.setdefault(key, i), i) for i, key in enumerate(keys)], np.int64).reshape(-1, 2)


def groups_of_several(groups: Numbers) -> list[list[int]]:
    """Return the photos of each group with more than one."""
    order = np.argsort(groups, kind="stable")
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    return [group.tolist() for group in np.split(order, cuts) if len(group) > 1]


def describe_copies(groups: Numbers, names: Sequence[str], labels: Sequence[str]) -> dict[str, Any] | None:
    """Describe which photos are copies of one another, as plain values; None if there are none."""
    several = groups_of_several(groups)
    if not several:
        return None
    mixed = [group for group in several if len({labels[i] for i in group}) > 1]
    return {
        "groups": len(several),
        "photos": sum(map(len, several)),
        "examples": [
            [*(names[i] for i in group[:_NAMES]), *(["…"] if len(group) > _NAMES else [])]
            for group in several[:_EXAMPLES]
        ],
        "in_several_classes": len(mixed),
        "examples_in_several_classes": [
            [[name, label] for label, name in sorted({labels[i]: names[i] for i in reversed(group)}.items())[:_NAMES]]
            for group in mixed[:_EXAMPLES]
        ],
    }
