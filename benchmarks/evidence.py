"""Quality of the evidence maps of every voter, beside occlusion and Grad-CAM on the same network.

Collages of four test photos: how much of the evidence for a class is in its own quarter, and whether the maximum of
the map is there. Deletion and insertion on single photos: cells of the photo are replaced by a blurred copy in the
order of the map, and the probability of the predicted class is recorded; every classifier is asked about its own
answers. Photos come from a folder of class folders; without one, from scikit-image, cut as in `patchvote demo`.

    python benchmarks/evidence.py --quick --json evidence.json
    python benchmarks/evidence.py --data scene15 --train 50 --results results/evidence/trials.jsonl
    python benchmarks/evidence.py --collages 60 --occluded 0 --photos 0 --pictures docs
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter, ImageOps
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits

from common import Record, options, record, write
from evidence_classifiers import DEFAULT, GRAD_CAM, POOLED, Classifier, Looked, centre_map, random_map, trained
from evidence_measures import (
    Map,
    areas,
    blended,
    occlusion_map,
    own_share,
    points_at,
    smoothed,
    steps,
    windows,
)
from evidence_table import MEASURES, read_trials, section
from patchvote import Bags, Dense, Extractor, Photo, Recipe, find_photos
from patchvote.cli.demo import make_photos
from patchvote.photos.decode import load_image, resized
from patchvote.voters.registry import OWN

_SIDE = 448  # of the finest scale, in pixels
_BLUR = 16  # the radius of the blur is the longest side divided by this
_SLOW = 3  # voters that search are asked about every third photo, and every third collage with occlusion
Key = tuple[str, str, str]  # part, classifier, map
Pixels = npt.NDArray[np.uint8]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured: the size of a run.

    Parameters
    ----------
    train : int
        Training photos per class.
    collages, occluded : int
        Number of collages, and of those among them for which occlusion is computed.
    photos : int
        Number of single photos for deletion and insertion.
    shares : tuple of float
        Shares of the cells at which the curves are computed, besides 0 and 1.
    window, stride : int
        Side of the occluding square and its steps, in cells.
    descriptors : int
        Descriptors on which voters of single parts are trained, in all; by default as many as in `patchvote fit`.
    """

    train: int
    collages: int
    occluded: int
    photos: int
    shares: tuple[float, ...] = (1 / 8, 1 / 4, 1 / 2)
    window: int = 4
    stride: int = 2
    descriptors: int = 36_000


QUICK = Plan(6, collages=4, occluded=1, photos=1, shares=(1 / 4,), window=6, stride=4, descriptors=2_000)


class Measured:
    """Values of the measures, by part, classifier and map; each value belongs to a numbered collage or photo."""

    def __init__(self) -> None:
        self.values: dict[Key, dict[str, dict[int, float]]] = {}

    def keep(self, key: Key, number: int, **values: float) -> None:
        """Keep the values of one collage or photo."""
        for measure, value in values.items():
            self.values.setdefault(key, {}).setdefault(measure, {})[number] = float(value)

    def lines(self, name: str, defaults: dict[str, str]) -> list[dict[str, Any]]:
        """Return a record per map: means, their standard errors, and leads over the default map, in pairs."""
        lines = []
        for key, measures in self.values.items():
            part, classifier, kind = key
            base = self.values[part, classifier, defaults[classifier]]
            line: dict[str, Any] = {"set": name, "part": part, "classifier": classifier, "map": kind}
            line["count"] = max(len(values) for values in measures.values())
            for measure, values in measures.items():
                line[measure], line[f"{measure}_error"] = _mean(list(values.values()))
                leads = [value - base[measure][number] for number, value in values.items()]
                line[f"{measure}_lead"], line[f"{measure}_lead_error"] = _mean(leads)
            lines.append(line)
        return lines


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return round(float(np.mean(values)), 5), round(error, 5)


# --- photos -----------------------------------------------------------------------------------------------------------


def split(photos: list[Photo], train: int) -> tuple[list[Photo], dict[str, list[Photo]]]:
    """Draw training photos of every class; return them, and the others by class, in random order."""
    rng, training, others = np.random.default_rng(0), [], {}
    for label in sorted({str(photo.label) for photo in photos}):
        same = [photo for photo in photos if photo.label == label]
        order = rng.permutation(len(same))
        training += [same[i] for i in order[:train]]
        others[label] = [same[i] for i in order[train:]]
    return training, others


def shipped(folder: Path) -> tuple[list[Photo], dict[str, list[Photo]]]:
    """Cut the photos of scikit-image into crops for training and testing."""
    train, test, _ = make_photos(folder)
    return find_photos(train), split(find_photos(test), 0)[1]


def pixels_of(photo: Photo) -> Pixels:
    """Return a photo in the size of the finest scale."""
    image = load_image(photo, _SIDE)
    return np.asarray(resized(image, Dense().input_size(*image.size, _SIDE, 32)).convert("RGB"))


def collage(photos: Sequence[Photo]) -> Pixels:
    """Put the middle squares of four photos side by side, two by two."""
    half = _SIDE // 2
    sheet = Image.new("RGB", (_SIDE, _SIDE))
    for index, photo in enumerate(photos):
        square = ImageOps.fit(load_image(photo).convert("RGB"), (half, half), Image.Resampling.BICUBIC)
        sheet.paste(square, (half * (index % 2), half * (index // 2)))
    return np.asarray(sheet)


def blurred(pixels: Pixels) -> Pixels:
    """Return the blurred copy of a photo that replaces removed cells."""
    radius = max(pixels.shape) / _BLUR
    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius)))


def draw_collages(test: dict[str, list[Photo]], count: int) -> list[tuple[list[str], list[Photo]]]:
    """Draw four classes and a photo of each, for every collage."""
    rng, drawn = np.random.default_rng(1), []
    labels = [label for label, photos in test.items() if photos]
    for _ in range(count):
        chosen = [labels[i] for i in rng.permutation(len(labels))[:4]]
        drawn.append((chosen, [test[label][rng.integers(len(test[label]))] for label in chosen]))
    return drawn


# --- trials -----------------------------------------------------------------------------------------------------------


class Trials:
    """Runs the trials of one set of photos."""

    def __init__(self, training: list[Photo], plan: Plan, kinds: Sequence[str] = tuple(OWN)) -> None:
        self.plan, self.extractor, self.measured = plan, Extractor(Recipe()), Measured()
        labels = np.array([str(photo.label) for photo in training])
        bags = Bags.join(item.bag for item in self.extractor.stream(training) if item.bag is not None)
        self.classifiers: list[Classifier] = trained(
            bags, labels, self.extractor.recipe.network, plan.descriptors, kinds
        )
        self.windows = windows(plan.window, plan.stride)

    def bags(self, images: Sequence[Pixels]) -> Bags:
        """Return the bags of images."""
        return self.extractor([Photo(str(index), image) for index, image in enumerate(images)])

    def occluded(self, pixels: Pixels) -> Bags:
        """Return the bags of a photo with each window blurred."""
        copy = blurred(pixels)
        return self.bags([blended(pixels, copy, window) for window in self.windows])

    def collage_maps(
        self, classifier: Classifier, looked: Looked, labels: Sequence[str], occluded: Bags | None
    ) -> list[dict[str, Map]]:
        """Return the maps of the classes of a collage, each by name."""
        numbers = [classifier.classes.index(label) for label in labels]
        maps = classifier.maps(looked, numbers)
        if occluded is not None:
            before, after = classifier.scores(looked.bag)[0], classifier.scores(occluded)
            logs = log_softmax(before) - log_softmax(after, axis=1)
            for number, one in zip(numbers, maps, strict=True):
                one["occlusion"] = occlusion_map(logs[:, number], self.windows)
                one["occlusion, score alone"] = occlusion_map(before[number] - after[:, number], self.windows)
        return maps

    def collage(self, index: int, labels: Sequence[str], pixels: Pixels) -> None:
        """Measure the maps of one collage; a value is the mean over its four classes."""
        looked = Looked(pixels, self.bags([pixels]))
        occluded = self.occluded(pixels) if index < self.plan.occluded else None
        for classifier in self.classifiers:
            is_left_out = classifier.is_slow and index % _SLOW > 0
            maps = self.collage_maps(classifier, looked, labels, None if is_left_out else occluded)
            for quarter, one in enumerate(maps):
                one["random"] = random_map(4 * index + quarter)
            for name in maps[0]:
                chosen = [one[name] for one in maps]
                values = {
                    "share": [own_share(one, quarter) for quarter, one in enumerate(chosen)],
                    "pointing": [points_at(one, quarter) for quarter, one in enumerate(chosen)],
                    "smoothed": [points_at(smoothed(one), quarter) for quarter, one in enumerate(chosen)],
                }
                means = {measure: float(np.mean(four)) for measure, four in values.items()}
                self.measured.keep(("collages", classifier.name, name), index, **means)

    def photo(self, index: int, label: str, pixels: Pixels) -> None:
        """Measure deletion and insertion on one photo."""
        looked, copy = Looked(pixels, self.bags([pixels])), blurred(pixels)
        occluded, rng = self.occluded(pixels), np.random.default_rng([2, index])
        shared = {"random": random_map(index), "centre": centre_map()}
        shared_bags = {name: self._steps(pixels, copy, one, rng) for name, one in shared.items()}
        all_blurred = self.bags([copy])
        for classifier in self.classifiers:
            if classifier.is_slow and index % _SLOW:
                continue
            scores = classifier.scores(looked.bag)[0]
            number = int(scores.argmax())
            found = classifier.maps(looked, [number])[0]
            maps = {name: found[name] for name in classifier.curves}
            drops = log_softmax(scores)[number] - log_softmax(classifier.scores(occluded), axis=1)[:, number]
            maps["occlusion"] = occlusion_map(drops, self.windows)
            bags = {name: self._steps(pixels, copy, one, rng) for name, one in maps.items()} | shared_bags
            joined = Bags.join([looked.bag, all_blurred, *bags.values()])
            chances = np.exp(log_softmax(classifier.scores(joined), axis=1)[:, number]).tolist()
            count = 2 * len(self.plan.shares)
            for place, name in enumerate(bags):
                start = 2 + count * place
                deletion, insertion = areas(self.plan.shares, *chances[:2], chances[start : start + count])
                right = classifier.classes[number] == label
                key = ("photos", classifier.name, name)
                self.measured.keep(key, index, deletion=deletion, insertion=insertion, right=right)

    def _steps(self, pixels: Pixels, copy: Pixels, values: Map, rng: np.random.Generator) -> Bags:
        """Return the bags of a photo without its most important cells, for every share, then of these cells alone."""
        return self.bags(steps(pixels, copy, values, self.plan.shares, rng))

    def run(self, test: dict[str, list[Photo]], until: float = np.inf) -> None:
        """Run all trials; from the time `until` on, no photo is begun, and fewer are measured."""
        for index, (labels, photos) in enumerate(draw_collages(test, self.plan.collages)):
            self.collage(index, labels, collage(photos))
        print(f"{self.plan.collages} collages", flush=True)
        rng, labels = np.random.default_rng(3), [label for label, photos in test.items() if photos]
        for index in range(self.plan.photos):
            if index > 1 and time.perf_counter() > until:
                break
            label = labels[index % len(labels)]
            self.photo(index, label, pixels_of(test[label][rng.integers(len(test[label]))]))
            print(f"photo {index + 1} of {self.plan.photos}", flush=True)


def figures(lines: list[dict[str, Any]]) -> list[Record]:
    """Return the figures of the default map of every classifier, with those of its peers as goals."""
    rows = {(line["part"], line["classifier"], line["map"]): line for line in lines}
    records = []
    for (part, classifier, kind), line in rows.items():
        if kind not in (DEFAULT, GRAD_CAM):
            continue
        peers = [(GRAD_CAM, (part, POOLED, GRAD_CAM))] if part == "collages" and classifier != POOLED else []
        peers += [("occlusion", (part, classifier, "occlusion")), ("random", (part, classifier, "random"))]
        peer, key = next((name, key) for name, key in peers if key in rows)
        for measure in MEASURES[part]:
            goal = round(100 * rows[key][measure], 1)
            records.append(record(f"{measure}, {classifier}, {kind}", 100 * line[measure], "%", goal, peer))
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with one folder per class, at least four")
    parser.add_argument("--train", type=int, default=20, help="training photos per class of --data")
    parser.add_argument("--collages", type=int, default=100)
    parser.add_argument("--occluded", type=int, default=30, help="collages for which occlusion is computed")
    parser.add_argument("--photos", type=int, default=40, help="photos for deletion and insertion")
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no further photo after these")
    parser.add_argument("--voters", default=",".join(OWN), help="only these voters, separated by commas")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="put one line per map into FILE; other sets and voters stay"
    )
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="draw the best and the worst collage into DIR")
    args = parser.parse_args()
    plan = QUICK if args.quick else Plan(args.train, args.collages, args.occluded, args.photos)
    start = time.perf_counter()
    # Products of a quick run are small: more threads take longer, most of all where others use the cores.
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1 if args.quick else None):
        if args.data is not None:
            training, test = split([photo for photo in find_photos(args.data) if photo.label], plan.train)
        else:
            training, test = shipped(Path(folder))
        trials = Trials(training, plan, args.voters.split(","))
        print(f"trained on {len(training):,} photos in {time.perf_counter() - start:.0f} s", flush=True)
        if args.pictures is not None:
            from evidence_pictures import draw_cases

            draw_cases(trials, test, args.collages, args.pictures)
        trials.run(test, start + 60 * args.minutes)
    defaults = {classifier.name: classifier.default for classifier in trials.classifiers}
    name = args.data.name if args.data is not None else "shipped"
    lines = trials.measured.lines(name, defaults)
    print(f"measured in {time.perf_counter() - start:.0f} s", flush=True)
    if args.results is not None:
        renewed = {(line["set"], line["part"], line["classifier"]) for line in lines}
        before = read_trials(args.results)
        stored = [line for line in before if (line["set"], line["part"], line["classifier"]) not in renewed]
        args.results.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{json.dumps(line)}\n" for line in [*stored, *lines])
        args.results.write_text(text, encoding="utf-8")
        args.results.with_name("table.md").write_text(f"{section([*stored, *lines])}\n", encoding="utf-8")
    write(figures(lines), args.json)


if __name__ == "__main__":
    main()
