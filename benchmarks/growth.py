"""How time and memory of training grow with the number of descriptors, and with the number of classes.

One pass of sNBNL (15 x 10 prototypes) reads stores of growing size; sNBNL (10 prototypes per class) and MomentRidge
learn the same photos, divided into more and more classes. Each point is a process of its own: its time is that of the
training alone, from opening the store to the end of `fit` (for MomentRidge, with making the photos, a twentieth of it),
and its memory the peak of the whole process. A store that fits into `memory` of SNBNL is kept there, so its memory
grows up to that budget; a second curve has a smaller budget.

A training has a constant start: the headers of the shards, the first block, the first steps. It makes small sizes look
worse, and the exponent over all sizes better, than they are. So three exponents are given: that of the two largest
sizes, where the start hardly counts; that of ``time = start + factor * size^exponent``, fitted to all sizes by the
least relative error; and that of a straight line through all points, which ignores the start.

    python benchmarks/growth.py --folder DISK --json growth.json --plot docs/growth
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from common import Record, options, record, save_plot, synthetic_bags, write
from patchvote import SNBNL, MomentRidge, Store
from patchvote.utils.machine import forget_peak_memory, peak_memory
from stores import SIZE, first_shards, make_store

CLASSES = (10, 32, 100, 316, 1000)
LARGEST = 1.05  # goal of the exponents of time, and of peak memory of one size over that of the size before
Point = dict[str, float]


# --- one point: a process of its own ----------------------------------------------------------------------------------


def trained_on_store(folder: str, classes: str, settings: str) -> int:
    """Make one pass of sNBNL over a store, whose photos count as of so many classes; return its descriptors."""
    store = Store.open(folder)
    labels = [f"{index % int(classes):04d}" for index in range(len(store))]
    SNBNL(**json.loads(settings), max_iter=1, min_steps=0, calibration=0).fit(store, labels)
    return int(store.sizes.sum())


def trained_on_means(photos: str, features: str, classes: str) -> int:
    """Train a MomentRidge on synthetic photos, of which only the means matter; return their number."""
    bags, _ = synthetic_bags(10, int(photos) // 10, 1, int(features))
    forget_peak_memory()
    labels = [f"{index % int(classes):04d}" for index in range(len(bags))]
    MomentRidge().fit(bags, labels)
    return len(bags)


WORK = {"store": trained_on_store, "means": trained_on_means}


def measured(kind: str, *words: object, repeats: int) -> Point:
    """Measure one training in processes of its own; of several, the fastest counts."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))}
    points: list[Point] = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--point", kind, *map(str, words)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        points.append(json.loads(done.stdout.splitlines()[-1]))
    return min(points, key=lambda point: point["seconds"])


def one_point(kind: str, words: list[str]) -> None:
    """Do the work of a point, and print what it took."""
    start, busy = time.perf_counter(), time.process_time()
    size = WORK[kind](*words)
    seconds, processor = time.perf_counter() - start, time.process_time() - busy
    print(json.dumps({"size": size, "seconds": seconds, "processor": processor, "gigabytes": peak_memory() / 1e9}))


# --- exponents --------------------------------------------------------------------------------------------------------


def fitted(sizes: Any, seconds: Any) -> tuple[float, float, float]:
    """Fit ``start + factor * size^exponent`` by the least relative error; return the three."""
    x, y = np.log(np.asarray(sizes, float)), np.asarray(seconds, float)
    middle = x.mean()

    def off(guess: Any) -> Any:
        return np.log((guess[0] + np.exp(guess[1] + guess[2] * (x - middle))) / y)

    first = [y.min() / 2, np.log(np.median(y)), 1.0]
    best = least_squares(off, first, bounds=([0, -50, 0], [y.min(), 50, 3]), xtol=1e-12, ftol=1e-12)
    start, scale, exponent = best.x
    return float(start), float(np.exp(scale - exponent * middle)), float(exponent)


def exponents(what: str, by: str, points: list[Point]) -> list[Record]:
    """Return the exponents of time and of processor time, and what becomes of peak memory."""
    records, sizes = [], [point["size"] for point in points]
    logs = np.log(sizes)
    for name, key in (("time", "seconds"), ("processor time", "processor")):
        values = [point[key] for point in points]
        start, _, exponent = fitted(sizes, values)
        last = float(np.diff(np.log(values[-2:]))[0] / np.diff(logs[-2:])[0])
        line = float(np.polyfit(logs, np.log(values), 1)[0])
        records += [
            record(f"exponent of {name} by {by}, {what}, two largest sizes", last, "", LARGEST),
            record(f"exponent of {name} by {by}, {what}, with a constant start", exponent, "", LARGEST),
            record(f"constant start in {name} by {by}, {what}", start, "s"),
            record(f"exponent of {name} by {by}, {what}, straight line", line, ""),
        ]
    peak, before = points[-1]["gigabytes"], points[-2]["gigabytes"]
    flat = LARGEST if by == "descriptors" else None  # prototypes grow with the classes, whatever the code does
    return [*records, record(f"peak memory by {by}, {what}, largest over second largest", peak / before, "ratio", flat)]


# --- the curves -------------------------------------------------------------------------------------------------------


def by_descriptors(store: Store, folder: Path, largest: int, args: Any) -> dict[str, list[Point]]:
    """Measure one pass over stores of 10^4 descriptors and more, half a decade apart, with two budgets of memory."""
    counts = 10 ** np.arange(4, np.log10(largest) + 0.01, 0.5)
    curves: dict[str, list[Point]] = {f"sNBNL, memory={budget}": [] for budget in (1500, args.budget)}
    for number, count in enumerate(counts):
        part = first_shards(store, folder / f"part-{number}", int(count))
        for name, points in curves.items():
            settings = json.dumps({"memory": float(name.partition("=")[2])})
            points.append(measured("store", part, 15, settings, repeats=args.repeats))
            tell(f"{name}, {points[-1]['size']:,.0f} descriptors", points[-1])
    return curves


def by_classes(store: Store, folder: Path, args: Any) -> dict[str, list[Point]]:
    """Measure sNBNL and MomentRidge with 10 to 1,000 classes of the same photos."""
    part = first_shards(store, folder / "classes", args.class_photos * SIZE)
    curves: dict[str, list[Point]] = {"sNBNL": [], "MomentRidge": []}
    for classes in [count for count in CLASSES if count <= args.class_photos]:
        work: tuple[Any, ...] = (("sNBNL", "store", part, classes, "{}"),)
        work += (("MomentRidge", "means", 5 * args.class_photos, args.features, classes),)
        for name, *words in work:
            curves[name].append(measured(*words, repeats=args.repeats) | {"size": classes})
            tell(f"{name}, {classes:,} classes", curves[name][-1])
    return curves


def tell(name: str, point: Point) -> None:
    """Print a point."""
    print(f"{name}: {point['seconds']:.2f} s, {point['processor']:.2f} s of processor, {point['gigabytes']:.2f} GB")


def point_records(name: str, points: list[Point]) -> list[Record]:
    """Return the records of a curve's points."""
    units = {"seconds": ("time", "s"), "processor": ("processor time", "s"), "gigabytes": ("peak memory", "GB")}
    return [
        {"name": f"{what}, {name} {point['size']:,.0f}", "value": point[key], "unit": unit, "goal": None, "peer": None}
        for point in points
        for key, (what, unit) in units.items()
    ]


def draw(curves: dict[str, dict[str, list[Point]]], file: Path) -> None:
    """Draw time and peak memory of all curves, beside lines of exponent 1, as PNG and SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col")
    for column, (by, lines) in enumerate(curves.items()):
        times, peaks = panels[:, column]
        for name, points in lines.items():
            x, clock, busy, memory = (
                np.array([point[key] for point in points]) for key in ("size", "seconds", "processor", "gigabytes")
            )
            (line,) = times.loglog(x, busy, "o-", label=f"{name}, processor", markersize=4)
            times.loglog(x, clock, "x--", color=line.get_color(), label=f"{name}, clock", linewidth=0.8, markersize=4)
            times.loglog(x, busy[-1] * x / x[-1], ":", color=line.get_color(), linewidth=1)
            peaks.semilogx(x, memory, "o-", label=name, markersize=4)
        times.set_ylabel("seconds")
        peaks.set_ylabel("peak memory, GB")
        peaks.set_ylim(bottom=0)
        peaks.set_xlabel(by)
        for panel in (times, peaks):
            panel.grid(alpha=0.3)
            panel.legend(fontsize=7)
    save_plot(figure, file)


def main() -> None:
    """Run the benchmark, or one point of it."""
    parser = options(__doc__)
    parser.add_argument("--largest", type=int, help="descriptors of the largest store (default: 10 million, 26 GB)")
    parser.add_argument("--class-photos", type=int, help="photos that are divided into classes (default: 1,000)")
    parser.add_argument("--repeats", type=int, default=1, help="processes per point, of which the fastest counts")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="folder on a disk with room for the stores")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves as FILE.png and FILE.svg")
    parser.add_argument("--point", nargs="+", help="do one point, and print it (used by the benchmark itself)")
    args = parser.parse_args()
    if args.point:
        one_point(args.point[0], args.point[1:])
        return
    args.features = 64 if args.quick else 1280
    largest = args.largest or (100_000 if args.quick else 10_000_000)
    args.class_photos = args.class_photos or (32 if args.quick else 1000)
    args.budget = 100 if args.quick else 300
    folder = Path(tempfile.mkdtemp(dir=args.folder, prefix="growth-"))
    try:
        store = make_store(folder / "whole", max(largest, args.class_photos * SIZE), 15, args.features)
        curves = {
            "descriptors": by_descriptors(store, folder, largest, args),
            "classes": by_classes(store, folder, args),
        }
    finally:
        shutil.rmtree(folder)
    records: list[Record] = []
    for by, lines in curves.items():
        for name, points in lines.items():
            records += point_records(f"{name}, {by}", points)
            records += exponents(name, by, points)
    if args.plot is not None:
        draw(curves, args.plot)
    write(records, args.json)


if __name__ == "__main__":
    main()
