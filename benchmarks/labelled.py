"""Labelled photos for the benchmarks of `patchvote check` and `suggest`: from stores, photos, or synthetic ones.

In a store, a photo whose name begins with its class (`coast/1.jpg`) belongs to Scene-15, any other (`amazon/mug/1.jpg`)
to the set that its name begins with. Only the moments of bags are used.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common import synthetic_bags
from experiments.made_with import here
from patchvote import Extractor, Recipe, Store, find_photos
from patchvote.bags.copies import copy_groups
from patchvote.bags.moments import KeptMoments, MomentBags, photo_vectors
from patchvote.networks.bases import basis_of, random_basis

OFFICE = ("amazon", "caltech", "dslr", "webcam")
TITLES = {"scene15": "Scene-15", "office": "Office, all domains", "synthetic": "synthetic", "photos": "photos"}


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
        return cls(bags, numbers, copy_groups(photo_vectors(bags), digests), len(classes))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the photos and the results."""
    parser.add_argument("--bags", type=Path, action="append", metavar="DIR", help="store of bags; may be repeated")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of class folders")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write one line per trial to FILE")
    parser.add_argument("--page", type=Path, metavar="FILE", help="renew the table of this page from --results alone")


def read_sets(bags: Sequence[Path] | None, photos: Path | None) -> dict[str, Labelled]:
    """Return the sets in the stores or in the folder of photos; a synthetic one where neither is given."""
    if bags:
        return _from_stores(bags)
    if photos is not None:
        extractor = Extractor(Recipe())
        kept = KeptMoments(basis_of(extractor.backbone.spec))
        items = [item for item in extractor.stream(find_photos(photos)) if item.bag is not None]
        bags = MomentBags.joined([kept.of(item.bag) for item in items if item.bag is not None])
        return {"photos": Labelled.of(bags, [str(item.photo.label) for item in items])}
    made, labels = synthetic_bags(5, 40, 12, 96)
    return {"synthetic": Labelled.of(KeptMoments(random_basis(96)).of(made), labels)}


def moments_of(store: Store) -> MomentBags:
    """Return the moments of the bags of a store, in its order."""
    kept = KeptMoments(basis_of(Extractor(store.recipe).backbone.spec))
    return MomentBags.joined([kept.of(bags) for bags, _ in store.blocks(20_000)])


def _from_stores(paths: Sequence[Path]) -> dict[str, Labelled]:
    rows: dict[str, list[tuple[MomentBags, str, str]]] = {}
    for path in paths:
        store = Store.open(path)
        moments = moments_of(store)
        for number, entry in enumerate(store.entries):
            first, label = entry.name.split("/")[0], str(entry.label)
            rows.setdefault("scene15" if first == label else first, []).append(
                (moments.rows([number]), label, entry.digest)
            )
    if (domains := [name for name in OFFICE if name in rows]) and len(domains) > 1:
        rows["office"] = [row for name in domains for row in rows[name]]
    sets = {}
    for name, found in sorted(rows.items()):
        bags, labels, digests = zip(*found, strict=True)
        sets[name] = Labelled.of(MomentBags.joined(bags), labels, digests)
        print(f"{name}: {len(found):,} photos of {sets[name].classes} classes", flush=True)
    return sets


def title(name: str) -> str:
    """Return the name of a set for people."""
    return TITLES.get(name, name.capitalize())


def write_trials(path: Path, trials: Iterable[dict[str, Any]], settings: dict[str, Any]) -> None:
    """Write what was measured: settings, versions, machine and commit first, then one line per trial."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"settings": settings, **here()}, *trials]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def read_trials(path: Path) -> list[dict[str, Any]]:
    """Return the trials of a file of results, without its first line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def renew(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- end of name -->` on a page."""
    text = page.read_text(encoding="utf-8")
    block = f"<!-- {name} -->\n\n" + "\n".join(lines) + f"\n\n<!-- end of {name} -->"
    found, count = re.subn(rf"<!-- {name} -->.*?<!-- end of {name} -->", lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page} must have one place for {name}, it has {count}.")
    page.write_text(found, encoding="utf-8")


def table(header: str, rows: Iterable[Iterable[object]]) -> list[str]:
    """Return the lines of a Markdown table; columns of the header are separated by commas."""
    columns = [column.strip() for column in header.split(",")]
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def mean(values: Iterable[float]) -> float:
    """Return the mean of numbers."""
    return float(np.mean(list(values)))
