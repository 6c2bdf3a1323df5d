"""How time and memory of the whole commands `fit` and `predict` grow with the number of photos, and of classes.

Each point is a command of its own that finds nothing in a cache: `patchvote fit` of so many photos, and `patchvote
predict` of the same photos with the model that they gave. Photos come from a folder of class folders, or from
scikit-image as random crops. For the number of classes, the same photos are divided into more and more classes,
whatever they show: nothing can be learned from that, which is the slowest case. (`scale.py` measures training alone, by
descriptors and by classes.)

A command has a constant start, which makes an exponent over all sizes look better than it is: the exponent is that
between the two largest sizes.

    python benchmarks/growth.py --photos scene15 --json growth.json
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path

import numpy as np

from common import Record, make_crops, options, record, run_command, write
from patchvote import find_photos

SIZES = (30, 100, 300, 1000)
CLASSES = (3, 10, 30, 100)
CLASS_PHOTOS = 300  # which are divided into classes
LARGEST = 1.05  # goal of the exponents of time
CROPPED = ("brick", "grass", "gravel", "coffee")
Labelled = list[tuple[Path, str]]
Point = dict[str, float]


def found(source: Path) -> Labelled:
    """Return all photos with their labels in a fixed random order, so that every part has photos of most classes."""
    photos = [(Path(str(photo.source)).resolve(), str(photo.label)) for photo in find_photos(source)]
    return [photos[index] for index in np.random.default_rng(0).permutation(len(photos))]


def linked(photos: Labelled, folder: Path) -> Path:
    """Make class folders of links to photos."""
    for number, (file, label) in enumerate(photos):
        target = folder / label / f"{number:06d}{file.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(file)
    return folder


def commands(photos: Labelled, size: int, by: str) -> dict[str, Point]:
    """Run `fit` and `predict` on photos; return what each took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, model = linked(photos, folder / "photos"), folder / "model.patchvote"
        start, rest = [sys.executable, "-m", "patchvote"], ["--no-cache", "--quiet"]
        work = {
            "fit": [*start, "fit", str(source), str(model), *rest],
            "predict": [*start, "predict", str(model), str(source), *rest, "-o", str(folder / "answers.csv")],
        }
        points = {
            name: dataclasses.asdict(run_command(command, folder)) | {"size": size} for name, command in work.items()
        }
    for name, point in points.items():
        print(f"{name}, {size:,} {by}: {point['seconds']:.2f} s, {point['gigabytes']:.2f} GB", flush=True)
    return points


def curves_of(photos: Labelled, quick: bool) -> dict[str, dict[str, list[Point]]]:
    """Measure both commands with more and more photos, and with more and more classes of the same photos."""
    sizes, counts, divided = ((12, 24), (2, 6), 12) if quick else (SIZES, CLASSES, CLASS_PHOTOS)
    if len(photos) < sizes[0]:
        raise SystemExit(f"there are {len(photos)} photos: growth is measured from {sizes[0]} on.")
    by_photos = [commands(photos[:size], size, "photos") for size in sizes if size <= len(photos)]
    files = [file for file, _ in photos[:divided]]
    by_classes = [
        commands([(file, f"{index % count:03d}") for index, file in enumerate(files)], count, "classes")
        for count in counts
        if 2 * count <= len(files)
    ]
    return {
        by: {name: [point[name] for point in points] for name in ("fit", "predict")}
        for by, points in (("photos", by_photos), ("classes", by_classes))
    }


def records_of(command: str, by: str, points: list[Point]) -> list[Record]:
    """Return the records of a curve: its points, and the exponents of time and of processor time."""
    records = [
        record(f"{what}, {command}, {by} {point['size']:,.0f}", point[key], unit)
        for point in points
        for key, what, unit in (
            ("seconds", "time", "s"),
            ("processor", "processor time", "s"),
            ("gigabytes", "peak memory", "GB"),
        )
    ]
    for key, what in (("seconds", "time"), ("processor", "processor time")) if len(points) > 1 else ():
        before, last = points[-2:]
        exponent = float(np.log(last[key] / before[key]) / np.log(last["size"] / before["size"]))
        records.append(record(f"exponent of {what} by {by}, {command}", exponent, "", LARGEST))
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument(
        "--photos", type=Path, help="folder of class folders; without it, crops of scikit-image's photos"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        each = 6 if args.quick else SIZES[-1] // len(CROPPED)
        photos = found(args.photos or make_crops(Path(name) / "crops", CROPPED, each))
        curves = curves_of(photos, args.quick)
    write(
        [one for by, lines in curves.items() for name in lines for one in records_of(name, by, lines[name])], args.json
    )


if __name__ == "__main__":
    main()
