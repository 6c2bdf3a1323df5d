"""Time and accuracy of the classifier's methods: fit and predict.

Photos come from a labelled folder, such as Scene-15: 100 training and 100 test photos per class.

    python benchmarks/classifier.py --photos scene15/ --json classifier.json
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from common import Record, choose_photos, options, record, write
from patchvote import ImageClassifier
from patchvote.networks import load
from patchvote.photos.find import Photo

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

    classifier.predict([photo])
    backbone_class.__call__, shares = timed_describe, []
    for _ in range(3 * times):
        calls.clear()
        start = time.perf_counter()
        classifier.predict([photo])
        shares.append(covered(calls) / (time.perf_counter() - start))
    backbone_class.__call__ = describe
    classifier.save(folder / "m.patchvote")
    graph = folder / "bare.onnx"
    graph.write_bytes(load("efficientnet-lite0").graph().SerializeToString())
    with Image.open(photo.source) as image:
        shape = np.array(image.size) / max(image.size)
    sizes = ["x".join(str(max(32, round(side * part / 32) * 32)) for part in shape) for side in (224, 448)]
    command = [sys.executable, "-m", "patchvote", "predict", str(folder / "m.patchvote"), str(photo.source)]
    bare = [sys.executable, "-c", BARE, str(graph), *sizes]
    # Bytecode is kept, as it is after an installation; the first round, which compiles it, does not count.
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    rounds = []
    for _ in range(1 + times):
        seconds = []
        for process in (bare, command):
            start = time.perf_counter()
            subprocess.run(process, check=True, capture_output=True, env=environment)
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
    write(figures, args.json)


if __name__ == "__main__":
    main()
