"""Accuracy against the number of labels: photos that `patchvote suggest` chooses, uncertain ones, and random ones.

A third of each set is kept for testing, with all copies of its photos; the rest is a pool without labels. Learning
begins with two random photos per class. In every round a voter is trained on the labels so far and tested, and each
rule chooses the photos to label next. "Labels" counts all labels; "saved" is the share of labels that a rule needs less
than random choice to reach the accuracy that random choice has in the last round (on the mean curves).

    python benchmarks/suggest.py --quick --json suggest.json
    python benchmarks/suggest.py --bags STORE --json suggest.json
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from common import Record, record, write
from labelled import Labelled, labelled_options, read_sets
from patchvote import MomentRidge
from patchvote.models.suggest import next_labels, uncertainty

RULES = ("suggest", "uncertain", "random")
FIRST = 2  # labels per class before the first round
PER_ROUND = 10
Trial = dict[str, Any]


def divide(photos: Labelled, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the photos of the first labels, of the pool, and of the test; copies are on one side."""
    groups = rng.permutation(np.unique(photos.groups))
    test = np.isin(photos.groups, groups[: len(groups) // 3])
    order = rng.permutation(np.flatnonzero(~test))
    first = np.concatenate([order[photos.numbers[order] == number][:FIRST] for number in range(photos.classes)])
    return first, order[~np.isin(order, first)], np.flatnonzero(test)


def chosen(rule: str, voter: MomentRidge, photos: Labelled, pool: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the photos of the pool that a rule would label next."""
    if rule == "random":
        return rng.permutation(pool)[:PER_ROUND]
    probability = voter.predict_proba(photos.bags.rows(pool))
    if rule == "uncertain":
        return pool[np.argsort(-uncertainty(probability), kind="stable")[:PER_ROUND]]
    return pool[next_labels(probability, photos.vectors[pool], PER_ROUND, photos.groups[pool])]


def curve(name: str, photos: Labelled, rule: str, seed: int, rounds: int) -> Trial:
    """Label photos round by round; return the accuracy on test photos after each."""
    rng = np.random.default_rng(seed)
    labelled, pool, test = divide(photos, rng)
    counts, accuracy = [], []
    for _ in range(rounds):
        voter = MomentRidge(class_weight="balanced")
        voter.fit(photos.bags.rows(labelled), photos.numbers[labelled])
        counts.append(len(labelled))
        accuracy.append(100 * float(voter.score(photos.bags.rows(test), photos.numbers[test])))
        if len(pool) < PER_ROUND:
            break
        more = chosen(rule, voter, photos, pool, rng)
        labelled, pool = np.concatenate([labelled, more]), pool[~np.isin(pool, more)]
    return {"set": name, "rule": rule, "seed": seed, "test": len(test), "labels": counts, "accuracy": accuracy}


def run(sets: dict[str, Labelled], draws: int, rounds: int) -> Iterator[Trial]:
    """Yield the curve of every set, draw and rule."""
    for name, photos in sets.items():
        for seed in range(draws):
            for rule in RULES:
                yield curve(name, photos, rule, seed, rounds)
        print(f"{name} is done", flush=True)


def mean_curve(trials: list[Trial], name: str, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of labels and the mean accuracies of a rule, up to the last round of all draws."""
    rounds = min(len(trial["labels"]) for trial in trials if trial["set"] == name)
    same = [trial for trial in trials if (trial["set"], trial["rule"]) == (name, rule)]
    return np.array(same[0]["labels"][:rounds]), np.mean([trial["accuracy"][:rounds] for trial in same], axis=0)


def saved(trials: list[Trial], name: str, rule: str) -> float:
    """Return the share of labels, in per cent, that a rule needs less than random choice."""
    labels, accuracy = mean_curve(trials, name, rule)
    goal = mean_curve(trials, name, "random")[1][-1]
    reached = int(np.argmax(accuracy >= goal))
    if accuracy[reached] < goal:
        return 0.0
    if reached == 0:
        return 100 * float(1 - labels[0] / labels[-1])
    part = (goal - accuracy[reached - 1]) / (accuracy[reached] - accuracy[reached - 1])
    return 100 * float(1 - (labels[reached - 1] + part * (labels[reached] - labels[reached - 1])) / labels[-1])


def figures(trials: list[Trial]) -> list[Record]:
    """Return the labels saved, per set and rule, and the accuracy in the last round."""
    records = []
    for name in dict.fromkeys(trial["set"] for trial in trials):
        for rule in RULES:
            records.append(record(f"{name}, {rule}: accuracy", mean_curve(trials, name, rule)[1][-1], "%"))
        for rule in RULES[:2]:
            value = saved(trials, name, rule)
            records.append(record(f"{name}, {rule}: labels saved", value, "%", peer="random choice"))
    return records


def main() -> None:
    """Run the benchmark."""
    parser = labelled_options(__doc__, draws=5)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    draws, rounds = (2, 4) if args.quick else (args.draws, args.rounds)
    with threadpool_limits(1):
        trials = list(run(read_sets(args.bags, args.photos), draws, rounds))
    write(figures(trials), args.json)


if __name__ == "__main__":
    main()
