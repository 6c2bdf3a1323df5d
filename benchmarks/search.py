"""The speed of NBNN's exact search compared with brute force by faiss, on the same descriptors in the same space.

The peer is `faiss.knn`, class by class, on the descriptors that the search compares: centred and of length 1, the
default of NBNN ("unit"), and unchanged, as in the paper ("raw"). Both search the same blocks of descriptors in turns.
The approximate search "pca" is measured as well.

    patchvote extract scene15/ dense.store
    python benchmarks/search.py --store dense.store --name dense --json search.json

Without a store, synthetic bags are searched.
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np

from common import Record, options, record, split, synthetic_bags, timed, write
from patchvote import NBNN, Bags, Store
from patchvote.voters.bank_votes import BankVotes

_BLOCK = 1024  # queries per call, so that the searches alternate often
PEER = "per-class faiss.knn on the same descriptors"


def load(path: Path | None, quick: bool) -> tuple[Bags, np.ndarray, Bags]:
    """Return training bags with their labels, and test bags."""
    if path is None:
        images, size = (4, 100) if quick else (40, 300)
        bags, labels = synthetic_bags(8, images, size, 512)
        return bags, labels, synthetic_bags(8, 1, size, 512, seed=1)[0]
    store = Store.open(path)
    second, first = split(store.labels, 1 if quick else 2, 20 if quick else 100)
    train, labels = store.load(first)
    return train.astype(np.float32), labels, store.load(second)[0].astype(np.float32)


def measure(train: Bags, labels: np.ndarray, test: Bags, space: str, where: str) -> list[Record]:
    """Compare the searches in one space."""
    voters = {name: NBNN(search=name, normalise=space == "unit") for name in ("exact", "pca")}
    scorers = {name: voter.fit(train, labels).scorer() for name, voter in voters.items()}
    exact = scorers["exact"]
    if not isinstance(exact, BankVotes):
        raise TypeError("NBNN votes with a bank.")
    rows = [np.flatnonzero(exact.arrays["class"] == number) for number in range(exact.classes)]
    banks = [exact._comparable(exact.arrays["values"][class_rows]) for class_rows in rows]

    def brute_force(values: np.ndarray) -> np.ndarray:
        queries = exact._comparable(values)
        return -np.concatenate([faiss.knn(queries, bank, 1)[0] for bank in banks], axis=1)

    ways = {"faiss": brute_force, **{name: scorer.vote for name, scorer in scorers.items()}}
    for vote in ways.values():  # warm up, and index the banks
        vote(test.values[:200])
    seconds, votes = dict.fromkeys(ways, 0.0), {name: [] for name in ways}
    for start in range(0, len(test.values), _BLOCK):  # in turns
        for name, vote in ways.items():
            elapsed, block = timed(lambda vote=vote, start=start: vote(test.values[start : start + _BLOCK]))
            seconds[name] += elapsed
            votes[name].append(block)
    all_votes = {name: np.concatenate(parts) for name, parts in votes.items()}
    difference = float(np.abs(all_votes["exact"] - all_votes["faiss"]).max() / np.abs(all_votes["faiss"]).max())
    predicted = {name: test.means(part).argmax(axis=1) for name, part in all_votes.items()}
    same = {name: 100 * np.mean(predicted[name] == predicted["faiss"]) for name in ("exact", "pca")}
    place = f"{where}, {space}"
    print(f"{place}: {len(train.values):,} descriptors in {exact.classes} classes, {len(test.values):,} queries")
    return [
        record(f"descriptors in the bank, {place}", len(train.values), "descriptors"),
        record(f"queries, {place}", len(test.values), "descriptors"),
        record(f"exact NBNN over faiss, {place}", seconds["faiss"] / seconds["exact"], "times", 0.9, PEER),
        record(f"largest relative difference of distances, {place}", difference, "", 1e-5, PEER),
        record(f"same label as faiss, exact, {place}", same["exact"], "%", 100, PEER),
        record(f"PCA with re-ranking over faiss, {place}", seconds["faiss"] / seconds["pca"], "times", 5, PEER),
        record(f"same label as faiss, PCA, {place}", same["pca"], "%", 99, PEER),
        record(f"recall of PCA, {place}", voters["pca"].recall_, "share", None, "exact search"),
    ]


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--store", type=Path, help="store of labelled bags; synthetic bags by default")
    parser.add_argument("--name", default="", help="name of the store's descriptors in records, such as dense")
    args = parser.parse_args()
    data = load(args.store, args.quick)
    where = args.name or (args.store.stem if args.store else "synthetic")
    records = [one for space in ("unit", "raw") for one in measure(*data, space, where)]
    write(records, args.json)


if __name__ == "__main__":
    main()
