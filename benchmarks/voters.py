"""Speed and accuracy of the voters, compared with alternatives.

Prints, in one run: the rate of an SNBNL step relative to its two bare matrix products; the training time of NBNL
relative to SNBNL; and a table of peers on the same bags. (`search.py` compares the searches of NBNN.)

Bags come from stores of `patchvote extract` (dense, and the paper's patches):

    python benchmarks/voters.py --dense dense.store --patch patch.store --json voters.json
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import LinearSVC

from common import Record, options, record, synthetic_bags, timed, write
from patchvote import NBNL, NBNN, SNBNL, Bags, Store
from patchvote.utils.machine import forget_peak_memory, peak_memory
from patchvote.voters.ml3 import phi
from patchvote.voters.prototypes.stoml3 import Stoml3
from search import split

# Classes, prototypes, features, minibatch size, goal of the ratio.
STEPS = [
    (15, 10, 1282, 1000, 0.85),
    (15, 10, 1282, 2500, 0.85),
    (67, 10, 1282, 2500, 0.85),
    (397, 10, 1282, 2500, 0.8),
    (397, 10, 4098, 2500, 0.8),
]


def measure_steps(quick: bool) -> list[Record]:
    """Measure the rate of a step relative to its two products, in turns."""
    records, rng = [], np.random.default_rng(0)
    for classes, prototypes, dim, size, goal in STEPS[:3] if quick else STEPS:
        x = rng.standard_normal((size, dim)).astype(np.float32)
        y = rng.integers(0, classes, size)
        weights = (rng.standard_normal((prototypes, classes, dim)) * 0.01).astype(np.float32)
        learner = Stoml3(weights, 2.0, 1e-3)
        flat = weights.reshape(-1, dim).copy()
        products, gradient = np.empty((len(flat), size), np.float32), np.empty_like(flat)
        times = max(1, int((1e10 if quick else 5e10) / (4 * len(flat) * dim * size)))

        def bare(
            flat: Any = flat, x: Any = x, products: Any = products, gradient: Any = gradient, times: int = times
        ) -> None:
            for _ in range(times):
                np.matmul(flat, x.T, out=products)
                np.matmul(products, x, out=gradient)

        def steps(learner: Stoml3 = learner, x: Any = x, y: Any = y, times: int = times) -> None:
            for _ in range(times):
                learner.step(x, y)

        bare(), steps()
        rounds = [(timed(bare)[0], timed(steps)[0]) for _ in range(5)]
        ratio = float(np.sum(rounds, axis=0)[0] / np.sum(rounds, axis=0)[1])
        name = f"SNBNL step over its products {classes, prototypes, dim, size}"
        records.append(record(name, ratio, "ratio", goal, "two numpy matrix products"))
    return records


def load(
    path: Path | None, train: int, test: int, classes: int | None = None
) -> tuple[Bags, np.ndarray, Bags, np.ndarray]:
    """Return training and test bags of a store, with their labels; of its first classes only, if `classes` is given."""
    if path is None:
        (first_bags, first_labels), (second_bags, second_labels) = (
            synthetic_bags(classes or 4, images, 30, 256, seed) for seed, images in ((0, train), (1, test))
        )
        return first_bags, first_labels, second_bags, second_labels
    store = Store.open(path)
    first, second = split(store.labels, train, test)
    known = np.unique(store.labels)[:classes]
    first, second = (part[np.isin(store.labels[part], known)] for part in (first, second))
    (train_bags, train_labels), (test_bags, test_labels) = store.load(first), store.load(second)
    return train_bags, train_labels, test_bags, test_labels


def measure_training(data: tuple[Bags, np.ndarray, Bags, np.ndarray]) -> list[Record]:
    """Measure the accuracies of SNBNL and NBNL, and the ratio of their training times."""
    train, labels, test, expected = data
    snbnl_seconds, snbnl = timed(lambda: SNBNL(calibration=0).fit(train, labels))
    nbnl_seconds, nbnl = timed(lambda: NBNL(calibration=0).fit(train, labels))
    accuracy = snbnl.score(test, expected), nbnl.score(test, expected)
    return [
        record("SNBNL accuracy", 100 * accuracy[0], "%"),
        record("NBNL accuracy", 100 * accuracy[1], "%"),
        record("SNBNL training time", snbnl_seconds, "s"),
        record("NBNL training time over SNBNL", nbnl_seconds / snbnl_seconds, "ratio", 16, "SNBNL on the same bags"),
    ]


def measure_order(data: tuple[Bags, np.ndarray, Bags, np.ndarray], quick: bool) -> list[Record]:
    """Measure the accuracy of NBNL and SNBNL on the paper's patches; in the paper's order, NBNN is last."""
    train, labels, test, expected = data
    voters = [SNBNL(calibration=0)] if quick else [NBNL(calibration=0), SNBNL(calibration=0)]
    return [
        record(f"{type(voter).__name__} accuracy on patches", 100 * voter.fit(train, labels).score(test, expected), "%")
        for voter in voters
    ]


class TorchMl3:
    """The same model, trained in another way: by torch, autograd and Adam."""

    def __init__(self, prototypes: int = 10, passes: int = 3, minibatch: int = 1000, rate: float = 1e-3) -> None:
        self.prototypes, self.passes, self.minibatch, self.rate = prototypes, passes, minibatch, rate

    def fit(self, bags: Bags, labels: np.ndarray) -> TorchMl3:
        """Train prototypes by gradient descent on the softmax loss of single descriptors."""
        import torch

        torch.manual_seed(0)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        values = bags.with_positions().values
        self.mean_, self.scale_ = values.mean(axis=0, dtype=np.float64), 1 / values.std(axis=0, dtype=np.float64)
        x = torch.from_numpy(((values - self.mean_) * self.scale_).astype(np.float32))
        y = torch.from_numpy(numbers[bags.owner])
        shape = (self.prototypes, len(self.classes_), x.shape[1])
        weights = torch.nn.Parameter(0.01 * torch.randn(*shape))
        adam = torch.optim.Adam([weights], lr=self.rate)
        for _ in range(self.passes):
            order = torch.randperm(len(x))
            for rows in order.split(self.minibatch):
                products = (weights.reshape(-1, shape[2]) @ x[rows].T).reshape(*shape[:2], len(rows))
                loss = torch.nn.functional.cross_entropy(phi(products, 2.0).T, y[rows])
                adam.zero_grad()
                loss.backward()
                adam.step()
        self.weights_ = weights.detach().numpy()
        return self

    def score(self, bags: Bags, labels: np.ndarray) -> float:
        """Return the accuracy on bags."""
        values = ((bags.with_positions().values - self.mean_) * self.scale_).astype(np.float32)
        flat = self.weights_.reshape(-1, values.shape[1])
        votes = phi((flat @ values.T).reshape(*self.weights_.shape[:2], len(values)), 2.0).T
        return float(np.mean(self.classes_[bags.means(votes).argmax(axis=1)] == labels))


def measure_peers(data: tuple[Bags, np.ndarray, Bags, np.ndarray], quick: bool) -> list[Record]:
    """Measure accuracy, training time, testing time and memory of voters and alternatives."""
    train, labels, test, expected = data
    whole = train.values[train.level == 0], test.values[test.level == 0]
    pooled = train.means(), test.means()
    scaled = lambda model: make_pipeline(StandardScaler(), model)  # noqa: E731
    unit = lambda model: make_pipeline(Normalizer(), model)  # noqa: E731
    rows: list[tuple[str, Any, Any, Any]] = [
        ("SNBNL on bags", SNBNL(calibration=0), train, test),
        ("SNBNL, 1 prototype, on bags", SNBNL(1, calibration=0), train, test),
        ("NBNN on bags, 100 centres per class", NBNN(condense=100, calibration=0), train, test),
        ("LinearSVC, whole image", unit(LinearSVC(C=1)), *whole),
        ("LinearSVC, mean of the bag", unit(LinearSVC(C=1)), *pooled),
        ("LogisticRegression, whole image", scaled(LogisticRegression(C=1e-3, max_iter=500)), *whole),
        ("SGDClassifier, whole image", scaled(SGDClassifier(random_state=0)), *whole),
        ("KNeighborsClassifier, whole image", unit(KNeighborsClassifier(5)), *whole),
    ]
    if importlib.util.find_spec("torch"):
        rows.insert(1, ("the same model, torch and Adam", TorchMl3(), train, test))
    if quick:
        rows = [row for row in rows if "NBNN" not in row[0]]
    records: list[Record] = []
    print(f"{'':<36}{'accuracy':>10}{'training':>12}{'testing':>12}{'added memory':>14}")
    for name, model, first, second in rows:
        forget_peak_memory()
        before = peak_memory()
        training, fitted = timed(lambda model=model, first=first: model.fit(first, labels))
        testing, score = timed(lambda fitted=fitted, second=second: fitted.score(second, expected))
        peak = (peak_memory() - before) / 2**20
        print(f"{name:<36}{100 * score:>9.1f}%{training:>10.2f} s{testing:>10.2f} s{peak:>11.0f} MB", flush=True)
        figures = (("accuracy", 100 * score, "%"), ("training", training, "s"), ("testing", testing, "s"))
        for what, value, unit_ in (*figures, ("memory", peak, "MB")):
            records.append({"name": f"{name}: {what}", "value": value, "unit": unit_, "goal": None, "peer": None})
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--dense", type=Path, help="store of dense bags, labelled; synthetic bags by default")
    parser.add_argument("--patch", type=Path, help="store of the paper's patches, labelled")
    args = parser.parse_args()
    train, test = (10, 10) if args.quick else (100, 100)
    figures = measure_steps(args.quick)
    data = load(args.dense, train, test)
    figures += measure_training(data)
    figures += measure_peers(data, args.quick)
    if args.patch:
        figures += measure_order(load(args.patch, 100, test, 4 if args.quick else None), args.quick)
    write(figures, args.json)


if __name__ == "__main__":
    main()
