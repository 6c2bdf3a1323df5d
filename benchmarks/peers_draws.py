"""patchvote's default beside classifiers of the whole photo over many draws of photos, since a single draw can mislead.

All photos go through the network once. Each draw takes other photos of every class to learn from, and to ask about. The
peers have the vectors and settings of `peer_scripts/onnx_sklearn.py` and `peer_scripts/onnx_two_scales.py`. Per method:
the mean accuracy over the draws, and its mean distance from patchvote's default with the standard error. Photos of one
draw come back in others, so the draws are not independent.

    python benchmarks/peers_draws.py --photos scene15 --json peers-draws.json
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import LinearSVC

from common import DATA, Record, options, record, write
from experiments.baselines.pooled import at_scale
from experiments.voters import make_voter
from patchvote import Bags, Extractor, Recipe, Store, fill, find_photos
from peers_table import OURS

LOGISTIC = "whole photo, ONNX, logistic regression"
TWO_SCALES = "whole photo, ONNX, root of the mean at two scales, LinearSVC, C by cross-validation"


def means(bags: Bags) -> np.ndarray:
    """Return the mean of the cells of each photo, by photo, scale (224 and 448 px) and feature."""
    return np.stack([at_scale(bags, scale).means() for scale in (1, 2)], axis=1)


def answers(train: Bags, labels: np.ndarray, test: Bags) -> dict[str, np.ndarray]:
    """Let each method learn and answer."""
    learned, asked = means(train), means(test)
    roots = [np.hstack([normalize(np.sqrt(one[:, scale])) for scale in (0, 1)]) for one in (learned, asked)]
    search = GridSearchCV(LinearSVC(), {"C": [1, 3, 10]})
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(learned[:, 1], labels)
    two_scales = make_pipeline(StandardScaler(with_std=False), search).fit(roots[0], labels)
    return {
        OURS: make_voter("default").fit(train, labels).predict(test),
        LOGISTIC: logistic.predict(asked[:, 1]),
        TWO_SCALES: two_scales.predict(roots[1]),
    }


def measured(store: Store, draws: int, train: int, test: int) -> dict[str, list[float]]:
    """Return the accuracy of each method in each draw, in per cent."""
    labels = np.array([str(label) for label in store.labels])
    found: dict[str, list[float]] = {}
    for draw in range(draws):
        rng = np.random.default_rng([2, draw])
        parts: tuple[list[int], list[int]] = ([], [])
        for label in np.unique(labels):
            chosen = rng.permutation(np.flatnonzero(labels == label)).tolist()
            parts[0].extend(chosen[:train])
            parts[1].extend(chosen[train : train + test])
        told = answers(store.load(parts[0])[0], labels[parts[0]], store.load(parts[1])[0])
        for name, answer in told.items():
            found.setdefault(name, []).append(100 * float(np.mean(answer == labels[parts[1]])))
        print(
            f"draw {draw + 1}: " + ", ".join(f"{name} {values[-1]:.1f}" for name, values in found.items()), flush=True
        )
    return found


def records_of(found: dict[str, list[float]]) -> list[Record]:
    """Return means over the draws, and distances from the default."""
    records = [record("draws", len(found[OURS]), "draws")]
    for name, values in found.items():
        records.append(record(f"accuracy, {name}", float(np.mean(values)), "%", None, None if name == OURS else OURS))
        if name != OURS:
            apart = np.subtract(values, found[OURS])
            error = float(apart.std(ddof=1) / np.sqrt(len(apart)))
            records.append(record(f"distance, {name}", float(apart.mean()), "points", None, OURS))
            records.append(record(f"standard error of the distance, {name}", error, "points", None, OURS))
    return records


def lines_of(records: list[Record]) -> list[str]:
    """Return the table of records, as lines of Markdown."""
    figures = {str(one["name"]): float(one["value"]) for one in records}  # type: ignore[arg-type]
    lines = ["| method | accuracy, % | distance from the default, points |", "|---|--:|--:|"]
    for name in [key.removeprefix("accuracy, ") for key in figures if key.startswith("accuracy, ")]:
        error = figures.get(f"standard error of the distance, {name}")
        apart = "" if error is None else f"{figures[f'distance, {name}']:+.1f} ± {error:.1f}"
        lines.append(f"| {name} | {figures[f'accuracy, {name}']:.1f} | {apart} |")
    return lines


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, default=DATA / "scene15", help="folder of class folders")
    parser.add_argument("--draws", type=int, default=10, help="number of draws (default %(default)s)")
    parser.add_argument("--train", type=int, default=20, help="photos per class to learn (default %(default)s)")
    parser.add_argument("--test", type=int, default=50, help="photos per class to ask about (default %(default)s)")
    args = parser.parse_args()
    sizes = (2, 5, 3) if args.quick else (args.draws, args.train, args.test)
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "store", find_photos(args.photos), Extractor(Recipe()))
        found = measured(Store.open(Path(folder) / "store"), *sizes)
    records = records_of(found)
    print("\n".join(lines_of(records)))
    write(records, args.json)


if __name__ == "__main__":
    main()
