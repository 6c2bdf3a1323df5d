"""Strangers: how well photos of unknown classes are told from those of known ones, and at which price in known photos.

A model learns half of the classes of an image set, as `patchvote fit` does. Strangers are the other classes of the same
set (near), those of another camera (camera), photos of the other image set (far), and photos of scikit-image, noise,
plain colours and text (very far). Measured are the shares of known photos and of strangers that are rejected, and the
AUROC of the familiarity, beside that of the largest probability. Office+Caltech-10 and Scene-15 are read from a folder;
where they are not at hand, crops of photos of scikit-image are used.

    python benchmarks/rejection.py --quick --json rejection.json
    python benchmarks/rejection.py --voters moment-ridge snbnl --seeds 100 106 --json rejection.json
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from common import DATA, Record, make_crops, options, record, write
from experiments.datasets import read_dataset
from patchvote import ImageClassifier, Photo, find_photos
from patchvote.models.scores import Strangers
from patchvote.voters.registry import DEFAULT, OWN

CAMERAS = ("amazon", "webcam", "caltech")
KINDS = ("known", "near", "camera", "far", "very far")
PEER = "the largest probability"
Figures = dict[str, float]


def image_sets(data: Path) -> dict[str, list[Photo]]:
    """Return the photos of Scene-15, and of every camera of Office+Caltech-10."""
    sets = {"scene15": read_dataset("scene15", data / "scene15").photos}
    for photo in read_dataset("office-caltech", data / "office_caltech").photos:
        sets.setdefault(photo.name.partition("/")[0], []).append(photo)
    return sets


def very_far(quick: bool) -> list[Photo]:
    """Return photos of scikit-image, and images that nobody photographed."""
    import skimage.data

    rng, photos = np.random.default_rng(0), []
    for path in sorted(Path(skimage.data.data_dir).glob("*.[pj][np]g"))[:: 6 if quick else 1]:
        with Image.open(path) as image:
            if min(image.size) >= 64 and path.stem != "coffee":  # it shows a mug, one of the objects
                photos.append(Photo(f"shipped/{path.name}", image.convert("RGB")))
    words = ["each", "patch", "votes", "and", "the", "name", "of", "a", "photo", "shows", "where", "evidence", "is"]
    across = np.linspace(0, 1, 320)[None, :, None]
    for index in range(2 if quick else 12):
        colours = rng.integers(0, 256, (3, 3)).astype(float)
        text = Image.new("RGB", (320, 256), "white")
        for line in range(16):
            ImageDraw.Draw(text).text((8, 8 + 15 * line), " ".join(rng.choice(words, 10)), fill="black")
        images = {
            "noise": rng.integers(0, 256, (256, 320, 3)),
            "ramp": np.broadcast_to(colours[0] * across + colours[1] * (1 - across), (256, 320, 3)),
            "plain": np.broadcast_to(colours[2], (256, 320, 3)),
            "text": np.asarray(text),
        }
        photos += [Photo(f"{name}/{index}", pixels.astype(np.uint8)) for name, pixels in images.items()]
    return photos


def drawn(sets: dict[str, list[Photo]], source: str, per_class: int, seed: int, most: int) -> dict[str, list[Photo]]:
    """Draw known classes, training photos, and at most so many photos of every kind to ask about."""
    rng = np.random.default_rng([seed, per_class])
    classes = rng.permutation(sorted({str(photo.label) for photo in sets[source]}))
    known = set(classes[: len(classes) // 2].tolist())
    world = CAMERAS if source in CAMERAS else (source,)
    found: dict[str, list[Photo]] = {kind: [] for kind in ("training", *KINDS[:-1])}
    for name, photos in sets.items():
        for _, same in itertools.groupby(sorted(photos, key=lambda photo: str(photo.label)), lambda one: one.label):
            own = list(same)
            own = [own[i] for i in rng.permutation(len(own))]
            if name not in world:
                found["far"] += own
            elif name != source:
                found["camera"] += [] if own[0].label in known else own
            elif own[0].label not in known:
                found["near"] += own
            else:
                count = min(per_class, max(2, len(own) - 8))
                found["training"] += own[:count]
                found["known"] += own[count:]
    limits = {kind: None if kind == "training" else most for kind in found}
    return {kind: [some[i] for i in rng.permutation(len(some))[: limits[kind]]] for kind, some in found.items()}


def trial(photos: dict[str, list[Photo]], voter: str, seed: int) -> dict[str, Figures]:
    """Train a model; return the figures of every kind of photos."""
    classifier = ImageClassifier(voter=voter, seed=seed).fit(photos["training"])
    answers = {kind: list(classifier.answers(photos[kind])) for kind in KINDS if photos[kind]}
    signs = {
        kind: (np.array([one.familiarity for one in found]), np.array([one.likeliest_probability for one in found]))
        for kind, found in answers.items()
    }
    figures: dict[str, Figures] = {}
    for kind, found in answers.items():
        figures[kind] = {"rejected": float(np.mean([one.rejected for one in found]))}
        if kind != "known":
            names = ("",) * len(found)
            for place, score in enumerate(("familiarity", "probability")):
                strangers = Strangers(names, names, signs[kind][place], 0.0)
                figures[kind][score] = strangers.auroc(signs["known"][place])
    return figures


def trials(sets: dict[str, list[Photo]], args: Any, quick: bool) -> Iterator[tuple[str, dict[str, Figures]]]:
    """Yield the voter and the figures of every trial."""
    farther = very_far(quick)
    sources = [one for one in ("scene15", *CAMERAS, "textures") if one in sets]
    for voter, seed, source, per_class in itertools.product(args.voters, range(*args.seeds), sources, args.per_class):
        if source != "webcam" or per_class <= 10:  # a webcam has 15 photos per class or a few more
            photos = drawn(sets, source, per_class, seed, args.most) | {"very far": farther}
            figures = trial(photos, voter, seed)
            print(f"{voter}, {source}, {per_class} per class, seed {seed}: {figures}", flush=True)
            yield voter, figures


def records_of(found: list[tuple[str, dict[str, Figures]]]) -> list[Record]:
    """Return the means over the trials of a voter."""
    records = []
    for voter, kind in itertools.product(dict.fromkeys(name for name, _ in found), KINDS):
        same = [figures[kind] for name, figures in found if name == voter and kind in figures]
        if same:
            means = {name: round(float(np.mean([one[name] for one in same])), 4) for name in same[0]}
            records.append(record(f"{voter}, {kind}: rejected", 100 * means["rejected"], "%"))
            if kind != "known":
                auroc = means["familiarity"], "", means["probability"], PEER
                records.append(record(f"{voter}, {kind}: AUROC", *auroc))
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with office_caltech/ and scene15/")
    parser.add_argument("--voters", nargs="+", choices=list(OWN), default=[DEFAULT], metavar="VOTER", help="voters")
    parser.add_argument("--seeds", nargs=2, type=int, default=(100, 102), metavar=("FIRST", "END"), help="of the draws")
    parser.add_argument("--per-class", nargs="+", type=int, default=[10], help="training photos per class")
    parser.add_argument("--most", type=int, default=200, help="most photos of every kind to ask about")
    args = parser.parse_args()
    quick = args.quick or not all((args.data / name).is_dir() for name in ("office_caltech", "scene15"))
    with tempfile.TemporaryDirectory() as name:
        if quick:
            crops = find_photos(make_crops(Path(name), ("brick", "grass", "gravel", "coffee", "page", "ihc"), 16))
            sets = {"textures": [one for one in crops if one.label not in ("page", "ihc")]}
            sets["others"] = [one for one in crops if one.label in ("page", "ihc")]
        else:
            sets = image_sets(args.data)
        found = list(trials(sets, args, quick))
    write(records_of(found), args.json)


if __name__ == "__main__":
    main()
