"""Draw the figures of docs/method.md from real votes: `python tools/method_figures.py docs/method`.

- `votes.png`: a photo, the votes of its cells for three classes, and their means, by a model of the demonstration.
- `voters.png`: how three voters vote in a plane, after learning from the same made-up descriptors of two features.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from patchvote import NBNN, SNBNL, Bags, ImageClassifier, MomentRidge, Voter
from patchvote.cli.demo import make_photos

SHOWN = ("coins", "gravel", "brick")
FOR, AGAINST = "#e66101", "#5e3c99"


def draw_votes(folder: Path, path: Path) -> None:
    """Draw a photo with its cells, the votes of the cells at 224 pixels, and the mean votes of all cells."""
    train, test, _ = make_photos(folder)
    photo = test / "coins" / "05.png"
    evidence = ImageClassifier(cache=False).fit(train).explain(photo)
    coarse = np.isclose(evidence.boxes[:, 2] - evidence.boxes[:, 0], 1 / 7, atol=0.01)
    votes = evidence.votes[coarse]  # row by row: 7 x 7 cells
    figure, axes = plt.subplots(1, 5, figsize=(11, 2.7), layout="constrained", width_ratios=(1, 1, 1, 1, 1.1))
    image = Image.open(photo)
    axes[0].imshow(image)
    for line in np.arange(1, 7) / 7:
        axes[0].axvline(line * image.width, color="orange", linewidth=0.8)
        axes[0].axhline(line * image.height, color="orange", linewidth=0.8)
    axes[0].set_title("a photo and its cells")
    limit = np.abs(votes[:, [evidence.number(label) for label in SHOWN]]).max()
    for panel, label in zip(axes[1:4], SHOWN, strict=True):
        cells = votes[:, evidence.number(label)].reshape(7, 7)
        panel.imshow(cells, cmap="PuOr_r", vmin=-limit, vmax=limit)
        for row, column in np.ndindex(7, 7):
            strong = abs(cells[row, column]) > 0.6 * limit
            words = f"{cells[row, column]:.1f}".replace("-0.0", "0.0")
            panel.text(column, row, words, ha="center", va="center", size=5.5, color="white" if strong else "black")
        panel.set_title(f"votes for {label}")
    for panel in axes[:4]:
        panel.set_xticks([])
        panel.set_yticks([])
    order = np.argsort(evidence.decision)
    scores = evidence.decision[order]
    axes[4].barh(range(len(scores)), scores, color=[FOR if score > 0 else AGAINST for score in scores])
    axes[4].set_yticks(range(len(scores)), [evidence.classes[number] for number in order])
    axes[4].axvline(0, color="black", linewidth=0.8)
    axes[4].set_title("mean votes: the scores")
    save(figure, path)


def descriptors() -> tuple[list[Any], list[str]]:
    """Return twelve bags of two classes, with made-up descriptors of two features, positive as after a ReLU."""
    rng = np.random.default_rng(3)
    centres = {"sea": [(0.9, 0.55), (0.35, 0.2)], "land": [(0.3, 0.85), (0.75, 0.15)]}
    bags, labels = [], []
    for label, around in centres.items():
        for _ in range(6):
            places = np.array(around)[rng.integers(2, size=6)]
            bags.append(np.abs(places + rng.normal(scale=0.08, size=(6, 2))))
            labels.append(label)
    return bags, labels


def draw_voters(path: Path) -> None:
    """Draw the vote for one class less that for the other, in the plane of the two features, for three voters."""
    bags, labels = descriptors()
    voters: dict[str, Voter] = {
        "NBNN: the nearest descriptor of each class": NBNN(normalise=False),
        "SNBNL: two prototypes per class": SNBNL(n_prototypes=2, position_weight=0, max_iter=200),
        "MomentRidge: features and products": MomentRidge(layout=0),
    }
    axis = np.linspace(0, 1.15, 160)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained", sharey=True)
    for panel, (title, voter) in zip(axes, voters.items(), strict=True):
        voter.fit(bags, labels)
        land, sea = voter.votes(Bags.of([grid])).T
        lead = (sea - land).reshape(160, 160)
        limit = np.percentile(np.abs(lead), 98)
        panel.imshow(lead, origin="lower", extent=(0, 1.15, 0, 1.15), cmap="PuOr_r", vmin=-limit, vmax=limit, alpha=0.8)
        panel.contour(axis, axis, lead, levels=[0], colors="black", linewidths=1)
        for label, marker, colour in (("sea", "o", FOR), ("land", "s", AGAINST)):
            own = np.concatenate([bag for bag, its in zip(bags, labels, strict=True) if its == label])
            panel.scatter(*own.T, s=14, marker=marker, color=colour, edgecolor="white", linewidth=0.4, label=label)
        panel.set_title(title, size=10)
        panel.set_xlabel("feature 1")
        panel.set(xlim=(0, 1.15), ylim=(0, 1.15))
    axes[0].set_ylabel("feature 2")
    axes[0].legend(loc="upper right", title="descriptors of")
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a small file."""
    with io.BytesIO() as data:
        figure.savefig(data, dpi=100)
        Image.open(data).convert("RGB").quantize(128).save(path, optimize=True)


def main() -> None:
    """Draw both figures into the folder that is named."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        draw_votes(Path(folder), target / "votes.png")
    draw_voters(target / "voters.png")


if __name__ == "__main__":
    main()
