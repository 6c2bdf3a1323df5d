"""How much of the network's own speed is left when whole photos are extracted, and how much memory it takes.

Prints, in one run, photos a second of `patchvote extract` (read, decode, cut, network, write) and of the bare ONNX
Runtime forward on the very tensors that the network saw, both modes; and the peak memory while extracting many photos.
The bare forward is run in two ways, one call on all cores and one call a core, and the faster one is the peer.

    python benchmarks/extract.py --photos scene15/ --json extract.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from common import Record, options, record, write
from patchvote import Dense, Extractor, Patch, Photo, Recipe, fill, find_photos
from patchvote.backbones import load
from patchvote.utils.machine import cores

HERE = Path(__file__).resolve().parent
# mode: recipe, photos a round, rounds, rounds with --quick, the ratio to reach
MODES = {
    "dense": (Recipe(sampling=Dense()), 150, 10, 3, 0.85),
    "patch": (Recipe(sampling=Patch()), 6, 12, 2, 0.90),
}


class Recording:
    """A backbone that keeps the tensors it is given, ready for a bare forward."""

    def __init__(self, recipe: Recipe) -> None:
        self.inner = load(recipe.network)
        self.spec = self.inner.spec
        self.tensors: list[np.ndarray] = []

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Describe as always, and keep what went in."""
        tensor = self.spec.preprocessing(images)
        self.tensors.append(tensor)
        return self.inner.describe(tensor)


def bare_forward(sessions: dict[str, object], tensors: list[np.ndarray], jobs: int) -> dict[str, float]:
    """Seconds that nothing but the network takes for these tensors, in both ways of using the cores."""
    seconds = {}
    begin = time.perf_counter()
    for tensor in tensors:
        sessions["all cores a call"].describe(tensor)
    seconds["all cores a call"] = time.perf_counter() - begin
    with ThreadPoolExecutor(jobs) as pool:
        begin = time.perf_counter()
        for _ in pool.map(sessions["a core a call"].describe, tensors):
            pass
        seconds["a core a call"] = time.perf_counter() - begin
    return seconds


def measure_rate(mode: str, photos: list[Photo], quick: bool) -> list[Record]:
    """Extract and forward in turns, so that other work on the machine meets both alike."""
    recipe, per_round, rounds, quick_rounds, goal = MODES[mode]
    rounds = quick_rounds if quick else rounds
    per_round = min(per_round, max(2, len(photos) // 12)) if quick else per_round
    jobs = cores()
    extractor = Extractor(recipe)
    sessions = {"all cores a call": load(recipe.network, threads=jobs), "a core a call": load(recipe.network)}
    ours, bare = 0.0, dict.fromkeys(sessions, 0.0)
    for backbone in (extractor.backbone, *sessions.values()):  # warm up alike
        Extractor(recipe, backbone=backbone)(photos[:2])
    for index in range(rounds):
        chosen = [photos[(index * per_round + k) % len(photos)] for k in range(per_round)]
        recording = Recording(recipe)
        for _ in Extractor(recipe, backbone=recording).stream(chosen):
            pass
        for way, seconds in bare_forward(sessions, recording.tensors, jobs).items():
            bare[way] += seconds
        del recording
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            fill(Path(folder) / "store", chosen, extractor)
            ours += time.perf_counter() - begin
    count = rounds * per_round
    way = min(bare, key=bare.__getitem__)
    for name, seconds in bare.items():
        print(f"{mode:<6} bare forward, {name:<17} {count / seconds:8.2f} photos a second")
    print(f"{mode:<6} extract into a store           {count / ours:8.2f} photos a second: ratio {bare[way] / ours:.3f}")
    peer = f"bare ONNX Runtime forward, {way}"
    return [
        record(f"{mode} extract rate", count / ours, "photos/s", None, peer),
        record(f"{mode} bare forward rate", count / bare[way], "photos/s", None, peer),
        record(f"{mode} extract over bare forward", bare[way] / ours, "ratio", goal, peer),
    ]


def measure_batches() -> None:
    """Show why batches are as small as they are: tiles a second by the number of them in one call."""
    net, jobs = load("efficientnet-lite0"), cores()
    for side, counts in ((64, (1, 8, 32, 128)), (224, (1, 2, 8, 32)), (448, (1, 2, 8))):
        rates = []
        for count in counts:
            tensor = np.zeros((count, 3, side, side), np.float32)
            repeats = max(2 * jobs, round(3e7 / tensor[0].size / count) // 3)
            with ThreadPoolExecutor(jobs) as pool:
                begin = time.perf_counter()
                for _ in pool.map(net.describe, [tensor] * repeats):
                    pass
            rates.append(f"{count}: {count * repeats / (time.perf_counter() - begin):,.0f}/s")
        print(f"tiles of {side} px by batch   " + ", ".join(rates))


def measure_memory(mode: str, source: Path, limit: int) -> list[Record]:
    """Extract into a store in a fresh process; its peak memory after a third of the photos, and at the end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--memory-child", mode, "--limit", str(limit)]
        command += ["--photos", str(source), "--store", folder]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"{mode:<6} peak memory over {told['photos']:,} photos: {told['end']:.0f} MB; over the first third of them "
        f"{told['third']:.0f} MB ({told['photos'] / told['seconds']:.1f} photos a second)"
    )
    peer = "the same run after a third of the photos"
    return [
        record(f"{mode} peak memory", told["end"], "MB", 900),
        record(
            f"{mode} peak memory, all photos over the first third", told["end"] / told["third"], "ratio", 1.05, peer
        ),
        record(f"{mode} photos extracted for the peak", told["photos"], "photos"),
    ]


def memory_child(mode: str, source: Path, limit: int, store: Path) -> None:
    """Do the work of `measure_memory` and print its figures (in a process of its own, so that the peak is its own)."""

    def peak() -> float:
        # Not from getrusage: there, a process starts with the peak of the one that started it.
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    photos = choose(source)[:limit]
    thirds: list[float] = []

    def watch(filled: object) -> None:
        if filled.done >= len(photos) // 3 and not thirds:
            thirds.append(peak())

    filled = fill(store / "store", photos, Extractor(MODES[mode][0]), progress=watch)
    print(json.dumps({"photos": filled.photos, "third": thirds[0], "end": peak(), "seconds": filled.seconds}))


def choose(source: Path) -> list[Photo]:
    """All photos, in a fixed random order, so that every part of them is like the whole."""
    photos = find_photos(source)
    random.Random(0).shuffle(photos)
    return photos


def main() -> None:
    """Run what the command line asks for."""
    default = Path(os.environ.get("PATCHVOTE_DATA", HERE.parent.parent / "shared" / "data")) / "scene15"
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, default=default, help="folder of photos; Scene-15 by default")
    parser.add_argument("--memory-child", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.memory_child is not None:
        memory_child(words.memory_child, words.photos, words.limit, words.store)
        return
    photos = choose(words.photos)
    figures = [figure for mode in MODES for figure in measure_rate(mode, photos, words.quick)]
    if not words.quick:
        measure_batches()
    figures += measure_memory("dense", words.photos, 400 if words.quick else len(photos))
    figures += measure_memory("patch", words.photos, min(12, len(photos) // 4) if words.quick else 60)
    write(figures, words.json)


if __name__ == "__main__":
    main()
