"""Time, memory and accuracy of the classifier: fit, add, forget and predict.

Photos come from a labelled folder, such as Scene-15: 100 training and 100 test photos per class, 20 of them for the
whole command `fit`. Its peer is a script that starts Python and ONNX Runtime and passes the same sizes through the
network, with one thread per call and a call per core.

    python benchmarks/classifier.py --photos scene15/ --json classifier.json
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from common import Record, choose_photos, installed, options, record, run_command, timed, write
from patchvote import ImageClassifier
from patchvote.networks import load
from patchvote.photos.find import Photo
from patchvote.utils.machine import cores

# The minimum that a command needs for a photo: Python, onnxruntime, the network's file, a forward pass per scale.
BARE = """
import os, sys
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as patchvote does
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
for size in sys.argv[2:]:
    width, height = map(int, size.split("x"))
    session.run(None, {name: np.zeros((1, 3, height, width), np.float32)})
"""

# The same for the photos of a fit: all of their sizes, a call per core.
BARE_FIT = """
import os, sys
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
from concurrent.futures import ThreadPoolExecutor
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
def forward(size):
    width, height = map(int, size.split("x"))
    session.run(None, {name: np.zeros((1, 3, height, width), np.float32)})
with ThreadPoolExecutor(int(sys.argv[2])) as pool:
    list(pool.map(forward, open(sys.argv[3]).read().split()))
"""
SIDES = (224, 448)  # of the default recipe


def measure_fit(train: list[Photo], test: list[Photo], folder: Path) -> tuple[list[Record], ImageClassifier]:
    """Measure the announced accuracy, the accuracy on test photos, and the network's share of the time."""
    start = time.perf_counter()
    classifier = ImageClassifier(cache=folder / "cache").fit(train)
    total = time.perf_counter() - start
    seconds = classifier.model.about.seconds
    announced = classifier.model.about.held_out
    scores = classifier.evaluate(test)
    inside = announced["interval"][0] <= scores.accuracy <= announced["interval"][1]
    again = ImageClassifier(cache=folder / "cache").fit(train)
    return [
        record("accuracy announced", 100 * announced["accuracy"], "%"),
        record("accuracy on test photos", 100 * scores.accuracy, "%", 93),
        record("test accuracy within the interval announced", float(inside), "yes or no", 1),
        record("share of fit that is extraction", 100 * seconds["network"] / total, "%", 90),
        record("photos through the network in a second fit", again.filled.extracted, "photos", 0),
    ], classifier


def network_sizes(photo: Photo) -> list[str]:
    """Return the sizes in which a photo passes the network."""
    with Image.open(photo.source) as image:
        shape = np.array(image.size) / max(image.size)
    return ["x".join(str(max(32, round(side * part / 32) * 32)) for part in shape) for side in SIDES]


def write_graph(folder: Path) -> Path:
    """Write the graph of the default network to a file."""
    graph = folder / "bare.onnx"
    graph.write_bytes(load("efficientnet-lite0").graph().SerializeToString())
    return graph


def measure_fit_command(photos: list[Photo], folder: Path, times: int) -> list[Record]:
    """Measure the command `fit` of some photos beside the bare network, with and without a cache, and its file."""
    source = folder / "photos"
    for number, photo in enumerate(photos):
        target = source / str(photo.label) / f"{number:06d}{Path(photo.name).suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(Path(str(photo.source)).resolve())
    sizes, graph = folder / "sizes.txt", write_graph(folder)
    sizes.write_text(" ".join(size for photo in photos for size in network_sizes(photo)))
    start = [sys.executable, "-m", "patchvote", "fit", str(source)]
    commands = {
        "bare": [sys.executable, "-c", BARE_FIT, str(graph), str(cores()), str(sizes)],
        "fit": [*start, str(folder / "model.patchvote"), "--force", "--quiet", "--no-cache"],
        "cached": [*start, str(folder / "model.patchvote"), "--force", "--quiet", "--cache", str(folder / "fit cache")],
    }
    run_command(commands["cached"], folder)  # fills the cache
    run_command([*start, str(folder / "small.patchvote"), *commands["cached"][-3:], "--no-memory"], folder)
    used = {name: [run_command(command, folder) for _ in range(times)] for name, command in commands.items()}
    seconds = {name: float(np.median([one.seconds for one in runs])) for name, runs in used.items()}
    size = {name: (folder / f"{name}.patchvote").stat().st_size / 1e6 for name in ("model", "small")}
    words = f"fit of {len(photos)} photos"
    peer = "the bare network, with the start of Python and ONNX Runtime"
    return [
        record(f"{words} over the network", seconds["fit"] / seconds["bare"], "times", 1.15, peer),
        record(f"{words}, cached", seconds["cached"], "s", 2),
        record(f"{words}, peak memory", max(one.gigabytes for one in used["fit"]), "GB", 0.4),
        record(f"{words}, cached, peak memory", max(one.gigabytes for one in used["cached"]), "GB", 0.4),
        record(f"{words}, model", size["model"], "MB", 12),
        record(f"{words}, model without memory", size["small"], "MB", 3),
    ]


def measure_changes(photos: list[Photo], folder: Path) -> list[Record]:
    """Measure `add` and `forget` of one photo with the others learned, beyond the network."""
    classifier = ImageClassifier(cache=folder / "cache").fit(photos[:-1])
    list(ImageClassifier(cache=folder / "cache").fit(photos).answers(photos[-1:]))  # the last one is in the cache
    added = timed(lambda: classifier.add(photos[-1:]))[0]
    forgotten = timed(lambda: classifier.forget(photos[-1].name))[0]
    return [
        record(f"add to {len(photos) - 1:,} photos, cached", added, "s", 1),
        record(f"forget one of {len(photos):,} photos", forgotten, "s", 1),
    ]


def covered(spans: list[tuple[float, float]]) -> float:
    """Return the total time that the spans cover."""
    total, end = 0.0, 0.0
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def measure_predict(classifier: ImageClassifier, photo: Photo, folder: Path, times: int) -> list[Record]:
    """Measure the network's share of one prediction, and the time of the command relative to the bare minimum."""
    backbone_class = type(classifier.extractor.backbone)
    describe, calls = backbone_class.__call__, []

    def timed_describe(self: object, images: np.ndarray) -> np.ndarray:
        start = time.perf_counter()
        descriptors = describe(self, images)
        calls.append((start, time.perf_counter()))
        return descriptors

    classifier.save(folder / "m.patchvote")
    classifier = ImageClassifier.load(folder / "m.patchvote", cache=False)
    classifier.predict([photo])
    backbone_class.__call__, shares = timed_describe, []
    for _ in range(3 * times):
        calls.clear()
        start = time.perf_counter()
        classifier.predict([photo])
        shares.append(covered(calls) / (time.perf_counter() - start))
    backbone_class.__call__ = describe
    command = [sys.executable, "-m", "patchvote", "predict", str(folder / "m.patchvote"), str(photo.source)]
    bare = [sys.executable, "-c", BARE, str(write_graph(folder)), *network_sizes(photo)]
    rounds = []
    for _ in range(1 + times):  # the first round, which compiles, does not count
        seconds = []
        for process in (bare, command):
            start = time.perf_counter()
            subprocess.run(process, check=True, capture_output=True, env=installed(folder))
            seconds.append(time.perf_counter() - start)
        rounds.append(seconds)
    bare_seconds, command_seconds = np.median(rounds[1:], axis=0)
    ratio = command_seconds / bare_seconds
    return [
        record("share of a warm predict that is the network", 100 * float(np.median(shares)), "%", 80),
        record("cold predict over onnxruntime and both forward passes", ratio, "times", 3, "onnxruntime alone"),
    ]


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder with one folder per class")
    args = parser.parse_args()
    train, test = choose_photos(args.photos, *((5, 3) if args.quick else (100, 100)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures, classifier = measure_fit(train, test, folder)
        photo = dataclasses.replace(test[0], name="photo.jpg")
        figures += measure_predict(classifier, photo, folder, 3 if args.quick else 9)
        few, _ = choose_photos(args.photos, 2 if args.quick else 20, 0)
        figures += measure_fit_command(few, folder, 1 if args.quick else 3)
        figures += measure_changes([*train, *test][: 20 if args.quick else 1000], folder)
    write(figures, args.json)


if __name__ == "__main__":
    main()
