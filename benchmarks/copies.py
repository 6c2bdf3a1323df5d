"""Copies that are found, and pairs of different photos that are taken for copies.

Some photos of Scene-15, Amazon and Caltech are changed as copies are (saved again, made smaller, cropped, mirrored) and
looked for among all photos of their set; every other pair that is found is an alarm, which real look-alikes (the same
product on white) raise as well. With --quick, Amazon alone.

    python benchmarks/copies.py --json results/default/copies.json
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from common import DATA, Record, options, record, write
from patchvote import Bags, Extractor, Photo, find_photos
from patchvote.bags.copies import copy_pairs
from patchvote.bags.described import described
from patchvote.bags.moments import KeptMoments, MomentBags
from patchvote.networks.bases import basis_of
from patchvote.photos.decode import load_image

SETS = {"Amazon": "office_caltech/amazon", "Caltech": "office_caltech/caltech10", "Scene-15": "scene15"}
CHANGED = 40  # photos of each set


def saved(quality: int) -> Callable[[Image.Image], Image.Image]:
    """Return the function that saves an image as JPEG and reads it again."""

    def again(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return again


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "saved again at quality 95": saved(95),
    "saved again at quality 75": saved(75),
    "saved again at quality 60": saved(60),
    "at two thirds of its size": lambda image: image.resize((image.width * 2 // 3, image.height * 2 // 3)),
    "cropped by 3 %": lambda image: ImageOps.crop(image, max(1, round(0.015 * min(image.size)))),
    "mirrored": ImageOps.mirror,
}


def measured(name: str, folder: Path, extractor: Extractor) -> list[Record]:
    """Return the share of copies that are found, by change, and the alarms."""
    photos, keep = find_photos(folder), KeptMoments(basis_of(extractor.backbone.spec))
    items = [item for item in described(photos, extractor, keep) if isinstance(item.bag, MomentBags)]
    own, digests = [item.bag for item in items], [item.digest for item in items]
    chosen = np.linspace(0, len(own) - 1, CHANGED).astype(int)
    originals = [load_image(items[row].photo).convert("RGB") for row in chosen]
    images = [np.asarray(change(image).convert("RGB")) for change in CHANGES.values() for image in originals]
    made = [keep.of(item.bag) for item in extractor.stream([Photo(str(i), pixels) for i, pixels in enumerate(images)])]
    bags: list[Bags] = [*own, *made]
    pairs, certain = copy_pairs(MomentBags.joined(bags), [*digests, *(f"changed {i}" for i in range(len(made)))])
    found = {(int(one), int(other)): bool(sure) for (one, other), sure in zip(pairs, certain, strict=True)}
    records = []
    for number, change in enumerate(CHANGES):
        places = [(int(row), len(own) + number * len(chosen) + k) for k, row in enumerate(chosen)]
        share = 100 * float(np.mean([place in found for place in places]))
        records.append(record(f"{name}, {change}, found", share, "%"))
    sure = [found.get((int(row), len(own) + k), False) for k, row in enumerate(chosen)]
    records.append(record(f"{name}, {next(iter(CHANGES))}, certain", 100 * float(np.mean(sure)), "%"))
    others = {pair for pair in found if max(pair) < len(own) and digests[pair[0]] != digests[pair[1]]}
    count = len(own) * (len(own) - 1) // 2
    records.append(record(f"{name}, alarms", 1000 * len(others) / count, "per 1,000 pairs"))
    records.append(record(f"{name}, certain alarms", sum(found[pair] for pair in others), "pairs"))
    return records


def main() -> None:
    """Measure all sets."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the image sets")
    arguments = parser.parse_args()
    extractor = Extractor()
    names = ["Amazon"] if arguments.quick else list(SETS)
    write([r for name in names for r in measured(name, arguments.data / SETS[name], extractor)], arguments.json)


if __name__ == "__main__":
    main()
