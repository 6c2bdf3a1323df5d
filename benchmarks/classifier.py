"""What a user of the classifier waits for, and what it gives: fit, predict, add.

Photos are taken from a labelled folder, such as Scene-15: 100 a class to learn from, 100 to test on.

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

from common import Record, options, record, write
from patchvote import ImageClassifier, find_photos
from patchvote.backbones.cache import cache_folder
from patchvote.photos.find import Photo
from search import split

# What no command that names a photo can do without: Python, onnxruntime, the network's file, one photo through it.
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


def choose_photos(folder: Path, train: int, test: int) -> tuple[list[Photo], list[Photo]]:
    """Split photos at random, with the seed 0."""
    photos = find_photos(folder)
    first, second = split(np.array([photo.label for photo in photos]), train, test)
    return [photos[i] for i in first], [photos[i] for i in second]


def labels_of(photos: list[Photo]) -> np.ndarray:
    """Labels of photos."""
    return np.array([photo.label for photo in photos])


def measure_fit(train: list[Photo], test: list[Photo], folder: Path) -> tuple[list[Record], ImageClassifier]:
    """Accuracy that is announced and accuracy on test photos; share of the time that the network takes."""
    begin = time.perf_counter()
    classifier = ImageClassifier(cache=folder / "cache").fit(train)
    total = time.perf_counter() - begin
    seconds = classifier.model.about.seconds
    told = classifier.model.about.held_out
    scores = classifier.evaluate(test)
    inside = told["interval"][0] <= scores.accuracy <= told["interval"][1]
    again = ImageClassifier(cache=folder / "cache", voter="nbnn", budget=0).fit(train)
    return [
        record("accuracy announced", 100 * told["accuracy"], "%"),
        record("accuracy on test photos", 100 * scores.accuracy, "%", 93),
        record("test accuracy within the interval announced", float(inside), "yes or no", 1),
        record("share of fit that is extraction", 100 * seconds["network"] / total, "%", 90),
        record("photos through the network in a second fit", again.filled.extracted, "photos", 0),
    ], classifier


def covered(spans: list[tuple[float, float]]) -> float:
    """Time during which at least one of the spans ran."""
    total, end = 0.0, 0.0
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def measure_predict(classifier: ImageClassifier, photo: Photo, folder: Path, times: int) -> list[Record]:
    """Share of the network in naming one photo, and how much longer the whole command takes than the bare minimum."""
    kind = type(classifier._extractor.backbone)
    describe, calls = kind.__call__, []

    def noted(self: object, images: np.ndarray) -> np.ndarray:
        begin = time.perf_counter()
        answer = describe(self, images)
        calls.append((begin, time.perf_counter()))
        return answer

    classifier.predict([photo])
    kind.__call__, shares = noted, []
    for _ in range(3 * times):
        calls.clear()
        begin = time.perf_counter()
        classifier.predict([photo])
        shares.append(covered(calls) / (time.perf_counter() - begin))
    kind.__call__ = describe
    classifier.save(folder / "m.patchvote")
    graph = next((cache_folder() / "networks").glob("efficientnet-lite0-features-after-*.onnx"))
    with Image.open(photo.source) as image:
        shape = np.array(image.size) / max(image.size)
    sizes = ["x".join(str(max(32, round(side * part / 32) * 32)) for part in shape) for side in (224, 448)]
    command = [sys.executable, "-m", "patchvote", "predict", str(folder / "m.patchvote"), str(photo.source)]
    bare = [sys.executable, "-c", BARE, str(graph), *sizes]
    rounds = []
    for _ in range(times):
        took = []
        for words in (bare, command):
            begin = time.perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            took.append(time.perf_counter() - begin)
        rounds.append(took)
    plain, whole = np.median(rounds, axis=0)
    return [
        record("share of a warm predict that is the network", 100 * float(np.median(shares)), "%", 80),
        record("cold predict over onnxruntime and one forward", whole / plain, "times", 3, "onnxruntime alone"),
    ]


def measure_add(train: list[Photo], test: list[Photo], folder: Path, names: list[str]) -> list[Record]:
    """Accuracy on old classes before and after a class of 20 photos is added, and on the new class."""
    records = []
    for name in names:
        old = [photo for photo in train if photo.label != name]
        new = [photo for photo in train if photo.label == name][:20]
        known = [photo for photo in test if photo.label != name]
        classifier = ImageClassifier(cache=folder / "cache").fit(old)
        before = np.mean(classifier.predict(known) == labels_of(known))
        classifier.add(new)
        after = classifier.predict(test) == labels_of(test)
        is_new = labels_of(test) == name
        lost = 100 * float(before - after[~is_new].mean())
        records.append(record(f"points that old classes lose when {name} is added", lost, "points", 1))
        records.append(record(f"new class {name} recognised", 100 * float(after[is_new].mean()), "%"))
    return records


def main() -> None:
    """Run what the command line asks for."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder with a folder per class")
    words = parser.parse_args()
    train, test = choose_photos(words.photos, *((10, 5) if words.quick else (100, 100)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures, classifier = measure_fit(train, test, folder)
        photo = dataclasses.replace(test[0], name="photo.jpg")
        figures += measure_predict(classifier, photo, folder, 3 if words.quick else 9)
        held_back = sorted(set(labels_of(train)))[:: 15 if words.quick else 6]
        figures += measure_add(train, test, folder, held_back)
    write(figures, words.json)


if __name__ == "__main__":
    main()
