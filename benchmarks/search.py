"""How fast NBNN's exact search is beside brute force by faiss, on the same descriptors in the same space.

The peer is `faiss.knn`, class by class, on the very descriptors that the search compares: centred and of length 1, as
NBNN takes them by default ("unit"), and as they came ("raw"), as the paper takes them. Both are asked in turns about
the same blocks of descriptors. The approximate search "pca" stands beside them.

    patchvote extract scene15/ dense.store
    python benchmarks/search.py --store dense.store --name dense --json search.json

Without a store, synthetic bags are searched.
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np

from common import Record, options, record, synthetic_bags, timed, write
from patchvote import NBNN, Bags, Store
from patchvote.voters.neighbours.votes import BankVotes

_AT_ONCE = 4096  # queries
PEER = "per-class faiss.knn on the same descriptors"


def split(labels: np.ndarray, train: int, test: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Choose images of each class at random, for the bank and for the queries."""
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    first, second = [own[:train] for own in chosen], [own[train : train + test] for own in chosen]
    return np.concatenate(first), np.concatenate(second)


def load(path: Path | None, quick: bool) -> tuple[Bags, np.ndarray, Bags]:
    """Return training bags with their labels, and bags to ask about."""
    if path is None:
        images, size = (4, 100) if quick else (40, 300)
        bags, labels = synthetic_bags(8, images, size, 512)
        return bags, labels, synthetic_bags(8, 1, size, 512, seed=1)[0]
    store = Store.open(path)
    first, second = split(store.labels, 20 if quick else 100, 1)
    train, labels = store.load(first)
    return train.astype(np.float32), labels, store.load(second)[0].astype(np.float32)


def measure(train: Bags, labels: np.ndarray, test: Bags, space: str, where: str) -> list[Record]:
    """Compare the searches in one space."""
    settings = {"normalise": space == "unit", "calibration": 0}
    voters = {name: NBNN(search=name, **settings).fit(train, labels) for name in ("exact", "pca")}
    scorers = {name: voter.scorer() for name, voter in voters.items()}
    exact = scorers["exact"]
    if not isinstance(exact, BankVotes):
        raise TypeError("NBNN votes with a bank.")
    rows = [np.flatnonzero(exact.arrays["class"] == number) for number in range(exact.classes)]
    banks = [np.ascontiguousarray(exact._rows(own)) for own in rows]

    def brute_force(values: np.ndarray) -> np.ndarray:
        queries = exact._comparable(values)
        return -np.concatenate([faiss.knn(queries, bank, 1)[0] for bank in banks], axis=1)

    ways = {"faiss": brute_force, **{name: scorer.vote for name, scorer in scorers.items()}}
    for vote in ways.values():  # libraries warm up, and banks are made searchable
        vote(test.values[:200])
    seconds, votes = dict.fromkeys(ways, 0.0), {name: [] for name in ways}
    for start in range(0, len(test.values), _AT_ONCE):  # in turns
        for name, vote in ways.items():
            took, found = timed(lambda vote=vote, start=start: vote(test.values[start : start + _AT_ONCE]))
            seconds[name] += took
            votes[name].append(found)
    found = {name: np.concatenate(parts) for name, parts in votes.items()}
    apart = float(np.abs(found["exact"] - found["faiss"]).max() / np.abs(found["faiss"]).max())
    named = {name: test.means(part).argmax(axis=1) for name, part in found.items()}
    place = f"{where}, {space}"
    print(f"{place}: {len(train.values):,} descriptors in {exact.classes} classes, {len(test.values):,} queries")
    return [
        record(f"exact NBNN over faiss, {place}", seconds["faiss"] / seconds["exact"], "times", 0.9, PEER),
        record(f"largest relative difference of distances, {place}", apart, "", 1e-5, PEER),
        record(f"same label as faiss, exact, {place}", 100 * np.mean(named["exact"] == named["faiss"]), "%", 100, PEER),
        record(f"PCA with re-ranking over faiss, {place}", seconds["faiss"] / seconds["pca"], "times", 5, PEER),
        record(f"same label as faiss, PCA, {place}", 100 * np.mean(named["pca"] == named["faiss"]), "%", 99, PEER),
        record(f"recall of PCA, {place}", voters["pca"].recall_, "share", None, "exact search"),
    ]


def main() -> None:
    """Run what the command line asks for."""
    parser = options(__doc__)
    parser.add_argument("--store", type=Path, help="store of labelled bags; synthetic bags by default")
    parser.add_argument("--name", default="", help="what to call the store's descriptors, such as dense or patch")
    words = parser.parse_args()
    data = load(words.store, words.quick)
    where = words.name or (words.store.stem if words.store else "synthetic")
    records = [one for space in ("unit", "raw") for one in measure(*data, space, where)]
    write(records, words.json)


if __name__ == "__main__":
    main()
