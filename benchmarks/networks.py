"""Networks: what each brings in accuracy, and what it costs per photo.

EfficientNet-Lite0 and Lite2 and a ViT-Tiny (tokens of the last block, of block 9, the class token, and two of them),
one and two networks side by side, on Scene-15 and on pairs of Office+Caltech-10, for the default voter, `bag-svm` and
the pooled image at equal resolution; on the pairs also adapted to the test photos without their labels. The cost is the
processor time of one thread per photo, for both scales. Every finished cell is a record, and a run that was interrupted
continues where it ended. With `--quick`, or without the image sets, a folder of class folders (`--photos`) or photos of
scikit-image are used. All cells of two splits take about 17 GB of bags in the folder of `--stores`.

    python benchmarks/networks.py --quick --json networks.json
    python benchmarks/networks.py --results results/networks --stores DIR
    python benchmarks/networks.py --results results/networks --page docs/networks.md
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common import DATA, SHARED, Record, options, record, write
from experiments.datasets import Dataset, read_dataset
from experiments.made_with import commit, machine
from experiments.protocol import Protocol, Setting
from experiments.splits import Split, make_split
from experiments.voters import make_voter
from labelled import renew
from networks_bags import NETWORKS, Stores, name_of, needs_transformer
from networks_table import COST, METHODS, NAME, key_of, lines_of, read_records, write_records
from patchvote import Extractor, Photo, Recipe, find_photos
from patchvote.cli.demo import make_photos
from patchvote.photos.decode import load_image

SETS = {"scene15": ("scene15", "scene15"), "office": ("office-caltech", "office_caltech")}  # protocol, folder
QUICK = ("lite0", "vit-last", "lite0+vit")


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """One split of an image set: which photos to learn from, and which to ask about."""

    set_name: str
    pair: str | None
    number: int
    split: Split

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return what identifies the task in records."""
        return {
            "set": self.set_name,
            "pair": self.pair,
            "split": self.number,
            "train": args.train,
            "test": args.test,
        }

    @property
    def methods(self) -> list[str]:
        """Names of the methods that are compared on it."""
        return [name for name in METHODS if self.set_name != "scene15" or not name.startswith("adapted")]


def tasks_of(set_name: str, dataset: Dataset, settings: Setting, args: argparse.Namespace) -> list[Task]:
    """Return the splits of an image set."""
    if settings.draw == "random" and args.train:
        settings = dataclasses.replace(settings, train=args.train, test=args.test or settings.test)
    elif args.train:
        settings = dataclasses.replace(settings, train=args.train, fewer={})
    labels = {photo.name: str(photo.label) for photo in dataset.photos}
    pairs = [pair for pair in (settings.main or [None]) if pair is None or not args.pairs or pair in args.pairs]
    tasks = []
    for pair in pairs:
        for index in range(args.splits):
            split = make_split(dataset, settings, pair, index)
            if settings.draw == "domains" and args.test:
                split = Split(split.train, _of_each_class(split.test, labels, args.test))
            tasks.append(Task(set_name, pair, index + 1, split))
    return tasks


def _of_each_class(names: list[str], labels: dict[str, str], count: int) -> list[str]:
    taken: dict[str, int] = {}
    chosen = []
    for name in names:
        taken[labels[name]] = taken.get(labels[name], 0) + 1
        if taken[labels[name]] <= count:
            chosen.append(name)
    return chosen


def image_sets(args: argparse.Namespace, folder: Path) -> Iterator[tuple[Dataset, list[Task]]]:
    """Yield the image sets that were asked for, with their tasks."""
    if args.photos is not None or args.quick or not args.data.is_dir():
        photos = find_photos(args.photos or make_photos(folder / "photos")[0])
        fewest = min(np.unique([str(photo.label) for photo in photos], return_counts=True)[1])
        setting = Setting("random", "random", 1, train=int(fewest) // 2, test=int(fewest) // 2)
        dataset = Dataset(photos)
        yield dataset, [Task("photos", None, 1, make_split(dataset, setting, None, 0))]
        return
    for set_name in args.sets:
        protocol, place = SETS[set_name]
        dataset = read_dataset(protocol, args.data / place)
        yield dataset, tasks_of(set_name, dataset, Protocol.load(protocol).settings[0], args)


def run_task(
    task: Task, network: str, methods: list[str], stores: Stores, labels: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Train and test some methods on one split; yield a record of each as soon as it is finished."""
    train, test = task.split.train, task.split.test
    bags, expected = stores.bags(network, train), np.array([labels[name] for name in test])
    asked = stores.bags(network, test)  # once for all methods: reading takes longer than most of them
    for method in methods:
        voter, known = make_voter(method), np.array([labels[name] for name in train])
        began = time.process_time()
        if method.startswith("adapted"):
            voter.fit(bags, known, [asked], [None] * len(test))
        else:
            voter.fit(bags, known)
        seconds = time.process_time() - began
        yield {
            "network": network,
            "method": method,
            "accuracy": round(float(np.mean(voter.predict(asked) == expected)), 5),
            "train_photos": len(train),
            "test_photos": len(test),
            "cpu_seconds": round(seconds, 2),
        }


def cost_of(network: str, photos: list[Photo], transformer: Path, folder: Path) -> dict[str, Any]:
    """Measure the processor time of a network per decoded photo: resized, and seen at both scales, by one thread."""
    extractor = Extractor(Recipe(name_of(network, transformer, folder)), jobs=1)
    images = [np.asarray(load_image(photo).convert("RGB")) for photo in photos]
    bag = extractor(images[0])  # the first call prepares the network
    times = []
    for image in images:
        began = time.process_time()
        extractor(image)
        times.append(time.process_time() - began)
    return {
        "network": network,
        "method": COST,
        "cpu_seconds": round(float(np.median(times)), 5),
        "photos": len(images),
        "features": bag.dim,
        "descriptors": len(bag.values),
        "machine": machine(),
    }


def run(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Compute the cells that have no record yet; return all records."""
    records = read_records(args.results) if args.results else []
    done = {key_of(one) for one in records}
    networks = [one for one in args.networks if args.transformer.is_file() or not needs_transformer(one)]
    if left_out := [one for one in args.networks if one not in networks]:
        print(f"left out, since there is no {args.transformer.name}: {', '.join(left_out)}", flush=True)

    def keep(found: dict[str, Any]) -> None:
        records.append(found | {"commit": commit()})
        print(records[-1], flush=True)
        if args.results:
            write_records(args.results, records)

    for dataset, tasks in image_sets(args, folder):
        labels = {photo.name: str(photo.label) for photo in dataset.photos}
        used = {name for task in tasks for name in (*task.split.train, *task.split.test)}
        photos = [photo for photo in dataset.photos if photo.name in used]
        stores = Stores((args.stores or folder) / tasks[0].set_name, args.transformer, photos, args.jobs)
        for network in networks:
            cost = {"network": network, "method": COST}
            if not args.no_cost and key_of(cost) not in done:
                some = [photos[row] for row in np.linspace(0, len(photos) - 1, args.timed).astype(int)]
                keep(cost_of(network, some, args.transformer, folder / "graphs"))
                done.add(key_of(cost))
            for task in tasks:
                fields = task.fields(args)
                names = {"network": network}
                missing = [one for one in task.methods if key_of(fields | names | {"method": one}) not in done]
                for found in run_task(task, network, missing, stores, labels) if missing else ():
                    keep(fields | found)
    return records


def figures(records: list[dict[str, Any]]) -> list[Record]:
    """Return the records of a run as figures."""
    found = []
    for one in records:
        if one["method"] == COST:
            found.append(record(f"{one['network']}: processor time per photo", 1000 * one["cpu_seconds"], "ms"))
        else:
            place = ", ".join(str(part) for part in (one["set"], one["pair"], f"split {one['split']}") if part)
            found.append(record(f"{one['network']}, {one['method']}, {place}", 100 * one["accuracy"], "%"))
    return found


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with office_caltech/ and scene15/")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of class folders, instead of the image sets")
    parser.add_argument(
        "--transformer",
        type=Path,
        default=SHARED / "weights" / "vit_tiny_patch16_224.onnx",
        metavar="FILE",
        help="ONNX file of ViT-Tiny with the outputs tokens, tokens_block9 and cls; left out if it is not there",
    )
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="image sets")
    parser.add_argument("--pairs", nargs="+", metavar="PAIR", help="pairs of domains; those of the paper by default")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), metavar="NAME", help=", ".join(NETWORKS))
    parser.add_argument("--splits", type=int, default=2, help="splits per image set or pair")
    parser.add_argument("--train", type=int, help="training photos per class; those of the protocol by default")
    parser.add_argument("--test", type=int, help="test photos per class; those of the protocol by default")
    parser.add_argument("--timed", type=int, default=20, help="photos on which the cost is measured")
    parser.add_argument("--no-cost", action="store_true", help="measure no cost: the machine is busy")
    parser.add_argument("--jobs", type=int, help="threads of the extraction; one per core by default")
    parser.add_argument("--stores", type=Path, metavar="DIR", help="keep the bags in DIR, for the next run")
    parser.add_argument("--results", type=Path, metavar="DIR", help="keep a record per cell in a file in DIR")
    parser.add_argument("--page", type=Path, metavar="FILE", help="renew the table of this page, and run nothing")
    args = parser.parse_args()
    if args.page is not None:
        renew(args.page, NAME, lines_of(read_records(args.results)))
        return
    args.networks = args.networks or list(QUICK if args.quick else NETWORKS)
    args.timed = 3 if args.quick else args.timed
    with tempfile.TemporaryDirectory() as folder:
        records = run(args, Path(folder))
    print("\n".join(lines_of(records)))
    write(figures(records), args.json)


if __name__ == "__main__":
    main()
