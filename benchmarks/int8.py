"""A network in 8-bit integers beside the same network in floating point: time, error of descriptors, and accuracy.

Both see the same photos in turns. The network in integers is calibrated on training photos. A voter learns from each;
the one that learned in floating point is also asked about descriptors of the other network, which a model refuses.

    python benchmarks/int8.py --photos scene15/ --json int8.json
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from common import DATA, Record, options, record, write
from patchvote import Bags, Extractor, MomentSVM, Photo, find_photos
from patchvote.cli.demo import make_photos
from patchvote.models.quantize_network import quantize_network
from search import split

FLOAT = "efficientnet-lite0"


def bags_of(extractors: dict[str, Extractor], photos: list[Photo], seconds: dict[str, float]) -> dict[str, Bags]:
    """Return the bags of photos by every network, and add the processor time of each to `seconds`."""
    found: dict[str, list[Bags]] = {name: [] for name in extractors}
    for photo in photos:
        for name, extractor in extractors.items():
            start = time.process_time()
            found[name].append(extractor([photo]))
            seconds[name] += time.process_time() - start
    return {name: Bags.join(bags) for name, bags in found.items()}


def compare(photos: list[Photo], train: np.ndarray, test: np.ndarray, network: Path) -> list[Record]:
    """Return the figures of both networks."""
    labels = np.array([str(photo.label) for photo in photos])
    names = {"floating point": FLOAT, "integers": str(network)}
    extractors = {kind: Extractor(name, jobs=1) for kind, name in names.items()}
    for extractor in extractors.values():
        extractor([photos[0]])  # the first call of a network allocates its memory
    seconds = dict.fromkeys(names, 0.0)
    learned = bags_of(extractors, [photos[row] for row in train], seconds)
    asked = bags_of(extractors, [photos[row] for row in test], seconds)
    exact, rounded = asked["floating point"].values, asked["integers"].values
    error = float(np.linalg.norm(rounded - exact) / np.linalg.norm(exact))
    ratio = seconds["integers"] / seconds["floating point"]
    voters = {kind: MomentSVM(random_state=0).fit(bags, labels[train]) for kind, bags in learned.items()}
    records = [
        record("processor time per photo", ratio, "ratio", None, "floating point"),
        record("relative error of descriptors", error, "ratio"),
        record("test photos", len(test), "photos"),
    ]
    for taught, kind in [("floating point",) * 2, ("integers",) * 2, ("floating point", "integers")]:
        right = float(np.mean(voters[taught].predict(asked[kind]) == labels[test]))
        records.append(record(f"learned in {taught}, asked in {kind}", 100 * right, "% of test photos"))
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, default=DATA / "scene15", help="folder of class folders")
    parser.add_argument("--train", type=int, default=30, help="training photos per class")
    parser.add_argument("--test", type=int, default=50, help="test photos per class")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = args.photos if args.photos.is_dir() else make_photos(Path(folder) / "photos")[0]
        photos = list(find_photos(source))
        counts = (3, 3) if args.quick else (args.train, args.test)
        train, test = split(np.array([str(photo.label) for photo in photos]), *counts)
        network = Path(folder) / "int8.onnx"
        quantize_network([photos[row] for row in train], network, FLOAT, voter="bag-svm", cache=False)
        write(compare(photos, np.asarray(train), np.asarray(test), network), args.json)


if __name__ == "__main__":
    main()
