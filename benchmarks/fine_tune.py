"""The gain by fine-tuning with votes: the last stage of Lite0 on one split of Scene-15.

Four methods, with the same photos, variants, passes and learning rates: a vote head on the frozen network; the last
stage and a vote head; the last stage and the usual head, average pooling and a linear layer; the last stage and two
stacked layers of votes. Prints the accuracy on test photos for every seed, and plots the accuracy on held-out photos by
pass.

    python benchmarks/fine_tune.py --data scene15/ --json tune.json --plot docs/results/fine-tuning
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from common import DATA, options, record, save_plot, write
from patchvote import Dense, Extractor, Photo, Recipe, find_photos
from patchvote.nn import ML3Conv2d, Tuned, TuningSettings, fine_tune
from patchvote.protocols import Protocol
from patchvote.protocols.datasets import read_dataset
from patchvote.protocols.splits import make_split
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


WAYS = {
    "frozen, votes": (None, {"rate": 0.0}),
    "tuned, votes": (None, {}),
    "tuned, average pooling + linear": (pooled, {}),
    "tuned, two stacked layers of votes": (Stacked, {}),
}


@torch.no_grad()
def accuracy(tuned: Tuned, photos: list[Photo]) -> float:
    """Return the accuracy of the network, in ONNX Runtime, with the head, in percent."""
    with tempfile.TemporaryDirectory() as folder:
        network = tuned.save_network(Path(folder) / "net.onnx")
        extractor = Extractor(Recipe(str(network), Dense((tuned.side,), whole=False)))
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
    panel.legend(fontsize=7)
    panel.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_plot(figure, path)


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
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the curves to FILE, as .png and .svg")
    args = parser.parse_args()
    train, test = split_photos(args.data, args.quick)
    settings = TuningSettings()
    if args.quick:
        settings = dataclasses.replace(settings, passes=2, variants=1)
    accuracies: dict[str, list[float]] = {}
    curves: dict[str, list[list[float]]] = {}
    for seed in range(1 if args.quick else args.seeds):
        for way, (head, changed) in WAYS.items():
            way_settings = dataclasses.replace(settings, seed=seed, **changed)
            start = time.perf_counter()
            tuned = fine_tune(
                "efficientnet-lite0", train, [str(photo.label) for photo in train], settings=way_settings, head=head
            )
            accuracies.setdefault(way, []).append(accuracy(tuned, test))
            curves.setdefault(way, []).append([100 * one_pass["held_out_accuracy"] for one_pass in tuned.history])
            seconds = time.perf_counter() - start
            print(f"seed {seed}, {way}: {accuracies[way][-1]:.2f} % of test photos, {seconds:.0f} s", flush=True)
    for way, values in accuracies.items():
        print(f"{way:<36} {np.mean(values):.2f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.2f}")
    if args.plot:
        draw(curves, args.plot)
    ours = float(np.mean(accuracies["tuned, votes"]))
    records = [record(way, float(np.mean(values)), "%") for way, values in accuracies.items()]
    for way, values in accuracies.items():
        records += [record(f"{way}, seed {seed}", value, "%") for seed, value in enumerate(values)]
    for peer in ("frozen, votes", "tuned, average pooling + linear"):
        records.append(record(f"lead over {peer}", ours - float(np.mean(accuracies[peer])), "points", 0.0, peer))
    write(records, args.json)


if __name__ == "__main__":
    main()
