"""How many planted wrong labels, and how many strangers, `patchvote check` finds, beside simpler rules.

Of each set, 5 % of the photos get a wrong label: of any other class, or of the class that the photo resembles most
(the likeliest wrong one when it is held out with the right labels). Every rule orders the photos; measured are the
share of the planted ones among the first as many, among the first twice as many, and the average precision. Peers on
the same features: the share of the nearest neighbours with another label, and self-confidence (the held-out
probability of the label), the ranking of confident learning. Strangers are photos of another set with random labels.

    python benchmarks/mislabelled.py --quick --json mislabelled.json
    python benchmarks/mislabelled.py --bags STORE --results results/check/mislabelled.jsonl --page docs/check.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from common import Record, options, record, timed, write
from labelled import OFFICE, Labelled, add_options, mean, read_sets, read_trials, renew, table, title, write_trials
from patchvote.bags.moments import MomentBags, photo_vectors
from patchvote.models.check.held_out import HeldOut, hold_out_each
from patchvote.models.check.suspects import doubtful_labels, label_doubts, outliers

RATE = 0.05  # of the photos get a wrong label
STRANGERS = 0.02  # of the photos, as many strangers are added
NEIGHBOURS = 20  # chosen among 5, 10, 20 and 40 on Amazon and Webcam, where it did best
CHOSEN_ON = (
    "amazon",
    "scene15",
    "webcam",
)  # sets on which rules were chosen, with draws from 100 on; reported are draws from 0 on
WRONG = {"any": "any class", "alike": "the most alike"}  # which wrong labels photos get
RULES = ("check", "self-confidence", "neighbours")
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
    seconds, held_out = timed(lambda: hold_out_each(photos.bags, labels, photos.groups))
    own = np.nan_to_num(held_out.probability[np.arange(len(labels)), labels], nan=1.0)
    by_neighbours, found = timed(lambda: neighbours(photos, labels))
    ranks = {"check": label_doubts(held_out.probability, labels)[0], "self-confidence": -own, "neighbours": found}
    common = {"part": "labels", "set": name, "wrong": wrong, "seed": seed, "planted": int(planted.sum())}
    for rule in RULES:
        trial = common | {"rule": rule, **measures(ranks[rule], planted)}
        trial["seconds"] = by_neighbours if rule == "neighbours" else seconds
        if rule == "check":
            trial |= listed(doubtful_labels(held_out.probability, labels)[0], planted)
        yield trial


def clean_trial(name: str, photos: Labelled) -> Trial:
    """Return what is listed of a set as it was published."""
    held_out = hold_out_each(photos.bags, photos.numbers, photos.groups)
    labels, _ = doubtful_labels(held_out.probability, photos.numbers)
    return {
        "part": "clean",
        "set": name,
        "photos": len(photos),
        "classes": photos.classes,
        "accuracy": 100 * float(np.mean(held_out.probability.argmax(axis=1) == photos.numbers)),
        "listed": len(labels),
        "outliers": len(outliers(held_out.unlike)),
    }


def stranger_trials(name: str, photos: Labelled, others: Labelled, seed: int) -> Iterator[Trial]:
    """Add photos of another set under random labels, and yield how well they are found."""
    rng, count = np.random.default_rng(seed), max(2, round(STRANGERS * len(photos)))
    strangers = others.bags.rows(rng.permutation(len(others))[:count])
    bags = MomentBags.joined([photos.bags, strangers])
    labels = np.concatenate([photos.numbers, rng.integers(0, photos.classes, count)])
    groups = np.concatenate([photos.groups, len(photos) + np.arange(count)])
    planted = np.arange(len(bags)) >= len(photos)
    held_out: HeldOut = hold_out_each(bags, labels, groups)
    vectors = photo_vectors(bags).astype(np.float32)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    distance = 1 - np.partition(similarity, -10, axis=1)[:, -10]  # to the tenth neighbour, the best of 1, 3, 5 and 10
    unlike = np.nan_to_num(held_out.unlike, nan=0.0)
    common = {"part": "strangers", "set": name, "seed": seed, "planted": count}
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


# --- words ------------------------------------------------------------------------------------------------------------


def figures(trials: list[Trial]) -> list[Record]:
    """Return the figures of a run: the average precision of every rule."""
    records = []
    keys = dict.fromkeys((t["set"], t.get("wrong", "strangers"), t["rule"]) for t in trials if "rule" in t)
    for name, wrong, rule in keys:
        of_rule = [t for t in trials if (t["set"], t.get("wrong", "strangers"), t.get("rule")) == (name, wrong, rule)]
        value = mean(trial["average_precision"] for trial in of_rule)
        peer = None if rule != "check" else "neighbours"
        records.append(record(f"{name}, {wrong}, {rule}: average precision", value, "%", peer=peer))
    return records


def tables(trials: list[Trial]) -> list[str]:
    """Return the tables of the page."""
    names = list(dict.fromkeys(trial["set"] for trial in trials))
    names.sort(key=lambda name: (name in CHOSEN_ON, name in OFFICE, name != "scene15"))
    return [
        *table("set, planted, rule, first as many, first twice as many, average precision", _label_rows(trials, names)),
        "",
        "What the command lists (mean of the draws), and what it lists of the set as it was published:",
        "",
        *table("set, planted, listed, of these planted, listed as published, accuracy", _listed_rows(trials, names)),
        "",
        "Strangers: photos of another set under random labels.",
        "",
        *table(
            "set, strangers, rule, first as many, average precision, listed, of these strangers",
            _stranger_rows(trials, names),
        ),
    ]


def _some(trials: list[Trial], **wanted: object) -> list[Trial]:
    return [trial for trial in trials if all(trial.get(key) == value for key, value in wanted.items())]


def _means(trials: list[Trial], *keys: str) -> list[str]:
    return [f"{mean(trial[key] for trial in trials):.1f}" if key in trials[0] else "" for key in keys]


def _star(name: str) -> str:
    return title(name) + " *" * (name in CHOSEN_ON)


def _label_rows(trials: list[Trial], names: list[str]) -> Iterator[list[str]]:
    words = {"check": "`check`", "self-confidence": "self-confidence", "neighbours": f"{NEIGHBOURS} neighbours"}
    for name in names:
        for wrong in WRONG:
            for rule in RULES:
                same = _some(trials, part="labels", set=name, wrong=wrong, rule=rule)
                planted = f"{same[0]['planted']}, {WRONG[wrong]}"
                yield [_star(name), planted, words[rule], *_means(same, "first", "twice", "average_precision")]


def _listed_rows(trials: list[Trial], names: list[str]) -> Iterator[list[str]]:
    for name in names:
        (clean,) = _some(trials, part="clean", set=name)
        published = f"{clean['listed']} of {clean['photos']:,}"
        for wrong in WRONG:
            same = _some(trials, part="labels", set=name, wrong=wrong, rule="check")
            planted = f"{same[0]['planted']}, {WRONG[wrong]}"
            yield [_star(name), planted, *_means(same, "listed", "right"), published, f"{clean['accuracy']:.1f} %"]


def _stranger_rows(trials: list[Trial], names: list[str]) -> Iterator[list[str]]:
    for name in names:
        for rule, words in (("check", "`check`"), ("neighbours", "10th neighbour")):
            if same := _some(trials, part="strangers", set=name, rule=rule):
                cells = _means(same, "first", "average_precision", "listed", "right")
                yield [_star(name), str(same[0]["planted"]), words, *cells]


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    add_options(parser)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first draw")
    args = parser.parse_args()
    if args.page is None or args.bags or args.photos:
        with threadpool_limits(1):
            trials = run(read_sets(args.bags, args.photos), 2 if args.quick else args.draws, args.first_seed)
        settings = {"rate": RATE, "strangers": STRANGERS, "neighbours": NEIGHBOURS, "draws": args.draws}
        if args.results is not None:
            write_trials(args.results, trials, settings | {"first_seed": args.first_seed})
    else:
        trials = read_trials(args.results)
    if args.page is not None:
        renew(args.page, "mislabelled", tables(trials))
    write(figures(trials), args.json)


if __name__ == "__main__":
    main()
