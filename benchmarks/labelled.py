"""Labelled photos for the benchmarks of `patchvote check` and `suggest`: from stores, photos, or synthetic ones.

In a store, a photo whose name begins with its class (`coast/1.jpg`) belongs to Scene-15, any other (`amazon/mug/1.jpg`)
to the set that its name begins with. Only the moments of bags are used.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from common import options, synthetic_bags
from patchvote import Extractor, Recipe, Store, find_photos
from patchvote.bags.copies import copy_groups
from patchvote.bags.moments import KeptMoments, MomentBags, photo_vectors
from patchvote.networks.bases import basis_of, random_basis

OFFICE = ("amazon", "caltech", "dslr", "webcam")


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """Photos of one set: moments of their bags, class numbers, and groups of copies."""

    bags: MomentBags
    numbers: np.ndarray
    groups: np.ndarray
    classes: int

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def vectors(self) -> np.ndarray:
        """Vectors of the bags, of length 1."""
        return photo_vectors(self.bags)

    @classmethod
    def of(cls, bags: MomentBags, labels: Iterable[str], digests: Sequence[str] | None = None) -> Labelled:
        """Return photos with numbered classes and groups of copies."""
        classes, numbers = np.unique(np.array(list(labels), str), return_inverse=True)
        return cls(bags, numbers, copy_groups(bags, digests), len(classes))


def labelled_options(description: str | None, draws: int) -> argparse.ArgumentParser:
    """Return a parser with the options that name the photos, beside those of every benchmark."""
    parser = options(description)
    parser.add_argument("--bags", type=Path, action="append", metavar="DIR", help="store of bags; may be repeated")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of class folders")
    parser.add_argument("--draws", type=int, default=draws)
    return parser


def read_sets(bags: Sequence[Path] | None, photos: Path | None) -> dict[str, Labelled]:
    """Return the sets in the stores or in the folder of photos; a synthetic one where neither is given."""
    if bags:
        return _from_stores(bags)
    if photos is not None:
        extractor = Extractor(Recipe())
        kept = KeptMoments(basis_of(extractor.backbone.spec))
        items = [(kept.of(one.bag), str(one.photo.label)) for one in extractor.stream(find_photos(photos)) if one.bag]
        return {"photos": Labelled.of(MomentBags.joined([bag for bag, _ in items]), [label for _, label in items])}
    made, labels = synthetic_bags(5, 40, 12, 96)
    return {"synthetic": Labelled.of(KeptMoments(random_basis(96)).of(made), labels)}


def _from_stores(paths: Sequence[Path]) -> dict[str, Labelled]:
    rows: dict[str, list[tuple[MomentBags, str, str]]] = {}
    for path in paths:
        store = Store.open(path)
        kept = KeptMoments(basis_of(Extractor(store.recipe).backbone.spec))
        moments = MomentBags.joined([kept.of(bags) for bags, _ in store.blocks(20_000)])
        for number, entry in enumerate(store.entries):
            first, label = entry.name.split("/")[0], str(entry.label)
            name = "scene15" if first == label else first
            rows.setdefault(name, []).append((moments.rows([number]), label, entry.digest))
    if (domains := [name for name in OFFICE if name in rows]) and len(domains) > 1:
        rows["office"] = [row for name in domains for row in rows[name]]
    sets = {}
    for name, found in sorted(rows.items()):
        bags, labels, digests = zip(*found, strict=True)
        sets[name] = Labelled.of(MomentBags.joined(bags), labels, digests)
        print(f"{name}: {len(found):,} photos of {sets[name].classes} classes", flush=True)
    return sets
