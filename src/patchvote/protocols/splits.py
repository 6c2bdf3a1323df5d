"""Which photos are trained on and which are tested."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import PatchvoteError
from ..photos.find import Photo
from .datasets import Dataset
from .protocol import Setting

_LEFT = 3  # photos a class that are left to test on, where a domain is both source and target and has few


@dataclasses.dataclass(frozen=True)
class Split:
    """Names of the photos of one split.

    Parameters
    ----------
    train : list of str
        Trained on.
    test : list of str
        Tested on.
    """

    train: list[str]
    test: list[str]


def make_split(dataset: Dataset, setting: Setting, pair: str | None, index: int) -> Split:
    """Make split number `index` (from 0): the same for everybody who has the same photos.

    Raises
    ------
    PatchvoteError
        A class has too few photos, or the image set has no such list.
    """
    if setting.draw == "lists":
        if index >= len(dataset.lists):
            raise PatchvoteError(
                f"split {index + 1} of the setting {setting.name} needs a published list, and the image set at hand "
                f"has {len(dataset.lists)}. Use --splits {len(dataset.lists)}."
            )
        return Split(*dataset.lists[index])
    if setting.draw == "domains":
        return _across_domains(dataset, setting, pair or "", index)
    names = _by_class(dataset.photos)
    rng = np.random.default_rng(setting.seed + index)
    train: list[str] = []
    test: list[str] = []
    for label, own in names.items():
        if len(own) < setting.train + max(1, setting.test):
            raise PatchvoteError(
                f"the class {label} has {len(own)} photos, and a split takes {setting.train} to train and "
                f"{setting.test or 'at least 1'} to test. Is the image set complete?"
            )
        mixed = [own[k] for k in rng.permutation(len(own))]
        train += mixed[: setting.train]
        test += mixed[setting.train : setting.train + setting.test] if setting.test else mixed[setting.train :]
    return Split(train, test)


def _across_domains(dataset: Dataset, setting: Setting, pair: str, index: int) -> Split:
    source, _, target = pair.partition("-")
    domains = _domains(dataset)
    for domain in (source, target):
        if domain not in domains:
            raise PatchvoteError(f"{pair!r} is not a pair of domains. Domains: {', '.join(domains)}.")
    count = setting.fewer.get(target, setting.train)
    # Drawn for each domain alone, so that all pairs with a source share its training photos, and the three labelled
    # photos of a target are the same whatever the source.
    drawn = {}
    for number, domain in enumerate(sorted(domains)):
        rng = np.random.default_rng([setting.seed + index, number])
        drawn[domain] = {label: [own[k] for k in rng.permutation(len(own))] for label, own in domains[domain].items()}
    train = []
    for own in drawn[source].values():
        train += own[: min(count, len(own) - _LEFT)] if source == target else own[:count]
    # The labelled photos come from the end of the order, the source's from its beginning.
    labelled = [name for own in drawn[target].values() for name in own[len(own) - setting.labelled :]]
    taken = {*train, *labelled}
    test = [name for own in domains[target].values() for name in own if name not in taken]
    for label in domains[source]:
        for domain, use, names in ((source, "train on", train), (target, "test on", test)):
            if not any(name.startswith(f"{domain}/{label}/") for name in names):
                raise PatchvoteError(
                    f"the class {label} has {len(domains[domain].get(label, ()))} photos in {domain}, which leaves "
                    f"none to {use}. Is the image set complete?"
                )
    return Split(train + labelled, test)


def _domains(dataset: Dataset) -> dict[str, dict[str, list[str]]]:
    photos = collections.defaultdict(list)
    for photo in dataset.photos:
        photos[photo.name.partition("/")[0]].append(photo)
    return {domain: _by_class(own) for domain, own in photos.items()}


def _by_class(photos: Sequence[Photo]) -> dict[str, list[str]]:
    names = collections.defaultdict(list)
    for photo in photos:
        names[photo.label or ""].append(photo.name)
    return {label: sorted(names[label]) for label in sorted(names)}


def straddling(split: Split, digests: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the photos that are tested on and have a byte-identical copy among those trained on, with that copy.

    Examples
    --------
    >>> straddling(Split(["a", "b"], ["c", "d"]), {"a": "1", "b": "2", "c": "2", "d": "3"})
    [('c', 'b')]
    """
    trained = {digests[name]: name for name in split.train}
    return [(name, trained[digests[name]]) for name in split.test if digests[name] in trained]
