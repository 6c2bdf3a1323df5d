"""How many planted wrong labels, and how many strangers, `patchvote check` finds, beside simpler rules.

Of each set, 5 % of the photos get a wrong label: of any other class, or of the class that the photo resembles most
(the likeliest wrong one when it is held out with the right labels). Every rule orders the photos; measured are the
share of the planted ones among the first as many, among the first twice as many, and the average precision. Peers on
the same features: the share of the nearest neighbours with another label, and self-confidence (the held-out
probability of the label), the ranking of confident learning. Strangers are photos of another set with random labels.

    python benchmarks/mislabelled.py --quick --json mislabelled.json
    python benchmarks/mislabelled.py --bags STORE --json mislabelled.json
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from common import Record, record, write
from labelled import Labelled, labelled_options, read_sets
from patchvote.bags.moments import MomentBags, photo_vectors
from patchvote.models.check.suspects import HeldOut, doubtful_labels, hold_out_each, label_doubts, outliers

RATE = 0.05  # of the photos get a wrong label
STRANGERS = 0.02  # of the photos, as many strangers are added
NEIGHBOURS = 20  # chosen among 5, 10, 20 and 40 on Amazon and Webcam, where it did best
WRONG = ("any", "alike")  # of any class, or of the most alike
Trial = dict[str, Any]


def plant(photos: Labelled, wrong: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of which some are wrong, and which."""
    rng, right = np.random.default_rng(seed), photos.numbers
    planted = np.zeros(len(right), bool)
    planted[rng.permutation(len(right))[: round(RATE * len(right))]] = True
    labels = (right + rng.integers(1, photos.classes, len(right))) % photos.classes
    if wrong == "alike":
        labels = label_doubts(hold_out_each(photos.bags, right, photos.groups).probability, right)[1]
    return np.where(planted, labels, right), planted


def neighbours(photos: Labelled, labels: np.ndarray) -> np.ndarray:
    """Return the share of the nearest neighbours of each photo that have another label."""
    vectors = photos.vectors.astype(np.float32)
    count, shares = min(NEIGHBOURS, len(vectors) - 1), []
    for start in range(0, len(vectors), 1024):
        rows = np.arange(start, min(start + 1024, len(vectors)))
        similarity = vectors[rows] @ vectors.T
        similarity[np.arange(len(rows)), rows] = -np.inf
        nearest = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        shares.append(np.mean(labels[nearest] != labels[rows, None], axis=1))
    return np.concatenate(shares)


def measures(suspicion: np.ndarray, planted: np.ndarray) -> dict[str, float]:
    """Return how many of the planted are among the first, in per cent, and the average precision."""
    hits, count = planted[np.argsort(-suspicion, kind="stable")], int(planted.sum())
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return {
        "first": 100 * float(hits[:count].sum() / count),
        "twice": 100 * float(hits[: 2 * count].sum() / count),
        "average_precision": 100 * float((precision * hits).sum() / count),
    }


def listed(chosen: np.ndarray, planted: np.ndarray) -> dict[str, int]:
    """Return how many photos the command lists, and how many of these were planted."""
    return {"listed": len(chosen), "right": int(planted[chosen].sum())}


def label_trials(name: str, photos: Labelled, wrong: str, seed: int) -> Iterator[Trial]:
    """Yield the result of each rule for one draw."""
    labels, planted = plant(photos, wrong, seed)
    held_out = hold_out_each(photos.bags, labels, photos.groups)
    own = np.nan_to_num(held_out.probability[np.arange(len(labels)), labels], nan=1.0)
    common = {"set": name, "part": f"wrong labels, {wrong}"}
    chosen = listed(doubtful_labels(held_out.probability, labels)[0], planted)
    doubts = label_doubts(held_out.probability, labels)[0]
    yield common | {"rule": "check", **measures(doubts, planted), **chosen}
    yield common | {"rule": "self-confidence", **measures(-own, planted)}
    yield common | {"rule": "neighbours", **measures(neighbours(photos, labels), planted)}


def clean_trial(name: str, photos: Labelled) -> Trial:
    """Return what is listed of a set as it was published."""
    held_out = hold_out_each(photos.bags, photos.numbers, photos.groups)
    count = len(doubtful_labels(held_out.probability, photos.numbers)[0]) + len(outliers(held_out.unlike))
    return {"set": name, "part": "as published", "rule": "check", "listed": count}


def stranger_trials(name: str, photos: Labelled, others: Labelled, seed: int) -> Iterator[Trial]:
    """Add photos of another set under random labels, and yield how well they are found."""
    rng, count = np.random.default_rng(seed), max(2, round(STRANGERS * len(photos)))
    strangers = others.bags.rows(rng.permutation(len(others))[:count])
    bags = MomentBags.joined([photos.bags, strangers])
    labels = np.concatenate([photos.numbers, rng.integers(0, photos.classes, count)])
    groups = np.concatenate([photos.groups, len(photos) + np.arange(count)])
    planted = np.arange(len(bags)) >= len(photos)
    held_out: HeldOut = hold_out_each(bags, labels, groups)
    vectors = photo_vectors(bags)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    distance = 1 - np.partition(similarity, -10, axis=1)[:, -10]  # to the tenth neighbour, the best of 1, 3, 5 and 10
    unlike = np.nan_to_num(held_out.unlike, nan=0.0)
    common = {"set": name, "part": "strangers"}
    chosen = listed(outliers(held_out.unlike), planted)
    yield common | {"rule": "check", **measures(unlike, planted), **chosen}
    yield common | {"rule": "neighbours", **measures(distance, planted)}


def run(sets: dict[str, Labelled], draws: int, first_seed: int) -> list[Trial]:
    """Run all trials."""
    trials: list[Trial] = []
    for name, photos in sets.items():
        trials.append(clean_trial(name, photos))
        for seed in range(first_seed, first_seed + draws):
            for wrong in WRONG:
                trials += label_trials(name, photos, wrong, seed)
            stranger_set = "office" if name == "scene15" else "scene15"
            if stranger_set in sets:
                trials += stranger_trials(name, photos, sets[stranger_set], seed)
        print(f"{name} is done", flush=True)
    return trials


def figures(trials: list[Trial]) -> list[Record]:
    """Return the means of every set, kind of planted photos and rule; the neighbours are the peer of the check."""
    records = []
    for key in dict.fromkeys((trial["set"], trial["part"], trial["rule"]) for trial in trials):
        same = [trial for trial in trials if (trial["set"], trial["part"], trial["rule"]) == key]
        peer = "neighbours" if key[2] == "check" else None
        for measure in same[0].keys() - {"set", "part", "rule"}:
            value = float(np.mean([trial[measure] for trial in same]))
            unit = "photos" if measure in ("listed", "right") else "%"
            records.append(record(f"{', '.join(key)}: {measure}", value, unit, peer=peer))
    return records


def main() -> None:
    """Run the benchmark."""
    parser = labelled_options(__doc__, draws=10)
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first draw")
    args = parser.parse_args()
    with threadpool_limits(1):
        trials = run(read_sets(args.bags, args.photos), 2 if args.quick else args.draws, args.first_seed)
    write(figures(trials), args.json)


if __name__ == "__main__":
    main()
