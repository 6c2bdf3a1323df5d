"""Bytes per photo of small stores, against the accuracy of every voter that learns from them.

Training photos are extracted once. Their bags are written as stores that keep all descriptors, some of them, codes of 8
bits, moments or means, and every voter learns from every store that it can read. Test photos are described by all of
their descriptors, as `predict` does; those that NBNN and Local NBNN are asked about are fewer and have fewer
descriptors, since these two search slowly. Trainings of NBNL have a limit of time. Photos come from a folder of class
folders; without one, from scikit-image, cut as in `patchvote demo`.

    python benchmarks/small_stores.py --quick --json small-stores.json
    python benchmarks/small_stores.py --photos scene15 --train 50 --test 50 --json small-stores.json
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import Record, options, record, write
from patchvote import Bags, Extractor, Photo, Store, fill, find_photos
from patchvote.bags.keep import ALL, Keep, Mean, Some
from patchvote.bags.shard_writer import ShardWriter
from patchvote.bags.shard_writing import cast
from patchvote.cli.demo import make_photos
from patchvote.utils.budget import cut_short, fit_until
from patchvote.voters.moment_keep import MomentCondenser
from patchvote.voters.registry import voter_class

VOTERS = ("nbnn", "local-nbnn", "nbnl", "snbnl", "bag-svm", "moment-svm")
SEARCHING = ("nbnn", "local-nbnn")
ONLY = {"moments, float16": ("moment-svm",), "mean, float32": ("bag-svm",), "mean, float16": ("bag-svm",)}


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured.

    Parameters
    ----------
    train, test : int
        Photos per class.
    asked, parts : int
        Test photos per class that voters that search are asked about, and descriptors of each of these.
    budget : float
        Seconds after which a training of NBNL ends.
    """

    train: int
    test: int
    asked: int = 10
    parts: int = 32
    budget: float = 40.0


QUICK = Plan(4, 4, asked=2, parts=8, budget=2.0)


def built_in(folder: Path, plan: Plan) -> tuple[list[Photo], list[Photo]]:
    """Return training and test crops of photos that scikit-image ships."""
    train, test, _ = make_photos(folder)
    return _of_each_class(find_photos(train), 0, plan.train), _of_each_class(find_photos(test), 0, plan.test)


def divided(folder: Path, plan: Plan) -> tuple[list[Photo], list[Photo]]:
    """Draw training and test photos of each class at random."""
    photos = find_photos(folder)
    mixed = [photos[number] for number in np.random.default_rng(0).permutation(len(photos))]
    return _of_each_class(mixed, 0, plan.train), _of_each_class(mixed, plan.train, plan.train + plan.test)


def _of_each_class(photos: list[Photo], first: int, last: int) -> list[Photo]:
    labels = sorted({str(photo.label) for photo in photos})
    return [one for label in labels for one in [photo for photo in photos if photo.label == label][first:last]]


def written(store: Store, folder: Path, keep: Keep, dtype: str) -> Store:
    """Write what a small store keeps of whole bags."""
    folder.mkdir()
    writer = ShardWriter(folder, store.recipe, store.fingerprint, store.dim, dtype, keep=keep)
    for entry, (_, bag, _) in zip(store.entries, store.images(store.dtype), strict=True):
        kept = keep.of(bag, entry.digest)
        count = len(bag.values) if len(kept.values) < len(bag.values) else 0
        writer.add(dataclasses.replace(entry, descriptors=count), cast(entry.name, kept, dtype))
    writer.close()
    return Store.open(folder)


def forms(store: Store, folder: Path) -> dict[str, Store]:
    """Return stores of the same photos in all forms, the largest first."""
    ways: list[tuple[str, Keep, str]] = [("all", ALL, "uint8")]
    ways += [(str(count), Some(count), "float16") for count in (64, 32, 16)]
    ways += [("32", Some(32), "uint8"), ("moments", MomentCondenser().find(store), "float16")]
    ways += [("mean", Mean(), "float32"), ("mean", Mean(), "float16")]
    named = {f"{name}, {dtype}": written(store, folder / f"{name} {dtype}", keep, dtype) for name, keep, dtype in ways}
    return {"all, float16": store, **named}


def some_of_each_class(bags: Bags, labels: np.ndarray, plan: Plan) -> tuple[Bags, np.ndarray]:
    """Return a few photos of each class, with some of their descriptors."""
    rows = np.concatenate([np.flatnonzero(labels == label)[: plan.asked] for label in np.unique(labels)])
    return Bags.join([Some(plan.parts).of(bags[int(row)], str(row)) for row in rows]), labels[rows]


def measure(store: Store, test: Store, folder: Path, plan: Plan) -> list[Record]:
    """Let every voter learn from every form of a store, and ask it about the test photos."""
    asked, expected = test.load(dtype=test.dtype)
    few, few_expected = some_of_each_class(asked, expected, plan)
    records = []
    for form, one in forms(store, folder).items():
        summary = one.summary()
        records.append(record(f"{form}: bytes per photo", summary["bytes"] / summary["photos"], "bytes"))
        for kind in ONLY.get(form, VOTERS):
            start = time.perf_counter()
            until = start + plan.budget if kind == "nbnl" else np.inf
            voter: Any = fit_until(voter_class(kind)(calibration=0), until, one)
            seconds = time.perf_counter() - start
            accuracy = voter.score(*((few, few_expected) if kind in SEARCHING else (asked, expected)))
            note = " (cut short)" if cut_short(voter) else ""
            records.append(record(f"{form}, {kind}{note}: accuracy", 100 * accuracy, "%"))
            records.append(record(f"{form}, {kind}: seconds of training", seconds, "s"))
    return records


def table(records: list[Record]) -> str:
    """Return the bytes and accuracies as a table in Markdown."""
    values = {str(one["name"]): float(str(one["value"])) for one in records}
    lines = ["| kept of each photo | kB | " + " | ".join(VOTERS) + " |", "|---" * (2 + len(VOTERS)) + "|"]
    for form in [name.partition(":")[0] for name in values if name.endswith(": bytes per photo")]:
        cells = []
        for kind in VOTERS:
            names = (f"{form}, {kind}: accuracy", f"{form}, {kind} (cut short): accuracy")
            found = [values[name] for name in names if name in values]
            cells.append(f"{found[0]:.1f}" if found else "")
        size = values[f"{form}: bytes per photo"] / 1e3
        lines.append(f"| {form} | {size:.1f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, help="folder of class folders; photos of scikit-image by default")
    parser.add_argument("--train", type=int, default=50, help="training photos per class")
    parser.add_argument("--test", type=int, default=50, help="test photos per class")
    parser.add_argument("--jobs", type=int, help="threads of the network; one per core by default")
    args = parser.parse_args()
    plan = QUICK if args.quick else Plan(args.train, args.test)
    extractor = Extractor(jobs=args.jobs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = built_in(folder / "photos", plan) if args.photos is None else divided(args.photos, plan)
        for kind, photos in zip(("train", "test"), parts, strict=True):
            fill(folder / kind, photos, extractor)
        records = measure(Store.open(folder / "train"), Store.open(folder / "test"), folder, plan)
    print(f"\n{table(records)}")
    write(records, args.json)


if __name__ == "__main__":
    main()
