"""What adapting brings and what it must not do: other cameras, styles, strangers, few classes, few photos.

A model learns from labelled photos, as `patchvote fit` does, and is adapted to a target, as `predict --adapt` does, and
also with `--insist`, which is the adaptation without its safeguards. Office+Caltech-10 and Scene-15 are read from a
folder; where they are not there, crops of the photos that scikit-image ships take their place. With `--results`, every
trial becomes a line of a .jsonl file, from which docs/results.md is made.

    python benchmarks/adaptation.py --data DIR --json adaptation.json
    python benchmarks/adaptation.py --data DIR --results results/adaptation
"""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageFilter, ImageOps
from sklearn.base import clone

from common import Record, options, record, write
from patchvote import Adapted, Bags, BagSVM, Extractor, Photo, Recipe
from patchvote.models.choose import choose
from patchvote.models.fit import candidates_for
from patchvote.models.scores import Scores
from patchvote.photos.decode import load_image
from patchvote.protocols import Protocol
from patchvote.protocols.adaptation import FILE, TITLES, read_trials, summary
from patchvote.protocols.datasets import read_dataset
from patchvote.protocols.splits import make_split
from patchvote.voters.doubts import AdaptationWarning

ROOT = Path(__file__).resolve().parent.parent
SIX = ("amazon-webcam", "amazon-caltech", "webcam-amazon", "webcam-caltech", "caltech-amazon", "caltech-webcam")
OTHERS = ("amazon-dslr", "webcam-dslr", "caltech-dslr", "dslr-amazon", "dslr-webcam", "dslr-caltech")
PARTS = ("pairs", "styles", "strangers", "few")
Photos = tuple[np.ndarray, np.ndarray]  # means of bags, labels
Trial = dict[str, Any]
Style = Callable[[Image.Image], Image.Image]


# --- styles -----------------------------------------------------------------------------------------------------------


def pencil(image: Image.Image) -> Image.Image:
    """Draw a photo in pencil: its grey divided by its blurred grey."""
    grey = image.convert("L")
    soft = np.maximum(np.asarray(grey.filter(ImageFilter.GaussianBlur(6)), np.float32), 1)
    drawn = np.clip(255 * np.asarray(grey, np.float32) / soft, 0, 255)
    return Image.fromarray(drawn.astype(np.uint8)).convert("RGB")


def edges(image: Image.Image) -> Image.Image:
    """Leave black edges on white ground."""
    found = np.asarray(image.convert("L").filter(ImageFilter.GaussianBlur(1.5)).filter(ImageFilter.FIND_EDGES))
    return Image.fromarray(np.where(found > 16, 0, 255).astype(np.uint8)).convert("RGB")


def cartoon(image: Image.Image) -> Image.Image:
    """Leave flat areas of few colours, with black edges."""
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
    """Means of the bags of photos, each photo through the network once; kept in a folder if there is one."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.extractor = folder, Extractor(Recipe())

    def of(self, name: str, photos: list[Photo], style: str | None = None) -> Photos:
        """Return means and labels of photos, in a style; `name` is what they are kept under."""
        path = self.folder / f"{name}{f'-{style}' if style else ''}.npz" if self.folder else None
        if path is not None and path.exists():
            kept = np.load(path)
            return kept["means"], kept["labels"]
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
    """Return crops of the photos that scikit-image ships, fifteen of each."""
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
    """Learn as `patchvote fit` does: settings, temperature and threshold by photos held out."""
    numbers = np.unique(labels, return_inverse=True)[1]
    choice = choose(candidates_for("auto", 0), Bags.of(means), numbers, budget=60)
    voter = clone(choice.candidate.voter).fit(Bags.of(means), labels)
    voter.temperature_, voter.rejection_threshold_ = choice.temperature, choice.threshold
    return voter


def adapted(voter: BagSVM, target: np.ndarray, insist: bool) -> Adapted:
    """Adapt as `predict --adapt` does."""
    tight = clone(voter).set_params(C=min(voter.C, 0.3), calibration=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        return Adapted(tight, insist=insist).fit(
            Bags.of(voter.vectors_), voter.classes_[voter.class_], Bags.of(target), unadapted=voter
        )


def trial(group: str, name: str, voter: BagSVM, target: Photos) -> Trial:
    """Adapt a model to photos, of which those with labels that it does not know are strangers."""
    means, labels = target
    known, bags = np.isin(labels, voter.classes_), Bags.of(target[0])
    careful, insisting = (adapted(voter, means, insist) for insist in (False, True))

    def rejected(one: Any, threshold: float) -> np.ndarray:
        return np.asarray(one.predict_proba(bags).max(axis=1) < threshold)

    def right(one: Any) -> float | None:
        return float(100 * np.mean(one.predict(bags)[known] == labels[known])) if known.any() else None

    def error(one: Any) -> float | None:
        if known.sum() < 20:  # too few to group them
            return None
        expected = np.searchsorted(voter.classes_, labels[known])
        scores = Scores(tuple(voter.classes_), ("",) * int(known.sum()), expected, one.predict_proba(bags)[known])
        return float(100 * scores.calibration_error)

    before, after = rejected(voter, voter.rejection_threshold_), rejected(careful, careful.voter_.rejection_threshold_)
    made = {
        "group": group,
        "name": name,
        "photos": len(labels),
        "plain": right(voter),
        "insisting": right(insisting.voter_),
        "adapted": right(careful),
        "rejected_before": float(100 * before[known].mean()) if known.any() else None,
        "rejected_after": float(100 * after[known].mean()) if known.any() else None,
        "strangers_before": float(100 * before[~known].mean()) if (~known).any() else None,
        "strangers_after": float(100 * after[~known].mean()) if (~known).any() else None,
        "error_before": error(voter),
        "error_after": error(careful),
        "confidence": float(100 * careful.predict_proba(bags)[known].max(axis=1).mean()) if known.any() else None,
        "refused": careful.refusal_ is not None,
    }
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in made.items()}


# --- trials with the image sets ---------------------------------------------------------------------------------------


class Sets:
    """Office+Caltech-10 and Scene-15."""

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
        """Photos, means and labels by domain; where time is short, of two small domains."""
        chosen = ("dslr", "webcam") if self.quick else ("amazon", "caltech", "dslr", "webcam")
        domains = {}
        for domain in chosen:
            photos = [photo for photo in self.office.photos if photo.name.startswith(f"{domain}/")]
            domains[domain] = (photos, *self.means.of(domain, photos))
        return domains

    def split(self, pair: str, split: int) -> tuple[BagSVM, Photos]:
        """Return the model of a split's training photos, and its test photos."""
        own = make_split(self.office, self.protocol.settings[0], pair, split - 1)
        train, test = (self._rows(names) for names in (own.train, own.test))
        if (pair, split) not in self.models:
            self.models[pair, split] = learned(*train)
        return self.models[pair, split], test

    def _rows(self, names: list[str]) -> Photos:
        photos, means, labels = self.domains[names[0].partition("/")[0]]
        number = {photo.name: index for index, photo in enumerate(photos)}
        rows = [number[name] for name in names]
        return means[rows], labels[rows]

    def trials(self, parts: list[str]) -> Iterator[Trial]:
        """Go through some parts, or all."""
        for part in parts or PARTS:
            yield from getattr(self, part)()

    def pairs(self) -> Iterator[Trial]:
        """Another camera or place: what adapting is for."""
        for pair in ("webcam-dslr", "dslr-webcam") if self.quick else (*SIX, *OTHERS):
            for split in range(1, 2 if self.quick else 11 if pair in SIX else 3):
                yield trial("pairs" if pair in SIX else "other pairs", pair, *self.split(pair, split))

    def styles(self) -> Iterator[Trial]:
        """Drawings that filters made of photos."""
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
        """Photos of something else, alone and among photos of the classes."""
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
                    some = rng.permutation(np.unique(labels))[:count]
                    rows = np.isin(voter.classes_[voter.class_], some)
                    fewer = learned(voter.vectors_[rows], voter.classes_[voter.class_[rows]])
                    yield trial("mixtures", f"{pair}, {count} of 10 classes learned", fewer, (means, labels))

    def few(self) -> Iterator[Trial]:
        """Targets that show few classes, classes in unequal shares, or few photos."""
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
    """Go through small trials with photos that are always there."""
    kinds, others = ("brick", "grass", "gravel", "coffee"), ("chelsea", "ihc", "page")

    def fog(image: Image.Image) -> Image.Image:
        return Image.fromarray(((0.7 * np.asarray(image) + 50) * [0.8, 0.9, 1.0]).clip(0, 255).astype(np.uint8))

    voter = learned(*means.of("shipped", shipped(kinds, 0)))
    known, strange = means.of("fog", shipped(kinds, 1, fog)), means.of("others", shipped(others, 2))
    yield trial("other pairs", "shipped photos in fog", voter, known)
    yield trial("strangers", "shipped photos of other things", voter, strange)
    mixed = tuple(np.concatenate([one, two[::3]]) for one, two in zip(known, strange, strict=True))
    yield trial("mixtures", "shipped photos in fog and of other things", voter, (mixed[0], mixed[1]))
    one = known[1] == "brick"
    yield trial("few classes", "shipped photos of one class", voter, (known[0][one], known[1][one]))


def figures(trials: list[Trial]) -> list[Record]:
    """Return what is to be reached, over rows of the table."""
    rows = summary(trials)
    made: list[Record] = []

    def keep(name: str, value: float, unit: str, goal: float | None, peer: str | None) -> None:
        made.append(record(name, round(value, 2), unit, goal, peer))

    helped = [row for row in rows if row["group"] == "pairs"] or [row for row in rows if row["group"] == "other pairs"]
    if helped:
        plain, insisting, own = (float(np.mean([row[k] for row in helped])) for k in ("plain", "insisting", "adapted"))
        keep("accuracy on pairs, adapted", own, "%", round(insisting - 0.3, 2), "without safeguards")
        keep("accuracy on pairs, plain", plain, "%", None, None)
    if asked := [row for row in rows if row["adapted"] is not None]:
        least = min(row["adapted"] - row["plain"] for row in asked)
        keep("least lead of adapted over plain", least, "points", -1, "plain")
    if strange := [row for row in rows if row["strangers_before"] is not None]:
        lost = max(row["strangers_before"] - row["strangers_after"] for row in strange)
        keep("rejected strangers that adapting lets in, at most", lost, "points", 0, "plain")
    if changed := [row for row in asked if row["error_after"] is not None and row["refused"] < row["trials"]]:
        sure = max(row["confidence"] - row["adapted"] for row in changed)
        keep("confidence above accuracy once adapted, at most", sure, "points", 2, None)
    return made


def main() -> None:
    """Run what the command line asks for."""
    default = Path(os.environ.get("PATCHVOTE_DATA", ROOT.parent / "shared" / "data"))
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=default, help="folder with office_caltech/ and scene15/")
    parser.add_argument("--means", type=Path, metavar="DIR", help="keep means of bags there, for another run")
    parser.add_argument("--results", type=Path, metavar="DIR", help="write a line per trial there")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[], help="only these parts; others are kept")
    words = parser.parse_args()
    means = Means(words.means)
    there = all((words.data / name).is_dir() for name in ("office_caltech", "scene15"))
    trials = []
    for one in Sets(words.data, means, words.quick).trials(words.only) if there else shipped_trials(means):
        trials.append(one)
        print(json.dumps(one), flush=True)
    if words.results:
        words.results.mkdir(parents=True, exist_ok=True)
        made = {one["group"] for one in trials}
        trials = [one for one in read_trials(words.results) if words.only and one["group"] not in made] + trials
        trials.sort(key=lambda one: list(TITLES).index(one["group"]))
        lines = "".join(f"{json.dumps(one)}\n" for one in trials)
        (words.results / FILE).write_text(lines, encoding="utf-8")
    write(figures(trials), words.json)


if __name__ == "__main__":
    main()
