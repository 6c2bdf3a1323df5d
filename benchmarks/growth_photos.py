"""How time and memory of the whole commands `fit` and `predict` grow with the number of photos, and of classes.

Each point is a command of its own that finds nothing in a cache: `patchvote fit` of so many photos, and `patchvote
predict` of the same photos with the model that they gave. Photos come from a folder of class folders, or from
scikit-image as random crops. For the number of classes, the same photos are divided into more and more classes,
whatever they show: nothing can be learned from that, which is the slowest case. Exponents as in `growth.py`, which
measures training alone, by descriptors and by classes.

    python benchmarks/growth_photos.py --photos scene15 --json growth-photos.json --plot growth-photos
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path

import numpy as np

from common import Record, options, run_command, write
from crops import make_crops
from growth import Point, draw, exponents, point_records, tell
from patchvote import find_photos

SIZES = (30, 100, 300, 1000)
CLASSES = (3, 10, 30, 100)
CLASS_PHOTOS = 300  # which are divided into classes
Labelled = list[tuple[Path, str]]


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


def commands(photos: Labelled) -> dict[str, Point]:
    """Run `fit` and `predict` on photos; return what each took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, model = linked(photos, folder / "photos"), folder / "model.patchvote"
        start, rest = [sys.executable, "-m", "patchvote"], ["--no-cache", "--quiet"]
        work = {
            "fit": [*start, "fit", str(source), str(model), *rest],
            "predict": [*start, "predict", str(model), str(source), *rest, "-o", str(folder / "answers.csv")],
        }
        return {name: dataclasses.asdict(run_command(command, folder)) for name, command in work.items()}


def by_photos(photos: Labelled, sizes: tuple[int, ...]) -> dict[str, list[Point]]:
    """Measure both commands with more and more photos."""
    curves: dict[str, list[Point]] = {"fit": [], "predict": []}
    for size in [size for size in sizes if size <= len(photos)]:
        for name, point in commands(photos[:size]).items():
            curves[name].append(point | {"size": size})
            tell(f"{name}, {size:,} photos", curves[name][-1])
    return curves


def by_classes(photos: Labelled, counts: tuple[int, ...]) -> dict[str, list[Point]]:
    """Measure both commands with more and more classes of the same photos, two per class at least."""
    curves: dict[str, list[Point]] = {"fit": [], "predict": []}
    for count in [count for count in counts if 2 * count <= len(photos)]:
        divided = [(file, f"{index % count:03d}") for index, (file, _) in enumerate(photos)]
        for name, point in commands(divided).items():
            curves[name].append(point | {"size": count})
            tell(f"{name}, {count:,} classes", curves[name][-1])
    return curves


def table(curves: dict[str, dict[str, list[Point]]]) -> str:
    """Return what the ends of each curve took, and the exponents of time between its two largest sizes."""
    lines = [
        "| command | by | from | to | seconds | exponent of seconds | exponent of processor time | peak memory |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for by, commands_of in curves.items():
        for name, points in commands_of.items():
            if len(points) < 2:
                continue
            first, (before, last) = points[0], points[-2:]
            step = np.log(last["size"] / before["size"])
            clock, busy = (np.log(last[key] / before[key]) / step for key in ("seconds", "processor"))
            lines.append(
                f"| {name} | {by} | {first['size']:,.0f} | {last['size']:,.0f} "
                f"| {first['seconds']:.1f} to {last['seconds']:.1f} | {clock:.2f} | {busy:.2f} "
                f"| {first['gigabytes']:.2f} to {last['gigabytes']:.2f} GB |"
            )
    return "\n".join(lines) + "\n\nExponents are those between the two largest sizes.\n"


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument(
        "--photos", type=Path, help="folder of class folders; without it, crops of scikit-image's photos"
    )
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a table of the curves' ends to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves as FILE.png and FILE.svg")
    args = parser.parse_args()
    sizes, counts, divided = ((12, 24), (2, 6), 12) if args.quick else (SIZES, CLASSES, CLASS_PHOTOS)
    with tempfile.TemporaryDirectory() as name:
        photos = found(args.photos or make_crops(Path(name) / "crops", sizes[-1]))
        if len(photos) < sizes[0]:
            raise SystemExit(f"{args.photos} has {len(photos)} photos: growth is measured from {sizes[0]} on.")
        curves = {"photos": by_photos(photos, sizes), "classes": by_classes(photos[:divided], counts)}
    records: list[Record] = []
    for by, lines in curves.items():
        for what, points in lines.items():
            records += point_records(f"{what}, {by}", points)
            records += exponents(what, by, points) if len(points) > 1 else []
    print(table(curves))
    if args.table is not None:
        args.table.write_text(table(curves))
    if args.plot is not None:
        draw(curves, args.plot)
    write(records, args.json)


if __name__ == "__main__":
    main()
