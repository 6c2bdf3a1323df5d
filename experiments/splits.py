"""Divide the photos of an image set into training and test photos."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from patchvote.errors import PatchvoteError
from patchvote.photos.find import Photo

from .datasets import Dataset
from .protocol import Setting

_MIN_TEST = 3  # photos per class that remain for testing, where one small domain is both source and target


@dataclasses.dataclass(frozen=True)
class Split:
    """Names of the training and test photos of one split."""

    train: list[str]
    test: list[str]


def make_split(dataset: Dataset, setting: Setting, pair: str | None, index: int) -> Split:
    """Make split number `index` (from 0); it depends only on the setting and the names of the photos."""
    if setting.draw == "lists":
        if index >= len(dataset.lists):
            raise PatchvoteError(
                f"split {index + 1} of the setting {setting.name} needs a published list, and this image set "
                f"has {len(dataset.lists)}. Use --splits {len(dataset.lists)}."
            )
        return Split(*dataset.lists[index])
    if setting.draw == "domains":
        return _across_domains(dataset, setting, pair or "", index)
    names = _by_class(dataset.photos)
    rng = np.random.default_rng(setting.seed + index)
    train: list[str] = []
    test: list[str] = []
    for label, class_names in names.items():
        if len(class_names) < setting.train + max(1, setting.test):
            raise PatchvoteError(
                f"the class {label} has {len(class_names)} photos, and a split takes {setting.train} to train and "
                f"{setting.test or 'at least 1'} to test. Is the image set complete?"
            )
        shuffled = [class_names[k] for k in rng.permutation(len(class_names))]
        train += shuffled[: setting.train]
        test += shuffled[setting.train : setting.train + setting.test] if setting.test else shuffled[setting.train :]
    return Split(train, test)


def _across_domains(dataset: Dataset, setting: Setting, pair: str, index: int) -> Split:
    source, _, target = pair.partition("-")
    domains = _domains(dataset)
    for domain in (source, target):
        if domain not in domains:
            raise PatchvoteError(f"{pair!r} is not a pair of domains. Domains: {', '.join(domains)}.")
    count = setting.fewer.get(target, setting.train)
    # Each domain is shuffled independently: all pairs with the same source share its training photos, and the labelled
    # photos of a target are the same for every source.
    shuffled = {}
    for number, domain in enumerate(sorted(domains)):
        rng = np.random.default_rng([setting.seed + index, number])
        shuffled[domain] = {
            label: [names[k] for k in rng.permutation(len(names))] for label, names in domains[domain].items()
        }
    train = []
    for names in shuffled[source].values():
        train += names[: max(0, min(count, len(names) - _MIN_TEST))] if source == target else names[:count]
    # Labelled photos are taken from the end of the order, photos of the source from its beginning.
    labelled = [name for names in shuffled[target].values() for name in names[max(0, len(names) - setting.labelled) :]]
    taken = {*train, *labelled}
    test = [name for names in domains[target].values() for name in names if name not in taken]
    for label in domains[source]:
        for domain, use, chosen in ((source, "train on", train), (target, "test on", test)):
            if not any(name.startswith(f"{domain}/{label}/") for name in chosen):
                raise PatchvoteError(
                    f"the class {label} has {len(domains[domain].get(label, ()))} photos in {domain}, which leaves "
                    f"none to {use}. Is the image set complete?"
                )
    return Split(train + labelled, test)


def _domains(dataset: Dataset) -> dict[str, dict[str, list[str]]]:
    photos = collections.defaultdict(list)
    for photo in dataset.photos:
        photos[photo.name.partition("/")[0]].append(photo)
    return {domain: _by_class(domain_photos) for domain, domain_photos in photos.items()}


def _by_class(photos: Sequence[Photo]) -> dict[str, list[str]]:
    names = collections.defaultdict(list)
    for photo in photos:
        names[photo.label or ""].append(photo.name)
    return {label: sorted(names[label]) for label in sorted(names)}


def straddling(split: Split, digests: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the test photos that have a byte-identical copy among the training photos, each with that copy."""
    trained = {digests[name]: name for name in split.train}
    return [(name, trained[digests[name]]) for name in split.test if digests[name] in trained]
