"""Adapting to other cameras, styles, strangers, mixtures and few classes: what is gained, and what could be lost.

A model is made as `patchvote fit` makes it, and adapted as `predict --adapt` does. Of every target, the line says how
many photos the model names before, the accuracy on these before and after, and how many photos are newly named or newly
rejected. Office+Caltech-10, Scene-15, MIT-67 and SUN-397 are read from a folder (PATCHVOTE_DATA).

    python benchmarks/adaptation.py --json adaptation.json
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from common import DATA, Record, options, record, write
from patchvote import Answer, ImageClassifier, Photo
from patchvote.photos.decode import SHOWN, load_image
from patchvote.voters.adapted import AdaptationWarning

DOMAINS = ("amazon", "webcam", "caltech10")
STRANGE = "stranger"
Style = Callable[[Image.Image], Image.Image]


@dataclasses.dataclass(frozen=True)
class Target:
    """Photos to adapt to, and the classifier that is adapted."""

    name: str
    model: str
    photos: Sequence[Photo]


@dataclasses.dataclass(frozen=True)
class Row:
    """What adapting to a target did."""

    target: str
    photos: int
    refused: bool
    named: int
    before: float
    after: float
    all_before: float
    all_after: float
    newly_named: int
    newly_rejected: int
    strangers_named: tuple[int, int]


def pencil(image: Image.Image) -> Image.Image:
    """Imitate a pencil drawing: divide the grey photo by its blurred copy."""
    grey = image.convert("L")
    blurred = np.maximum(np.asarray(grey.filter(ImageFilter.GaussianBlur(6)), np.float32), 1)
    drawn = np.clip(255 * np.asarray(grey, np.float32) / blurred, 0, 255)
    return Image.fromarray(drawn.astype(np.uint8)).convert("RGB")


def cartoon(image: Image.Image) -> Image.Image:
    """Imitate a cartoon: few flat colours with dark outlines."""
    flat = ImageOps.posterize(image.filter(ImageFilter.MedianFilter(5)), 2)
    edges = np.asarray(image.convert("L").filter(ImageFilter.GaussianBlur(1)).filter(ImageFilter.FIND_EDGES))
    return Image.fromarray(np.where(edges[..., None] > 24, 0, np.asarray(flat)).astype(np.uint8))


STYLES: dict[str, Style] = {
    "pencil": pencil,
    "cartoon": cartoon,
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(max(image.size) / 80)),
    "dark": lambda image: ImageEnhance.Brightness(image).enhance(0.25),
    "negative": ImageOps.invert,
}


class Photos:
    """The photos of the sets, drawn with a seed."""

    def __init__(self, data: Path, seed: int) -> None:
        self.data, self.rng = data, np.random.default_rng(seed)

    def of(
        self, folder: str, count: int, classes: Sequence[str] | None = None, label: str | None = None
    ) -> list[Photo]:
        """Return some photos of every class of a set, in random order; `label` replaces their classes."""
        found = []
        for path in sorted((self.data / folder).iterdir()):
            if path.is_dir() and (classes is None or path.name in classes):
                files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in (".jpg", ".jpeg", ".png")]
                chosen = [files[i] for i in self.rng.permutation(len(files))[:count]]
                found += [Photo(f"{folder}/{f.relative_to(self.data / folder)}", f, label or path.name) for f in chosen]
        return [found[i] for i in self.rng.permutation(len(found))]


def styled(photos: Sequence[Photo], name: str) -> list[Photo]:
    """Return photos in a style, as images in memory."""
    images = ((photo, STYLES[name](load_image(photo, SHOWN).convert("RGB"))) for photo in photos)
    return [Photo(f"{name} {photo.name}", np.asarray(image), photo.label) for photo, image in images]


def targets(photos: Photos, models: dict[str, list[Photo]], most: int) -> Iterator[Target]:
    """Yield all targets; `models` has the training photos of every model."""
    trained = {name: {photo.name for photo in learned} for name, learned in models.items()}
    classes = sorted({str(photo.label) for photo in models["amazon"]})
    for source in DOMAINS:
        for target in DOMAINS:
            if source != target:
                yield Target(f"{source} to {target}", source, photos.of(f"office_caltech/{target}", most))
    own = [photo for photo in photos.of("office_caltech/amazon", 30) if photo.name not in trained["amazon"]][:150]
    for style in STYLES:
        yield Target(f"amazon, {style}", "amazon", styled(own, style))
    near = photos.of("office_caltech/caltech10", 15, classes[5:], STRANGE)
    strangers = {
        "other things": near,
        "scenes": photos.of("scene15", 5, None, STRANGE),
        "rooms": photos.of("mit67", 7, None, STRANGE),
        "places": photos.of("sun397", 12, None, STRANGE),
    }
    for kind, found in strangers.items():
        yield Target(f"strangers: {kind}", "five", found)
        webcam = photos.of("office_caltech/webcam", 4, classes[:5])
        yield Target(f"{kind} and few webcam photos", "five", [*found, *webcam])
    yield Target("scenes asked about things", "scenes", near)
    known = photos.of("office_caltech/webcam", 15, classes[:5])
    for share in (25, 50, 75):
        count = round(len(known) * share / (100 - share))
        for kind, pool in (
            ("scenes", photos.of("scene15", 20, None, STRANGE)),
            ("other things", photos.of("office_caltech/caltech10", 60, classes[5:], STRANGE)),
        ):
            yield Target(f"webcam with {share} % {kind}", "five", [*known, *pool[:count]])
    for count in (1, 2, 3):
        yield Target(
            f"webcam, {count} of ten classes", "amazon", photos.of("office_caltech/webcam", 30, classes[:count])
        )


def measured(target: Target, classifier: ImageClassifier, model: object) -> Row:
    """Adapt a model to a target, and compare its answers before and after."""
    classifier.model = model  # type: ignore[assignment]
    before = {answer.name: answer for answer in classifier.answers(list(target.photos))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        after = {answer.name: answer for answer in classifier.answers(list(target.photos), adapt=True)}
    labels = {photo.name: str(photo.label) for photo in target.photos}
    named = [name for name, answer in before.items() if not answer.rejected and labels[name] != STRANGE]
    strangers = [name for name, label in labels.items() if label == STRANGE]
    known = [name for name, label in labels.items() if label != STRANGE]

    def right(answers: dict[str, Answer], names: list[str]) -> float:
        return 100 * float(np.mean([answers[name].likeliest == labels[name] for name in names] or [np.nan]))

    return Row(
        target.name,
        len(target.photos),
        classifier.refusal is not None,
        len(named),
        right(before, named),
        right(after, named),
        right(before, known),
        right(after, known),
        sum(before[name].rejected and not after[name].rejected for name in before),
        sum(after[name].rejected and not before[name].rejected for name in before),
        (sum(not before[n].rejected for n in strangers), sum(not after[n].rejected for n in strangers)),
    )


def records_of(row: Row) -> list[Record]:
    """Return what adapting did to the photos of a target that were named before, and to all of its classes."""
    if row.refused:
        return [record(f"{row.target}: {row.photos} photos, refused", 1, "")]
    records = [record(f"{row.target}: {row.photos} photos, newly rejected", row.newly_rejected, "photos")]
    for kind, before, after in (
        (f"{row.named} named ones right", row.before, row.after),
        ("all of its classes right", row.all_before, row.all_after),
    ):
        if np.isfinite(before):
            records.append(
                record(f"{row.target}: {kind}", round(after, 1), "%", None, f"before adapting: {before:.1f}")
            )
    was, now = row.strangers_named
    return [*records, record(f"{row.target}: strangers named", now, "photos", None, f"before adapting: {was}")]


def main() -> None:
    """Measure all targets."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the image sets")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    arguments = parser.parse_args()
    photos = Photos(arguments.data, arguments.seed)
    each = 8 if arguments.quick else 20
    learned = {domain: photos.of(f"office_caltech/{domain}", each) for domain in DOMAINS}
    classes = sorted({str(photo.label) for photo in learned["amazon"]})
    learned["five"] = photos.of("office_caltech/amazon", each, classes[:5])
    learned["scenes"] = photos.of("scene15", each)
    classifiers = {
        name: ImageClassifier(seed=0).fit(found, [str(p.label) for p in found]) for name, found in learned.items()
    }
    models = {name: classifier.model for name, classifier in classifiers.items()}
    rows = []
    for target in targets(photos, learned, 8 if arguments.quick else 60):
        rows.append(measured(target, classifiers[target.model], models[target.model]))
    gains = [row.after - row.before for row in rows if np.isfinite(row.before) and row.named >= 20]
    new = sum(max(0, row.strangers_named[1] - row.strangers_named[0]) for row in rows)
    cameras = float(np.mean([row.all_after - row.all_before for row in rows[:6]]))
    records: list[Record] = [
        record("targets", len(rows), "targets", 16),
        record("strangers newly named", new, "photos", 0),
        record("largest loss on named photos", -min(gains), "points", 1),
        record("mean gain on all photos of other cameras", cameras, "points"),
    ]
    write([*records, *itertools.chain.from_iterable(map(records_of, rows))], arguments.json)


if __name__ == "__main__":
    main()
