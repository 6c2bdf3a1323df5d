"""The gain by fine-tuning with votes: the last stage of Lite0 on one split of Scene-15.

Four methods, with the same photos, variants, passes and learning rates: a vote head on the frozen network; the last
stage and a vote head; the last stage and the usual head, average pooling and a linear layer; the last stage and two
stacked layers of votes. The trunk sees the photos once per seed. Prints the accuracy on test photos for every seed, and
plots the accuracy on held-out photos by pass. The records hold both, and the page is made from them.

    python benchmarks/fine_tune.py --data scene15/ --json tune.json
    python benchmarks/fine_tune.py --json tune.json --page docs/fine-tuning.md --plot docs/results/fine-tuning
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from common import DATA, Record, options, record, write
from experiments.datasets import read_dataset
from experiments.protocol import Protocol
from experiments.splits import make_split
from labelled import renew, table
from patchvote import Dense, Extractor, Photo, Recipe, find_photos
from patchvote.nn import ML3Conv2d, Tuned, TuningSettings, fine_tune
from patchvote.nn.trunk import Seen
from search import split


class Stacked(nn.Module):
    """Two layers of votes: the first votes for 64 hidden classes, the second for the classes."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = ML3Conv2d(features, 64, 2), ML3Conv2d(64, classes, 4, start_scale=0.1)
        self.norm = nn.BatchNorm2d(features, affine=False)
        self.middle = nn.BatchNorm2d(64, affine=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean vote of each image."""
        return self.second(self.middle(self.first(self.norm(x)))).mean(dim=(2, 3))


def pooled(features: int, classes: int) -> nn.Module:
    """Return the usual head, with features standardised as for the votes."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(features, affine=False), nn.Linear(features, classes)
    )


NAME = "fine-tuning"  # of the table on the page
WAYS = {
    "frozen, votes": (None, {"rate": 0.0}),
    "tuned, votes": (None, {}),
    "tuned, average pooling + linear": (pooled, {}),
    "tuned, two stacked layers of votes": (Stacked, {}),
}


TITLES = {
    "frozen, votes": "votes only, network frozen",
    "tuned, votes": "last stage and votes",
    "tuned, average pooling + linear": "last stage, average pooling and a linear layer",
    "tuned, two stacked layers of votes": "last stage and two stacked layers of votes",
}


@contextlib.contextmanager
def shared_trunk() -> Iterator[None]:
    """Let all trainings in the block share what the trunk computes of the photos: it does not depend on the method."""
    found: list[Seen] = []

    def seen(folder: Path, *others: Any) -> Seen:
        if not found:
            found.append(Seen(Path(shared), *others))
        return found[0]

    module = importlib.import_module("patchvote.nn.fine_tune")  # the package has a function of this name
    with tempfile.TemporaryDirectory() as shared, mock.patch.object(module, "Seen", seen):
        yield


@torch.no_grad()
def accuracy(tuned: Tuned, photos: list[Photo]) -> float:
    """Return the accuracy of the network, in ONNX Runtime, with the head, in percent."""
    with tempfile.TemporaryDirectory() as folder:
        network = tuned.save_network(Path(folder) / "net.onnx")
        extractor = Extractor(Recipe(str(network), Dense((tuned.settings.side,), whole=False)))
        head, hits = tuned.head.eval(), []
        for item in extractor.stream(photos):
            boxes = item.bag.boxes
            rows, columns = (len(np.unique(boxes[:, axis])) for axis in (1, 0))
            x = torch.from_numpy(item.bag.values.reshape(1, rows, columns, -1)).movedim(-1, 1)
            hits.append(tuned.classes[int(head(x).argmax())] == item.photo.label)
    return 100 * float(np.mean(hits))


def draw(curves: dict[str, list[list[float]]], path: Path) -> None:
    """Plot the accuracy on held-out photos by pass: a thin line per seed, a thick one for the mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    panel = figure.subplots()
    passes = max(len(line) for lines in curves.values() for line in lines)
    for number, (way, lines) in enumerate(curves.items()):
        for line in lines:
            panel.plot(range(1, len(line) + 1), line, color=f"C{number}", lw=0.6, alpha=0.35)
        extended = [line + line[-1:] * (passes - len(line)) for line in lines]  # a stopped training keeps its accuracy
        panel.plot(range(1, passes + 1), np.mean(extended, axis=0), color=f"C{number}", lw=2, label=way)
    panel.set_xlabel("pass")
    panel.set_ylabel("accuracy on held-out photos, %")
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.legend(fontsize=7, loc="lower right")
    panel.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".png"), dpi=110)


def split_photos(folder: Path, quick: bool) -> tuple[list[Photo], list[Photo]]:
    """Return training and test photos: a split of Scene-15, or a few photos of any folder in a quick run."""
    if quick:
        photos = find_photos(folder)
        parts = split(np.array([photo.label for photo in photos]), 6, 6)
        train, test = ([photos[index] for index in part] for part in parts)
        return train, test
    dataset = read_dataset("scene15", folder)
    drawn = make_split(dataset, Protocol.load("scene15").settings[0], None, 0)
    by_name = {photo.name: photo for photo in dataset.photos}
    return [by_name[name] for name in drawn.train], [by_name[name] for name in drawn.test]


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=DATA / "scene15", help="folder of Scene-15")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the curves of --json to FILE.png")
    parser.add_argument("--page", type=Path, metavar="FILE", help="renew the table of this page, and run nothing")
    args = parser.parse_args()
    if args.page or args.plot:
        records = json.loads(args.json.read_text(encoding="utf-8"))
        if args.page:
            renew(args.page, NAME, lines_of(records))
        if args.plot:
            draw({way: by_pass(records, way) for way in WAYS}, args.plot)
        return
    train, test = split_photos(args.data, args.quick)
    settings = TuningSettings()
    if args.quick:
        settings = dataclasses.replace(settings, passes=2, variants=1)
    records: list[Record] = []
    for seed in range(1 if args.quick else args.seeds):
        with shared_trunk():
            for way, (head, changed) in WAYS.items():
                way_settings = dataclasses.replace(settings, seed=seed, **changed)
                start = time.perf_counter()
                tuned = fine_tune(
                    "efficientnet-lite0", train, [str(photo.label) for photo in train], settings=way_settings, head=head
                )
                records.append(record(f"{way}, seed {seed}", accuracy(tuned, test), "% of test photos"))
                records += [
                    {"name": f"{way}, seed {seed}, pass {number}", "value": 100 * one_pass["held_out_accuracy"]}
                    | {"unit": "% of held-out photos", "goal": None, "peer": None}
                    for number, one_pass in enumerate(tuned.history, 1)
                ]
                print(f"{time.perf_counter() - start:.0f} s", flush=True)
                write(records, args.json)  # what is finished stays, if the run is ended
    write([*records, *means(records)], args.json)


def means(records: list[Record]) -> list[Record]:
    """Return the mean accuracy of every method over its seeds, and the lead of the votes over others."""
    found = {way: float(np.mean(by_seed(records, way))) for way in WAYS if by_seed(records, way)}
    figures = [record(way, value, "% of test photos") for way, value in found.items()]
    for peer in ("frozen, votes", "tuned, average pooling + linear"):
        if peer in found and "tuned, votes" in found:
            figures.append(record(f"lead over {peer}", found["tuned, votes"] - found[peer], "points", 0.0, peer))
    return figures


def by_seed(records: list[Record], way: str) -> list[float]:
    """Return the accuracies of a method on test photos, by seed."""
    names = [f"{way}, seed {seed}" for seed in range(len(records))]
    values = {str(one["name"]): float(str(one["value"])) for one in records}
    return [values[name] for name in names if name in values]


def by_pass(records: list[Record], way: str) -> list[list[float]]:
    """Return the accuracies of a method on held-out photos: one list per seed, one value per pass."""
    lines = []
    for seed in range(len(by_seed(records, way))):
        start = f"{way}, seed {seed}, pass "
        lines.append([float(str(one["value"])) for one in records if str(one["name"]).startswith(start)])
    return lines


def lines_of(records: list[Record]) -> list[str]:
    """Return the table of the page."""
    rows: list[list[str]] = []
    seeds = max(len(by_seed(records, way)) for way in WAYS)
    for way in sorted(WAYS, key=lambda way: -float(np.mean(by_seed(records, way)))):
        values = by_seed(records, way)
        deviation = f" ± {np.std(values, ddof=1):.2f}" if seeds > 1 else ""
        rows.append([TITLES[way], *(f"{value:.2f}" for value in values), f"{np.mean(values):.2f}{deviation}"])
    return table(",".join(["method", *(f"seed {seed}" for seed in range(seeds)), "mean"]), rows)


if __name__ == "__main__":
    main()
