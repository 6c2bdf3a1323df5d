"""The gain by fine-tuning with votes: the last stage of Lite0 on one split of Scene-15.

Four methods, with the same photos, variants, passes and learning rates: a vote head on the frozen network; the last
stage and a vote head; the last stage and the usual head, average pooling and a linear layer; the last stage and two
stacked layers of votes. The trunk sees the photos once per seed.

    python benchmarks/fine_tune.py --data scene15/ --json tune.json
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from common import DATA, Record, choose_photos, options, record, timed, write
from experiments.datasets import read_dataset
from experiments.protocol import Protocol
from experiments.splits import make_split
from patchvote import Dense, Extractor, Photo, Recipe
from patchvote.nn import ML3Conv2d, Tuned, TuningSettings, fine_tune
from patchvote.nn.trunk import Seen


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


WAYS: dict[str, tuple[Any, dict[str, float]]] = {
    "frozen, votes": (None, {"rate": 0.0}),
    "tuned, votes": (None, {}),
    "tuned, average pooling + linear": (pooled, {}),
    "tuned, two stacked layers of votes": (Stacked, {}),
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


def split_photos(folder: Path, quick: bool) -> tuple[list[Photo], list[Photo]]:
    """Return training and test photos: a split of Scene-15, or a few photos of any folder in a quick run."""
    if quick:
        return choose_photos(folder, 6, 6)
    dataset = read_dataset("scene15", folder)
    drawn = make_split(dataset, Protocol.load("scene15").settings[0], None, 0)
    by_name = {photo.name: photo for photo in dataset.photos}
    return [by_name[name] for name in drawn.train], [by_name[name] for name in drawn.test]


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=DATA / "scene15", help="folder of Scene-15")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    train, test = split_photos(args.data, args.quick)
    labels = [str(photo.label) for photo in train]
    settings = TuningSettings(passes=2, variants=1) if args.quick else TuningSettings()
    records: list[Record] = []
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(1 if args.quick else args.seeds):
        with shared_trunk():
            for way, (head, changed) in WAYS.items():
                own = dataclasses.replace(settings, seed=seed, **changed)
                seconds, tuned = timed(partial(fine_tune, "efficientnet-lite0", train, labels, settings=own, head=head))
                found[way].append(accuracy(tuned, test))
                records.append(record(f"{way}, seed {seed}", found[way][-1], "% of test photos"))
                records.append(record(f"{way}, seed {seed}: training", seconds, "s"))
                write(records, args.json)  # what is finished stays, if the run is ended
    means = {way: float(np.mean(values)) for way, values in found.items()}
    records += [record(way, value, "% of test photos") for way, value in means.items()]
    for peer in ("frozen, votes", "tuned, average pooling + linear"):
        records.append(record(f"lead over {peer}", means["tuned, votes"] - means[peer], "points", 0.0, peer))
    write(records, args.json)


if __name__ == "__main__":
    main()
