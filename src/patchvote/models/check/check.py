"""Check a collection of labelled photos, before a model is fitted to it.

Photos go through the network once: their bags are kept in the cache, from which `fit` takes them later.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...bags.copies import copy_pairs, groups_of_several, linked
from ...bags.described import Filled, described
from ...bags.extract import Extractor
from ...bags.moments import KeptMoments, MomentBags, photo_vectors
from ...errors import PhotoError
from ...networks.bases import basis_of
from ...photos.find import Found, Source, find_photos, is_missing, labelled
from ...utils.terminal import Progress
from ..fit import Labelled
from .findings import Checked, Kind, Suspect
from .suspects import HeldOut, doubtful_labels, hold_out_each, outliers_of, why_no_outliers

_CONFIRMED = 0.75  # held-out probability of a label from which on it is right, where copies have different ones

Numbers = npt.NDArray[np.int64]


def check_photos(
    photos: Source,
    extractor: Extractor,
    *,
    test: Source | None = None,
    cache: str | Path | bool | None = None,
    progress: Progress | None = None,
) -> Checked:
    """Check a collection: copies, labels, outliers, classes with few photos, and files that cannot be read.

    Copies of photos of the `test`, on which a model is to be tested, are found among the photos.
    """
    found, without = _labelled(photos)
    others = None if test is None else find_photos(test)
    collection, skipped = _collection(found, extractor, cache, progress)
    unreadable = [*without, *skipped]
    tested, passed_over = None, found.passed_over
    if others is not None:
        tested, more = _collection(others, extractor, cache, progress)
        unreadable += more
        passed_over += others.passed_over.without_folders()
    result = check_collection(collection, tested)
    label_of = {photo.name: str(photo.label) for photo in found}
    suspects = [Suspect(e.name, label_of[e.name], Kind.unreadable, reason=e.reason) for e in skipped]
    return dataclasses.replace(
        result, suspects=[*result.suspects, *suspects], skipped=unreadable, passed_over=passed_over
    )


def _labelled(photos: Source) -> tuple[Found, list[PhotoError]]:
    """Find the photos with a class, and those without one, unless all are: a few are told with all other findings."""
    found = find_photos(photos)
    with_class = [photo for photo in found if not is_missing(photo.label)]
    if not with_class:
        return labelled(photos, None, 1), []  # which says what to do
    advice = "has no class, and `fit` refuses it. Put it into the folder of its class, or away."
    without = [PhotoError(photo.name, advice) for photo in found if is_missing(photo.label)]
    return Found(with_class, found.passed_over), without


def _collection(
    photos: Found, extractor: Extractor, cache: str | Path | bool | None, progress: Progress | None
) -> tuple[Labelled, list[PhotoError]]:
    """Extract photos; return what a check needs of them, and the unreadable ones. A later `fit` finds them cached."""

    def show(filled: Filled) -> None:
        if progress is not None:
            progress("extract", filled.done, filled.photos)

    filled, kept = Filled(len(photos)), KeptMoments(basis_of(extractor.backbone.spec))
    items = described(photos, extractor, kept, cache=cache, progress=show, filled=filled)
    return Labelled.of(dataclasses.replace(item, whole=None) for item in items), filled.skipped


def check_collection(photos: Labelled, test: Labelled | None = None) -> Checked:
    """Check labelled photos whose moments are known, and compare them with photos of a test."""
    classes, numbers = np.unique(np.array(photos.labels, str), return_inverse=True)
    count, digests, bags = len(photos), photos.digests, photos.bags
    if test is not None:
        digests, bags = [*digests, *test.digests], MomentBags.joined([bags, test.bags])
    pairs, certain = copy_pairs(bags, bags.keys())
    # Photos that look alike are held out together, also those that only a chain of others links. Two photos are called
    # copies where they are alike themselves.
    groups = linked(pairs, len(bags))[:count]
    copies, lookalikes = _partners(pairs[certain], digests), _partners(pairs[~certain], digests)
    held_out = hold_out_each(photos.bags, classes[numbers], groups)
    strange = outliers_of(held_out, photo_vectors(photos.bags), groups).tolist()
    # A photo is listed once, for the first of these reasons: what is certain comes before what only looks alike.
    found: dict[str, Suspect] = {}
    for suspect in (
        *_in_several_classes(photos, copies, held_out, numbers),
        *_mislabelled(photos, held_out, numbers, classes.tolist()),
        *_in_test(photos, copies, test),
        *_same_files(photos),
        *_in_several_classes(photos, lookalikes, held_out, numbers, Kind.like_class),
        *_in_test(photos, lookalikes, test, Kind.like_test),
        *(Suspect(photos.names[i], photos.labels[i], Kind.outlier) for i in strange),
    ):
        found.setdefault(suspect.name, suspect)
    in_test = {suspect.name for suspect in _in_test(photos, copies, test)}
    for name, suspect in found.items():  # of a photo in several classes, one copy stays, unless it is in the test
        if suspect.kind is Kind.classes and name not in in_test and found.keys() >= set(suspect.others):
            found[name] = dataclasses.replace(suspect, is_certain=False)
    order = list(Kind)
    own = pairs[(pairs < count).all(axis=1)]
    alike = groups_of_several(linked(own[numbers[own[:, 0]] == numbers[own[:, 1]]], count))
    return Checked(
        dict(zip(classes.tolist(), np.bincount(numbers).tolist(), strict=True)),
        sorted(found.values(), key=lambda suspect: order.index(suspect.kind)),
        [[photos.names[i] for i in group] for group in alike],
        _different(_partners(own, digests[:count]), photos.labels),
        *_not_compared(photos, held_out, numbers),
        no_outliers=why_no_outliers(held_out),
        tested=0 if test is None else len(test.names),
    )


def _not_compared(photos: Labelled, held_out: HeldOut, numbers: Numbers) -> tuple[list[str], list[str]]:
    """Return the photos that could not be held out: the only ones of their class, and those with others of it."""
    is_only = (np.bincount(numbers) == 1)[numbers]
    only, other = np.flatnonzero(~held_out.asked & is_only), np.flatnonzero(~held_out.asked & ~is_only)
    return [photos.names[i] for i in only.tolist()], [photos.names[i] for i in other.tolist()]


def _partners(pairs: Numbers, digests: Sequence[str]) -> list[list[int]]:
    """Return the photos that each photo is paired with, those of the same content first."""
    found: list[set[int]] = [set() for _ in digests]
    for one, other in pairs.tolist():
        if one != other:
            found[one].add(other)
            found[other].add(one)
    return [sorted(others, key=lambda j: (digests[j] != digests[i], j)) for i, others in enumerate(found)]


def _different(copies: Sequence[Sequence[int]], labels: Sequence[str]) -> dict[str, int]:
    """Return the number of photos of each class, without those that look like an earlier one that was counted."""
    counted: set[int] = set()
    for i, others in enumerate(copies):
        if not any(j in counted and labels[j] == labels[i] for j in others):
            counted.add(i)
    return dict(sorted(collections.Counter(labels[i] for i in counted).items()))


def _in_several_classes(
    photos: Labelled,
    copies: Sequence[Sequence[int]],
    held_out: HeldOut,
    numbers: Numbers,
    kind: Kind = Kind.classes,
) -> list[Suspect]:
    """Return photos with copies in other classes, except those whose label the other photos confirm."""
    suspects = []
    for i, alike in enumerate(copies[: len(numbers)]):
        others = [j for j in alike if j < len(numbers) and numbers[j] != numbers[i]]
        chances = np.nan_to_num(held_out.probability[i])
        others.sort(key=lambda j: (photos.digests[j] != photos.digests[i], -chances[numbers[j]]))
        is_confirmed = held_out.probability[i, numbers[i]] > _CONFIRMED  # never of NaN
        if others and not is_confirmed:
            exact = photos.digests[others[0]] == photos.digests[i]
            names, label = tuple(photos.names[j] for j in others), photos.labels[others[0]]
            suspects.append(Suspect(photos.names[i], photos.labels[i], kind, label, others=names, exact=exact))
    return suspects


def _mislabelled(photos: Labelled, held_out: HeldOut, numbers: Numbers, classes: Sequence[str]) -> list[Suspect]:
    images, others = doubtful_labels(held_out.probability, numbers)
    return [
        Suspect(photos.names[i], photos.labels[i], Kind.label, classes[j], float(held_out.probability[i, j]))
        for i, j in zip(images.tolist(), others.tolist(), strict=True)
    ]


def _in_test(
    photos: Labelled, copies: Sequence[Sequence[int]], test: Labelled | None, kind: Kind = Kind.test
) -> list[Suspect]:
    """Return photos that have copies among the test photos, whose numbers follow those of the photos."""
    suspects, count = [], len(photos.names)
    for i, alike in enumerate(copies[:count]):
        others = [j - count for j in alike if j >= count]
        if test is not None and others:
            exact, names = test.digests[others[0]] == photos.digests[i], tuple(test.names[j] for j in others)
            suspects.append(Suspect(photos.names[i], photos.labels[i], kind, others=names, exact=exact))
    return suspects


def _same_files(photos: Labelled) -> list[Suspect]:
    """Return photos with the content of an earlier photo of the same class."""
    first: dict[tuple[str, str], str] = {}
    suspects = []
    for name, label, digest in zip(photos.names, photos.labels, photos.digests, strict=True):
        original = first.setdefault((label, digest), name)
        if original != name:
            suspects.append(Suspect(name, label, Kind.copy, others=(original,), exact=True))
    return suspects
