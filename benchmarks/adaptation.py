"""Gains and risks of adaptation: other cameras, styles, strangers, few classes, few photos.

A model is trained on labelled photos as in `patchvote fit`, and adapted to a target as in `predict --adapt`, with and
without `--insist`, which switches off the safeguards. Office+Caltech-10 and Scene-15 are read from a folder; where they
are absent, crops of the photos of scikit-image are used instead. With `--results`, every trial becomes a line of a
.jsonl file, from which docs/results.md is made.

    python benchmarks/adaptation.py --data DIR --json adaptation.json
    python benchmarks/adaptation.py --data DIR --results results/adaptation
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageFilter, ImageOps
from sklearn.base import clone

from adaptation_table import FILE, TITLES, read_trials, summary, table
from common import DATA, Record, options, record, write
from experiments.datasets import read_dataset
from experiments.protocol import Protocol
from experiments.splits import make_split
from patchvote import Adapted, Bags, BagSVM, Extractor, Photo, Recipe
from patchvote.models.choose import choose
from patchvote.models.fit import candidates_for
from patchvote.models.scores import Scores
from patchvote.photos.decode import load_image
from patchvote.voters.doubts import AdaptationWarning

SIX = ("amazon-webcam", "amazon-caltech", "webcam-amazon", "webcam-caltech", "caltech-amazon", "caltech-webcam")
OTHERS = ("amazon-dslr", "webcam-dslr", "caltech-dslr", "dslr-amazon", "dslr-webcam", "dslr-caltech")
PARTS = ("pairs", "styles", "strangers", "few")
Photos = tuple[np.ndarray, np.ndarray]  # means of bags, and labels
Trial = dict[str, Any]
Style = Callable[[Image.Image], Image.Image]


# --- styles -----------------------------------------------------------------------------------------------------------


def pencil(image: Image.Image) -> Image.Image:
    """Imitate a pencil drawing: divide the grey photo by its blurred copy."""
    grey = image.convert("L")
    blurred = np.maximum(np.asarray(grey.filter(ImageFilter.GaussianBlur(6)), np.float32), 1)
    drawn = np.clip(255 * np.asarray(grey, np.float32) / blurred, 0, 255)
    return Image.fromarray(drawn.astype(np.uint8)).convert("RGB")


def edges(image: Image.Image) -> Image.Image:
    """Return black edges on a white background."""
    strength = np.asarray(image.convert("L").filter(ImageFilter.GaussianBlur(1.5)).filter(ImageFilter.FIND_EDGES))
    return Image.fromarray(np.where(strength > 16, 0, 255).astype(np.uint8)).convert("RGB")


def cartoon(image: Image.Image) -> Image.Image:
    """Return flat areas of few colours, with black edges."""
    flat = image.convert("RGB")
    for _ in range(3):
        flat = flat.filter(ImageFilter.MedianFilter(5))
    return ImageChops.darker(ImageOps.posterize(flat, 2), edges(flat))


STYLES: dict[str, Style] = {
    "pencil": pencil,
    "edges": edges,
    "cartoon": cartoon,
    "inverted": lambda image: ImageOps.invert(image.convert("RGB")),
}


# --- photos -----------------------------------------------------------------------------------------------------------


class Means:
    """Computes the means of photos' bags, and stores them in a folder if one is given."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.extractor = folder, Extractor(Recipe())

    def of(self, name: str, photos: list[Photo], style: str | None = None) -> Photos:
        """Return means and labels of photos, in a style; `name` is the name of their file."""
        path = self.folder / f"{name}{f'-{style}' if style else ''}.npz" if self.folder else None
        if path is not None and path.exists():
            stored = np.load(path)
            return stored["means"], stored["labels"]
        means = []
        for start in range(0, len(photos), 32):
            part = photos[start : start + 32]
            if style is not None:
                part = [Photo(photo.name, STYLES[style](_small(load_image(photo))), photo.label) for photo in part]
            means += [item.bag.means()[0] for item in self.extractor.stream(part) if item.bag is not None]
        print(f"{name}{f', {style}' if style else ''}: {len(photos):,} photos", flush=True)
        labels = np.array([str(photo.label) for photo in photos])
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, means=np.array(means, np.float32), labels=labels)
        return np.array(means, np.float32), labels


def _small(image: Image.Image) -> Image.Image:
    image = image.convert("RGB")
    image.thumbnail((448, 448))
    return image


def shipped(
    kinds: tuple[str, ...], seed: int, change: Callable[[Image.Image], Image.Image] | None = None
) -> list[Photo]:
    """Return crops of the photos that are part of scikit-image, fifteen of each."""
    import skimage.data

    rng, photos = np.random.default_rng(seed), []
    for kind in kinds:
        image = Image.open(Path(skimage.data.data_dir) / f"{kind}.png").convert("RGB")
        for index in range(15):
            left, top = int(rng.integers(image.width - 90)), int(rng.integers(image.height - 90))
            crop = image.crop((left, top, left + 90, top + 90))
            photos.append(Photo(f"{kind}{index}", change(crop) if change else crop, kind))
    return photos


# --- one trial --------------------------------------------------------------------------------------------------------


def learned(means: np.ndarray, labels: np.ndarray) -> BagSVM:
    """Train as `patchvote fit --voter bag-svm` does: settings and threshold are chosen on held-out photos."""
    numbers = np.unique(labels, return_inverse=True)[1]
    choice = choose(candidates_for("bag-svm", 0), Bags.of(means), numbers, budget=60)
    voter = clone(choice.candidate.voter).fit(Bags.of(means), labels)
    voter.temperature_, voter.rejection_threshold_ = choice.temperature, choice.threshold
    return voter


def adapted(voter: BagSVM, target: np.ndarray, insist: bool) -> Adapted:
    """Adapt as `predict --adapt` does."""
    regularised = clone(voter).set_params(C=min(voter.C, 0.3), calibration=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        return Adapted(regularised, insist=insist).fit(
            Bags.of(voter.vectors_), voter.classes_[voter.class_], Bags.of(target), unadapted=voter
        )


def trial(group: str, name: str, voter: BagSVM, target: Photos) -> Trial:
    """Adapt a model to photos; those whose labels the model does not know are strangers."""
    means, labels = target
    known, bags = np.isin(labels, voter.classes_), Bags.of(target[0])
    careful, insisting = (adapted(voter, means, insist) for insist in (False, True))

    def rejected(model: Any, threshold: float) -> np.ndarray:
        return np.asarray(model.predict_proba(bags).max(axis=1) < threshold)

    def accuracy(model: Any) -> float | None:
        return float(100 * np.mean(model.predict(bags)[known] == labels[known])) if known.any() else None

    def calibration_error(model: Any) -> float | None:
        if known.sum() < 20:  # too few for bins of confidence
            return None
        expected = np.searchsorted(voter.classes_, labels[known])
        scores = Scores(tuple(voter.classes_), ("",) * int(known.sum()), expected, model.predict_proba(bags)[known])
        return float(100 * scores.calibration_error)

    before, after = rejected(voter, voter.rejection_threshold_), rejected(careful, careful.voter_.rejection_threshold_)
    result = {
        "group": group,
        "name": name,
        "photos": len(labels),
        "plain": accuracy(voter),
        "insisting": accuracy(insisting.voter_),
        "adapted": accuracy(careful),
        "rejected_before": float(100 * before[known].mean()) if known.any() else None,
        "rejected_after": float(100 * after[known].mean()) if known.any() else None,
        "strangers_before": float(100 * before[~known].mean()) if (~known).any() else None,
        "strangers_after": float(100 * after[~known].mean()) if (~known).any() else None,
        "error_before": calibration_error(voter),
        "error_after": calibration_error(careful),
        "confidence": float(100 * careful.predict_proba(bags)[known].max(axis=1).mean()) if known.any() else None,
        "refused": careful.refusal_ is not None,
    }
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in result.items()}


# --- trials with the image sets ---------------------------------------------------------------------------------------


class Sets:
    """Trials with Office+Caltech-10 and Scene-15."""

    def __init__(self, data: Path, means: Means, quick: bool) -> None:
        self.means, self.quick = means, quick
        self.protocol = Protocol.load("office-caltech")
        self.office = read_dataset("office-caltech", data / "office_caltech")
        scenes = read_dataset("scene15", data / "scene15").photos
        order = np.random.default_rng(0).permutation(len(scenes))[: 90 if quick else 600]
        self.scenes = [scenes[i] for i in order]
        self.models: dict[tuple[str, int], BagSVM] = {}

    @functools.cached_property
    def domains(self) -> dict[str, tuple[list[Photo], np.ndarray, np.ndarray]]:
        """Photos, means and labels by domain; in a quick run, of two small domains only."""
        chosen = ("dslr", "webcam") if self.quick else ("amazon", "caltech", "dslr", "webcam")
        domains = {}
        for domain in chosen:
            photos = [photo for photo in self.office.photos if photo.name.startswith(f"{domain}/")]
            domains[domain] = (photos, *self.means.of(domain, photos))
        return domains

    def split(self, pair: str, split: int) -> tuple[BagSVM, Photos]:
        """Return the model that is trained on a split's training photos, and the test photos."""
        names = make_split(self.office, self.protocol.settings[0], pair, split - 1)
        train, test = (self._photos(part) for part in (names.train, names.test))
        if (pair, split) not in self.models:
            self.models[pair, split] = learned(*train)
        return self.models[pair, split], test

    def _photos(self, names: list[str]) -> Photos:
        photos, means, labels = self.domains[names[0].partition("/")[0]]
        row_of = {photo.name: row for row, photo in enumerate(photos)}
        rows = [row_of[name] for name in names]
        return means[rows], labels[rows]

    def trials(self, parts: list[str]) -> Iterator[Trial]:
        """Run the trials of some parts, or of all."""
        for part in parts or PARTS:
            yield from getattr(self, part)()

    def pairs(self) -> Iterator[Trial]:
        """Another camera or place: the purpose of adaptation."""
        for pair in ("webcam-dslr", "dslr-webcam") if self.quick else (*SIX, *OTHERS):
            for split in range(1, 2 if self.quick else 11 if pair in SIX else 3):
                yield trial("pairs" if pair in SIX else "other pairs", pair, *self.split(pair, split))

    def styles(self) -> Iterator[Trial]:
        """Drawings, made from photos by filters."""
        for pair in ("dslr-webcam",) if self.quick else ("amazon-caltech", "caltech-amazon", "dslr-webcam"):
            target = pair.partition("-")[2]
            photos, _, labels = self.domains[target]
            rng = np.random.default_rng(1)
            rows = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:14] for c in np.unique(labels)])
            for style in ("pencil",) if self.quick else STYLES:
                drawn = self.means.of(f"{target}-14", [photos[i] for i in rows], style)
                for split in range(1, 2 if self.quick else 3):
                    yield trial("styles", f"{pair}, {style}", self.split(pair, split)[0], drawn)

    def strangers(self) -> Iterator[Trial]:
        """Photos of other things, alone and mixed with photos of the classes."""
        scenes = self.means.of("scenes-quick" if self.quick else "scenes", self.scenes)
        rng = np.random.default_rng(2)
        for pair in ("dslr-webcam",) if self.quick else ("amazon-webcam", "webcam-amazon", "caltech-amazon"):
            yield trial("strangers", f"{pair.partition('-')[0]} asked about scenes", self.split(pair, 1)[0], scenes)
        if not self.quick:
            model = learned(*(part[:450] for part in scenes))
            for domain in ("webcam", "amazon"):
                yield trial("strangers", f"scenes asked about {domain}", model, self.domains[domain][1:])
        for pair in ("dslr-webcam",) if self.quick else ("amazon-webcam", "webcam-dslr", "caltech-dslr"):
            voter, (means, labels) = self.split(pair, 1)
            for share in (25,) if self.quick else (10, 25, 50, 75):
                count = min(round(len(means) * share / (100 - share)), len(scenes[0]))
                rows = rng.permutation(len(scenes[0]))[:count]
                known = rng.permutation(len(means))[: round(count * (100 - share) / share)]
                mixed = (
                    np.concatenate([means[known], scenes[0][rows]]),
                    np.concatenate([labels[known], scenes[1][rows]]),
                )
                yield trial("mixtures", f"{pair} with {share} % scenes", voter, mixed)
            if not self.quick:
                for count in (8, 6):
                    classes = rng.permutation(np.unique(labels))[:count]
                    rows = np.isin(voter.classes_[voter.class_], classes)
                    smaller = learned(voter.vectors_[rows], voter.classes_[voter.class_[rows]])
                    yield trial("mixtures", f"{pair}, {count} of 10 classes learned", smaller, (means, labels))

    def few(self) -> Iterator[Trial]:
        """Targets with few classes, classes of unequal frequency, or few photos."""
        rng = np.random.default_rng(3)
        for pair in ("webcam-dslr",) if self.quick else ("amazon-dslr", "caltech-dslr", "webcam-dslr", "amazon-webcam"):
            for split in range(1, 2 if self.quick else 3):
                voter, (means, labels) = self.split(pair, split)
                for count in (1, 2, 5):
                    rows = np.isin(labels, rng.permutation(np.unique(labels))[:count])
                    yield trial("few classes", f"{count} of 10 classes", voter, (means[rows], labels[rows]))
                share = rng.dirichlet(np.full(10, 0.5))
                drawn = [
                    rng.permutation(np.flatnonzero(labels == c))[: max(1, round(60 * s))]
                    for c, s in zip(np.unique(labels), share, strict=True)
                ]
                rows = np.concatenate(drawn)
                yield trial("few classes", "classes in unequal shares", voter, (means[rows], labels[rows]))
                for count in (1, 2, 5):
                    for _ in range(1 if self.quick else 3):
                        rows = rng.permutation(len(means))[:count]
                        yield trial(
                            "few photos", f"{count} photo{'s' if count > 1 else ''}", voter, (means[rows], labels[rows])
                        )


def shipped_trials(means: Means) -> Iterator[Trial]:
    """Run small trials with the photos of scikit-image."""
    kinds, others = ("brick", "grass", "gravel", "coffee"), ("chelsea", "ihc", "page")

    def fog(image: Image.Image) -> Image.Image:
        return Image.fromarray(((0.7 * np.asarray(image) + 50) * [0.8, 0.9, 1.0]).clip(0, 255).astype(np.uint8))

    voter = learned(*means.of("shipped", shipped(kinds, 0)))
    known, strange = means.of("fog", shipped(kinds, 1, fog)), means.of("others", shipped(others, 2))
    yield trial("other pairs", "shipped photos in fog", voter, known)
    yield trial("strangers", "shipped photos of other things", voter, strange)
    mixed = tuple(np.concatenate([one, two[::3]]) for one, two in zip(known, strange, strict=True))
    yield trial("mixtures", "shipped photos in fog and of other things", voter, (mixed[0], mixed[1]))
    rows = known[1] == "brick"
    yield trial("few classes", "shipped photos of one class", voter, (known[0][rows], known[1][rows]))


def figures(trials: list[Trial]) -> list[Record]:
    """Return the figures that have goals, from the rows of the table."""
    rows = summary(trials)
    records: list[Record] = []

    def keep(name: str, value: float, unit: str, goal: float | None, peer: str | None) -> None:
        records.append(record(name, round(value, 2), unit, goal, peer))

    pairs = [row for row in rows if row["group"] == "pairs"] or [row for row in rows if row["group"] == "other pairs"]
    if pairs:
        plain, insisting, adapted = (
            float(np.mean([row[key] for row in pairs])) for key in ("plain", "insisting", "adapted")
        )
        keep("accuracy on pairs, adapted", adapted, "%", round(insisting - 0.3, 2), "without safeguards")
        keep("accuracy on pairs, plain", plain, "%", None, None)
    if labelled := [row for row in rows if row["adapted"] is not None]:
        least = min(row["adapted"] - row["plain"] for row in labelled)
        keep("least lead of adapted over plain", least, "points", -1, "plain")
    if with_strangers := [row for row in rows if row["strangers_before"] is not None]:
        lost = max(row["strangers_before"] - row["strangers_after"] for row in with_strangers)
        keep("rejected strangers that adapting lets in, at most", lost, "points", 0, "plain")
    if changed := [row for row in labelled if row["error_after"] is not None and row["refused"] < row["trials"]]:
        excess = max(row["confidence"] - row["adapted"] for row in changed)
        keep("confidence above accuracy once adapted, at most", excess, "points", 2, None)
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with office_caltech/ and scene15/")
    parser.add_argument("--means", type=Path, metavar="DIR", help="store means of bags in DIR, for the next run")
    parser.add_argument("--results", type=Path, metavar="DIR", help="write one line per trial to a file in DIR")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=[], help="run these parts only; results of others stay"
    )
    args = parser.parse_args()
    means = Means(args.means)
    has_data = all((args.data / name).is_dir() for name in ("office_caltech", "scene15"))
    trials = []
    for result in Sets(args.data, means, args.quick).trials(args.only) if has_data else shipped_trials(means):
        trials.append(result)
        print(json.dumps(result), flush=True)
    if args.results:
        args.results.mkdir(parents=True, exist_ok=True)
        groups = {result["group"] for result in trials}
        stored = [result for result in read_trials(args.results) if args.only and result["group"] not in groups]
        trials = sorted(stored + trials, key=lambda result: list(TITLES).index(result["group"]))
        lines = "".join(f"{json.dumps(result)}\n" for result in trials)
        (args.results / FILE).write_text(lines, encoding="utf-8")
        (args.results / "table.md").write_text(f"{table(trials)}\n", encoding="utf-8")
    write(figures(trials), args.json)


if __name__ == "__main__":
    main()
