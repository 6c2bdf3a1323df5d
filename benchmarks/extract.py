"""The rate of extraction compared with the network alone, and the peak memory of extraction.

Prints, in one run and for both modes, the photos per second of `patchvote extract` (read, decode, cut, network, write)
and of the bare forward pass in ONNX Runtime, of the same graph on the same tensors; and the peak memory while
extracting many photos. The bare forward pass is run with all cores per call and with one core per call, and the faster
one is the peer. Dense extraction and its peer are measured once more beside a second process that keeps a core busy.

    python benchmarks/extract.py --photos scene15/ --json extract.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from common import DATA, Record, options, record, write
from patchvote import Dense, Extractor, Patch, Photo, Recipe, fill, find_photos
from patchvote.networks import load
from patchvote.utils.machine import cores, peak_memory

# By mode: recipe, photos per round, rounds, rounds with --quick, goal of the ratio.
MODES = {
    "dense": (Recipe(sampling=Dense()), 150, 10, 4, 0.90),
    "patch": (Recipe(sampling=Patch()), 6, 12, 2, 0.90),
}
BUSY = 0.85  # goal of the ratio of dense extraction beside a busy process


@contextlib.contextmanager
def busy_process() -> Iterator[None]:
    """Keep one core busy with another process, which ends by itself after an hour at the latest."""
    work = "import time; end = time.monotonic() + 3600\nwhile time.monotonic() < end: sum(range(1000))"
    process = subprocess.Popen([sys.executable, "-c", work])
    try:
        yield
    finally:
        process.kill()
        process.wait()


class Recording:
    """A backbone that records its input tensors, for the bare forward pass."""

    def __init__(self, recipe: Recipe) -> None:
        self.inner = load(recipe.network)
        self.spec = self.inner.spec
        self.tensors: list[np.ndarray] = []

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Describe images, and record the tensor."""
        tensor = self.spec.preprocessing(images)
        self.tensors.append(tensor)
        return self.inner.describe(tensor)


def bare_forward(sessions: dict[str, object], tensors: list[np.ndarray], jobs: int) -> dict[str, float]:
    """Return the seconds that the network alone takes for these tensors, in both ways of using the cores."""
    seconds = {}
    start = time.perf_counter()
    for tensor in tensors:
        sessions["all cores per call"].describe(tensor)
    seconds["all cores per call"] = time.perf_counter() - start
    with ThreadPoolExecutor(jobs) as pool:
        start = time.perf_counter()
        for _ in pool.map(sessions["one core per call"].describe, tensors):
            pass
        seconds["one core per call"] = time.perf_counter() - start
    return seconds


def extraction(photos: list[Photo], extractor: Extractor) -> float:
    """Return the seconds from reading photos to a store of their bags."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        fill(Path(folder) / "store", photos, extractor)
        return time.perf_counter() - start


def measure_rate(mode: str, photos: list[Photo], quick: bool, goal: float, beside: str = "") -> list[Record]:
    """Measure extraction and forward pass in turns, each first in every other round: other load then affects both."""
    recipe, per_round, rounds, quick_rounds, _ = MODES[mode]
    rounds = quick_rounds if quick else rounds
    per_round = min(per_round, max(2, len(photos) // 12)) if quick else per_round
    jobs = cores()
    extractor = Extractor(recipe)
    sessions = {"all cores per call": load(recipe.network, threads=jobs), "one core per call": load(recipe.network)}
    ours, bare = 0.0, dict.fromkeys(sessions, 0.0)
    for backbone in (extractor.backbone, *sessions.values()):  # warm up
        Extractor(recipe, backbone=backbone)(photos[:2])
    extraction(photos[:2], extractor)
    for index in range(rounds):
        chosen = [photos[(index * per_round + k) % len(photos)] for k in range(per_round)]
        recording = Recording(recipe)
        for _ in Extractor(recipe, backbone=recording).stream(chosen):
            pass
        ours += extraction(chosen, extractor) if index % 2 else 0.0
        for way, seconds in bare_forward(sessions, recording.tensors, jobs).items():
            bare[way] += seconds
        ours += 0.0 if index % 2 else extraction(chosen, extractor)
        del recording
    count = rounds * per_round
    way = min(bare, key=bare.__getitem__)
    for name, seconds in bare.items():
        print(f"{mode:<6} bare forward, {name:<18} {count / seconds:8.2f} photos/s")
    print(f"{mode:<6} extract into a store            {count / ours:8.2f} photos/s: ratio {bare[way] / ours:.3f}")
    peer = f"bare ONNX Runtime forward, {way}"
    return [
        record(f"{mode} extract rate{beside}", count / ours, "photos/s", None, peer),
        record(f"{mode} bare forward rate{beside}", count / bare[way], "photos/s", None, peer),
        record(f"{mode} extract over bare forward{beside}", bare[way] / ours, "ratio", goal, peer),
    ]


def measure_batches() -> None:
    """Print the tiles per second by batch size, which shows why batches are small."""
    net, jobs = load("efficientnet-lite0"), cores()
    for side, counts in ((64, (1, 8, 32, 128)), (224, (1, 2, 8, 32)), (448, (1, 2, 8))):
        rates = []
        for count in counts:
            tensor = np.zeros((count, 3, side, side), np.float32)
            repeats = max(2 * jobs, round(3e7 / tensor[0].size / count) // 3)
            with ThreadPoolExecutor(jobs) as pool:
                start = time.perf_counter()
                for _ in pool.map(net.describe, [tensor] * repeats):
                    pass
            rates.append(f"{count}: {count * repeats / (time.perf_counter() - start):,.0f}/s")
        print(f"tiles of {side} px by batch size   " + ", ".join(rates))


def measure_memory(mode: str, source: Path, limit: int) -> list[Record]:
    """Measure the peak memory of an extraction in a new process, after a third of the photos and at the end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--memory-child", mode, "--limit", str(limit)]
        command += ["--photos", str(source), "--store", folder]
        measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"{mode:<6} peak memory over {measured['photos']:,} photos: {measured['end']:.0f} MB; over the first third of "
        f"them {measured['third']:.0f} MB ({measured['photos'] / measured['seconds']:.1f} photos/s)"
    )
    ratio, peer = measured["end"] / measured["third"], "the same run after a third of the photos"
    return [
        record(f"{mode} peak memory", measured["end"], "MB", 900),
        record(f"{mode} peak memory, all photos over the first third", ratio, "ratio", 1.05, peer),
        record(f"{mode} photos extracted for the peak", measured["photos"], "photos"),
    ]


def memory_child(mode: str, source: Path, limit: int, store: Path) -> None:
    """Extract for `measure_memory` and print the measurements; a separate process has a peak memory of its own."""
    photos = choose(source)[:limit]
    thirds: list[float] = []

    def watch(filled: object) -> None:
        if filled.done >= len(photos) // 3 and not thirds:
            thirds.append(peak_memory() / 2**20)

    filled = fill(store / "store", photos, Extractor(MODES[mode][0]), progress=watch)
    peak = peak_memory() / 2**20
    print(json.dumps({"photos": filled.photos, "third": thirds[0], "end": peak, "seconds": filled.seconds}))


def choose(source: Path) -> list[Photo]:
    """Return all photos in a fixed random order, so that every part is representative."""
    photos = find_photos(source)
    random.Random(0).shuffle(photos)
    return photos


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, default=DATA / "scene15", help="folder of photos; Scene-15 by default")
    parser.add_argument("--memory-child", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_child is not None:
        memory_child(args.memory_child, args.photos, args.limit, args.store)
        return
    photos = choose(args.photos)
    figures = [figure for mode in MODES for figure in measure_rate(mode, photos, args.quick, MODES[mode][-1])]
    with busy_process():
        figures += measure_rate("dense", photos, args.quick, BUSY, ", beside a busy process")
    if not args.quick:
        measure_batches()
    figures += measure_memory("dense", args.photos, 400 if args.quick else len(photos))
    figures += measure_memory("patch", args.photos, min(12, len(photos) // 4) if args.quick else 60)
    write(figures, args.json)


if __name__ == "__main__":
    main()
