"""Where the evidence maps of the voters point in collages of four photos, beside occlusion, Grad-CAM and random maps.

Of each class of a collage, measured are the share of its evidence that is in its own quarter, and whether the maximum
of the map is there. Chance is 25 %. Occlusion replaces squares by a blurred copy and maps the drop of the log
probability. Grad-CAM is that of a linear head on the mean of the finest map of the same network: the gradient at each
cell is the weights, divided by the number of cells. Photos come from a folder of class folders; without one, from
scikit-image, cut as in `patchvote demo`.

    python benchmarks/evidence.py --quick --json evidence.json
    python benchmarks/evidence.py --photos scene15 --train 50 --json evidence.json
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter, ImageOps
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from calibrated import fit_calibrated
from common import Record, options, record, split, write
from patchvote import Bags, Evidence, Extractor, Photo, Recipe, find_photos
from patchvote.cli.demo import make_photos
from patchvote.photos.decode import load_image
from patchvote.voters.registry import OWN, voter_class

GRID = 14  # cells per side of the finest scale
CHANCE = 0.25
SIDE = 448  # of a collage, in pixels
BLUR = 28  # radius in pixels
# The search and the rounds of the project's own protocols; exact search and 30 rounds take several times as long.
SETTINGS: dict[str, dict[str, Any]] = {
    "nbnl": {"max_iter": 10},
    "nbnn": {"search": "pca"},
    "local-nbnn": {"search": "pca"},
}
MOST = 36_000  # descriptors that a voter learns from, as in `patchvote fit`
GRAD_CAM = "Grad-CAM of a pooled map"
Map = npt.NDArray[np.float64]  # (GRID, GRID): how much each cell supports a class
Maps = Callable[[Bags, Sequence[str]], list[Map]]  # from the bag of a collage and its classes to their maps


# --- measures ---------------------------------------------------------------------------------------------------------


def quarter_mask(quarter: int) -> npt.NDArray[np.bool_]:
    """Return the cells of a quarter of a collage; quarters are numbered from left to right, then down."""
    mask, half = np.zeros((GRID, GRID), bool), GRID // 2
    row, column = divmod(quarter, 2)
    mask[half * row : half * (row + 1), half * column : half * (column + 1)] = True
    return mask


def own_share(values: Map, quarter: int) -> float:
    """Return the share of the positive evidence that is in a quarter; that of chance if there is no such evidence."""
    positive = np.maximum(values, 0)
    total = positive.sum()
    return float(positive[quarter_mask(quarter)].sum() / total) if total > 0 else CHANCE


def points_at(values: Map, quarter: int) -> float:
    """Return whether the maximum of a map is in a quarter; of several maxima, the share that is."""
    largest = values == values.max()
    return float(largest[quarter_mask(quarter)].sum() / largest.sum())


def windows(side: int, stride: int) -> npt.NDArray[np.bool_]:
    """Return the masks of the squares of `side` cells that are occluded one by one, every `stride` cells."""
    starts = [*range(0, GRID - side, stride), GRID - side]
    masks = np.zeros((len(starts) ** 2, GRID, GRID), bool)
    for mask, (top, left) in zip(masks, ((top, left) for top in starts for left in starts), strict=True):
        mask[top : top + side, left : left + side] = True
    return masks


def occlusion_map(drops: npt.NDArray[Any], masks: npt.NDArray[np.bool_]) -> Map:
    """Return the mean drop of the score over the squares that cover each cell."""
    return np.asarray(np.tensordot(drops, masks, 1) / masks.sum(axis=0))


def spread(values: npt.NDArray[Any], boxes: npt.NDArray[Any]) -> Map:
    """Spread a value per part evenly over its box, as `Evidence.map` does with votes."""
    evidence = Evidence("", ("class",), np.asarray(values, np.float64)[:, None], boxes.astype(np.float64), np.ones(1))
    return evidence.map("class", GRID, GRID)


# --- maps -------------------------------------------------------------------------------------------------------------


class Voted:
    """A voter, trained as `patchvote fit` does, with the maps of pictures: votes less the strongest other class."""

    def __init__(self, kind: str, bags: Bags, labels: npt.NDArray[Any]) -> None:
        voter = voter_class(kind).default(0).set_params(**SETTINGS.get(kind, {}))
        self.voter = fit_calibrated(voter, bags if voter.leaves_out else thinned(bags, MOST), np.asarray(labels))
        self.scorer, self.classes = voter.scorer(), list(map(str, voter.classes_))

    def maps(self, bag: Bags, labels: Sequence[str]) -> list[Map]:
        """Return the maps of some classes."""
        votes, found = self.scorer.votes(bag).astype(np.float64), []
        for number in map(self.classes.index, labels):
            others = np.delete(votes, number, axis=1)
            found.append(spread(votes[:, number] - others.max(axis=1), bag.boxes))
        return found

    def occlusion(self, bag: Bags, occluded: Bags, masks: npt.NDArray[np.bool_], labels: Sequence[str]) -> list[Map]:
        """Return the maps of occlusion, from the bags of the collage with each square blurred."""
        before, after = (log_softmax(self.scorer.scores(one) / self.voter.temperature_, 1) for one in (bag, occluded))
        drops = before - after
        return [occlusion_map(drops[:, number], masks) for number in map(self.classes.index, labels)]


def thinned(bags: Bags, most: int) -> Bags:
    """Return a random part of every bag; the first descriptor, which is of the whole photo, stays."""
    rng, parts, each = np.random.default_rng(0), [], max(24, most // len(bags))
    for bag in bags:
        rows = np.append(0, 1 + np.sort(rng.permutation(len(bag.values) - 1)[: each - 1]))
        parts.append(Bags(bag.values[rows], np.array([0, len(rows)]), bag.boxes[rows], bag.level[rows]))
    return Bags.join(parts)


def grad_cam(bags: Bags, labels: npt.NDArray[Any]) -> Maps:
    """Train a linear head on the mean of the finest map, and return the function that gives the maps of Grad-CAM."""
    means = np.stack([finest(bag).values.mean(axis=0, dtype=np.float64) for bag in bags])
    centre, scale = means.mean(axis=0), means.std(axis=0) + 1e-6
    solver = LogisticRegression(C=0.01, max_iter=2000).fit((means - centre) / scale, labels)
    weights = dict(zip(map(str, solver.classes_), solver.coef_ / scale, strict=True))

    def maps(bag: Bags, labels: Sequence[str]) -> list[Map]:
        cells = finest(bag)
        return [spread(np.maximum(cells.values @ weights[label], 0), cells.boxes) for label in labels]

    return maps


def finest(bag: Bags) -> Bags:
    """Return the cells of the finest scale."""
    rows = np.flatnonzero(bag.level == bag.level.max())
    return Bags(bag.values[rows], np.array([0, len(rows)]), bag.boxes[rows], bag.level[rows])


# --- collages ---------------------------------------------------------------------------------------------------------


def collages(test: list[Photo], count: int) -> Iterator[tuple[list[str], npt.NDArray[np.uint8]]]:
    """Yield the four classes of a collage, and its pixels: the middle squares of a random photo of each."""
    rng, half = np.random.default_rng(1), SIDE // 2
    classes = sorted({str(photo.label) for photo in test})
    for _ in range(count):
        chosen = [classes[i] for i in rng.permutation(len(classes))[:4]]
        sheet = Image.new("RGB", (SIDE, SIDE))
        for quarter, label in enumerate(chosen):
            same = [photo for photo in test if photo.label == label]
            image = load_image(same[rng.integers(len(same))])
            square = ImageOps.fit(image, (half, half), Image.Resampling.BICUBIC)
            sheet.paste(square, (half * (quarter % 2), half * (quarter // 2)))
        yield chosen, np.asarray(sheet)


def blurred_squares(pixels: npt.NDArray[np.uint8], masks: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.uint8]]:
    """Return copies of a collage, each with one square blurred."""
    copy = np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(BLUR)))
    cell = SIDE // GRID
    return [np.where(np.kron(mask, np.ones((cell, cell), bool))[..., None], copy, pixels) for mask in masks]


def measured(training: list[Photo], test: list[Photo], quick: bool, count: int, occluded: int) -> list[Record]:
    """Measure all maps on the same collages; a value is the mean over collages and their four classes."""
    extractor, masks = Extractor(Recipe()), windows(6, 4) if quick else windows(4, 2)
    bags, labels = extractor(training), np.array([str(photo.label) for photo in training])
    voters = {kind: Voted(kind, bags, labels) for kind in OWN}
    pooled = grad_cam(bags, labels)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    rng = np.random.default_rng(7)
    for index, (chosen, pixels) in enumerate(collages(test, count)):
        bag = extractor([pixels])
        hidden = extractor(blurred_squares(pixels, masks)) if index < occluded else None
        maps = {(kind, "votes"): voter.maps(bag, chosen) for kind, voter in voters.items()}
        if hidden is not None:
            maps |= {(kind, "occlusion"): one.occlusion(bag, hidden, masks, chosen) for kind, one in voters.items()}
        maps[GRAD_CAM, ""] = pooled(bag, chosen)
        maps["random", ""] = list(rng.random((4, GRID, GRID)))
        for key, four in maps.items():
            values = [(own_share(one, quarter), points_at(one, quarter)) for quarter, one in enumerate(four)]
            found.setdefault(key, []).append(tuple(np.mean(values, axis=0)))
    means = {key: 100 * np.mean(values, axis=0) for key, values in found.items()}
    records = []
    for (name, kind), values in means.items():
        peer = GRAD_CAM if kind else None
        for measure, value, goal in zip(("in its quarter", "points at it"), values, means[GRAD_CAM, ""], strict=True):
            goals = round(float(goal), 1) if kind == "votes" else None
            records.append(record(", ".join(filter(None, (measure, name, kind))), float(value), "%", goals, peer))
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder with one folder per class, at least four")
    parser.add_argument("--train", type=int, default=20, help="training photos per class of --photos")
    parser.add_argument("--collages", type=int, default=100)
    parser.add_argument("--occluded", type=int, default=30, help="collages for which occlusion is computed")
    args = parser.parse_args()
    # Products of a quick run are small: more threads take longer, most of all where others use the cores.
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1 if args.quick else None):
        if args.photos is not None:
            photos = find_photos(args.photos)
            rows = split(np.array([photo.label for photo in photos]), args.train, len(photos))
            training, test = ([photos[row] for row in part] for part in rows)
        else:
            train, asked, _ = make_photos(Path(folder))
            training, test = find_photos(train), find_photos(asked)
        count, occluded = (3, 1) if args.quick else (args.collages, args.occluded)
        write(measured(training, test, args.quick, count, occluded), args.json)


if __name__ == "__main__":
    main()
