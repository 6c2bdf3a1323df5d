"""Copies among photos: files of the same content, and photos that look nearly the same.

Copies have to be on the same side of every split. Near copies (encoded again, resized, cropped a little, mirrored) have
vectors that are much nearer to each other than those of the collection usually are, whatever the network.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .moments import photo_vectors
from .store import Store

Numbers = npt.NDArray[np.int64]

# Share of the median distance between two photos of the collection below which they are near copies. It finds photos
# that were saved again at quality 75, mirrored or cropped by a few per cent. With 0.14, all crops of one texture were
# copies of one another, and no photo could be left out.
_NEAR = 0.12
# Share of that distance below which a near copy is certainly one. Of 70 photos of Amazon and Scene-15, saving again at
# quality 95 leaves at most 0.006; different things that look alike, such as two bikes on white, begin at 0.04.
_SURE = 0.01
_FEWEST_FEATURES = 64  # needed to find near copies: with fewer, many vectors are near by chance
_ALIKE = 1e-5  # distance that two equal vectors may have because of rounding
_SAMPLE = 500  # photos from which the median distance is estimated
_ROWS, _NUMBERS = 1024, 1 << 24  # photos compared at once with all others, and cosines: 64 MB
_MOST_PAIRS = 1 << 20  # pairs held to link photos, 16 MB: of n photos that are all alike, there are n * n / 2
_EXAMPLES = 5  # groups that are listed
_NAMES = 4  # photos that are listed per group


def copy_groups(vectors: npt.NDArray[Any], digests: Sequence[str] | None = None) -> Numbers:
    """Return the number of the first photo in the group of copies of each photo; its own if it has no copies.

    `vectors` has a row of length 1 per photo (`moments.photo_vectors`), `digests` the digests of their contents.

    Examples
    --------
    >>> photos = np.random.default_rng(0).random((4, 100))
    >>> photos[2] = photos[0] + 0.01
    >>> photos /= np.linalg.norm(photos, axis=1, keepdims=True)
    >>> copy_groups(photos).tolist()
    [0, 1, 0, 3]
    >>> copy_groups(photos, ["a", "b", "c", "b"]).tolist()
    [0, 1, 0, 1]
    """
    count, held = len(vectors), 0
    pairs: list[Numbers] = []
    for more in _pairs(vectors, digests):
        pairs.append(more)
        held += len(more)
        if held > _MOST_PAIRS:  # each photo with the first of its group links the same photos
            pairs, held = [np.stack([linked(np.concatenate(pairs), count), np.arange(count)], axis=1)], 0
    return linked(np.concatenate(pairs), count)


def copy_pairs(vectors: npt.NDArray[Any], digests: Sequence[str] | None = None) -> Numbers:
    """Return pairs of photos that are copies, the earlier one first; parameters as for `copy_groups`.

    Every photo is also paired with itself or with the first of its exact copies. Pairs may repeat; n photos that are
    all alike give n² / 2 of them.
    """
    return np.concatenate(list(_pairs(vectors, digests)))


def are_certain(pairs: Numbers, vectors: npt.NDArray[Any], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which of the pairs of `copy_pairs` are certainly copies; the others look alike, and may differ."""
    vectors, (one, other) = vectors.astype(np.float32, copy=False), pairs.T
    distances = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), _ROWS):
        some = slice(start, start + _ROWS)
        distances[some] = 1 - np.einsum("ij,ij->i", vectors[one[some]], vectors[other[some]])
    same = np.array([digests[i] == digests[j] for i, j in pairs.tolist()], bool)
    return np.asarray(same | (distances <= _limit(vectors, _SURE)))


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


def _pairs(vectors: npt.NDArray[Any], digests: Sequence[str] | None) -> Iterator[Numbers]:
    """Yield the pairs of `copy_pairs`, some at a time."""
    yield _equal_pairs([row.tobytes() for row in vectors] if digests is None else digests)
    if vectors.shape[1] >= _FEWEST_FEATURES:
        yield from _near_pairs(vectors.astype(np.float32, copy=False))


def equal_groups(digests: Sequence[str]) -> Numbers:
    """Find exact copies only; the result is as that of `copy_groups`."""
    return _equal_pairs(digests)[:, 0]


def _equal_pairs(keys: Sequence[str | bytes]) -> Numbers:
    """Return a pair for each photo: the first photo with the same key, and the photo."""
    first: dict[str | bytes, int] = {}
    return np.array([(first.setdefault(key, i), i) for i, key in enumerate(keys)], np.int64).reshape(-1, 2)


def _near_pairs(vectors: npt.NDArray[np.float32]) -> Iterator[Numbers]:
    """Yield pairs of near copies, the earlier photo first; the distance is 1 minus the cosine."""
    count, least = len(vectors), 1 - _limit(vectors, _NEAR)
    rows = max(1, min(_ROWS, _NUMBERS // max(1, count)))
    for start in range(0, count, rows):
        one, other = np.nonzero(vectors[start : start + rows] @ vectors[start:].T >= least)
        later = other > one
        yield np.stack([one[later], other[later]], axis=1) + start


def _limit(vectors: npt.NDArray[np.float32], share: float) -> float:
    """Return a share of the median distance between two photos, and at least what rounding makes of equal ones."""
    count = len(vectors)
    sample = vectors[np.linspace(0, count - 1, min(count, _SAMPLE)).astype(int)]
    distances = 1 - (sample @ sample.T)[np.triu_indices(len(sample), 1)]
    return max(share * float(np.median(distances)) if len(distances) else 0.0, _ALIKE)


def groups_of_several(groups: Numbers) -> list[list[int]]:
    """Return the photos of each group with more than one."""
    order = np.argsort(groups, kind="stable")
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    return [group.tolist() for group in np.split(order, cuts) if len(group) > 1]


def describe_copies(groups: Numbers, names: Sequence[str], labels: Sequence[str]) -> dict[str, Any] | None:
    """Describe which photos are copies of one another, as plain values; None if there are none.

    These are the numbers of groups and of photos in them, names of the photos of the first groups, the number of groups
    with several classes, and the first of these as pairs of name and class.
    """
    several = groups_of_several(groups)
    if not several:
        return None
    mixed = [group for group in several if len({labels[i] for i in group}) > 1]
    return {
        "groups": len(several),
        "photos": sum(map(len, several)),
        "examples": [[names[i] for i in group[:_NAMES]] for group in several[:_EXAMPLES]],
        "in_several_classes": len(mixed),
        "examples_in_several_classes": [_one_per_class(group, names, labels) for group in mixed[:_EXAMPLES]],
    }


def _one_per_class(group: list[int], names: Sequence[str], labels: Sequence[str]) -> list[list[str]]:
    first = {labels[i]: names[i] for i in reversed(group)}
    return [[name, label] for label, name in itertools.islice(sorted(first.items()), _NAMES)]


def vectors_of(store: Store, features: int, at_once: int) -> npt.NDArray[np.float32]:
    """Return the vectors of a store's photos, reading at most `at_once` descriptors at once.

    Of very many photos, some features, so that all vectors together have at most `features` numbers, and each as many
    as finding near copies needs.
    """
    every = max(1, min(store.dim // _FEWEST_FEATURES, -(-len(store) * store.dim // features)))
    vectors, done = np.empty((len(store), -(-store.dim // every)), np.float32), 0
    for bags, _ in store.blocks(at_once, dtype=store.dtype):
        part = photo_vectors(bags)[:, ::every]
        length = np.linalg.norm(part, axis=1, keepdims=True)
        vectors[done : done + len(bags)] = part / np.where(length > 0, length, 1)
        done += len(bags)
    return vectors
