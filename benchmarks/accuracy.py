"""The accuracy of the votes, and the cost of networks and recipes.

Costs are measured here, in one run and in turns: seconds per photo of each recipe, relative to the default. Accuracies
are means over the cells stored in `results/`, which `python -m experiments` computes.

    python benchmarks/accuracy.py --photos scene15/ --json accuracy.json
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np

from common import DATA, ROOT, Record, options, record, write
from experiments.page.tables import summarise
from experiments.protocol import Protocol
from experiments.recipes import parse_recipe
from experiments.results import Results
from patchvote import Extractor, Photo, find_photos

DEFAULT = ("dense", "efficientnet-lite0")
# Recipe, network, limit of the cost relative to the default.
COSTLY = [
    ("dense-224-448-672", "efficientnet-lite0", None),
    ("dense", "efficientnet-lite2", None),
    ("dense", "efficientnet-lite0+efficientnet-lite2", 4.0),
    ("patch", "efficientnet-lite0", None),
]


def measure_costs(photos: list[Photo], quick: bool) -> list[Record]:
    """Extract the same photos with all recipes in turns, so that other load on the machine affects them equally."""
    ways = [DEFAULT, *((recipe, network) for recipe, network, _ in COSTLY)]
    extractors = {way: Extractor(parse_recipe(*way)) for way in ways}
    seconds = dict.fromkeys(ways, 0.0)
    for extractor in extractors.values():
        extractor(photos[:1])
    rounds, count = (2, 2) if quick else (12, 8)
    for index in range(rounds):
        chosen = photos[count * index : count * (index + 1)]
        for way, extractor in extractors.items():
            start = time.perf_counter()
            for _ in extractor.stream(chosen):
                pass
            seconds[way] += time.perf_counter() - start
    records = []
    for recipe, network, goal in COSTLY:
        ratio = seconds[recipe, network] / seconds[DEFAULT]
        records.append(record(f"cost of {recipe}, {network}", ratio, "ratio", goal, "the default recipe"))
    return records


def stored_accuracies(results: Results) -> list[Record]:
    """Return the mean accuracies of the stored cells."""
    records: list[Record] = []

    def keep(name: str, value: float, goal: float | None, peer: str | None) -> None:
        records.append(record(name, value, "%", goal, peer))

    scenes = {(r["voter"], r["recipe"], r["network"]): r for r in summarise(Protocol.load("scene15"), results)}
    for network, goal in (("efficientnet-lite0+efficientnet-lite2", 95.0), ("efficientnet-lite0", None)):
        if (row := scenes.get(("snbnl", "dense", network))) is not None:
            keep(f"Scene-15, sNBNL, {network}, {row['splits']} splits", row["mean"], goal, "the paper's 92.88")
    office = Protocol.load("office-caltech")
    rows = [row for row in summarise(office, results) if row["recipe"] == "dense"]
    for setting, goal in zip(office.settings, (95.0, 96.0), strict=True):
        means = {
            voter: {r["pair"]: r["mean"] for r in rows if (r["setting"], r["voter"]) == (setting.name, voter)}
            for voter in ("adapted", "whole-svm")
        }
        if all(pair in by_pair for by_pair in means.values() for pair in setting.main):
            adapted, whole = (np.array([means[voter][pair] for pair in setting.main]) for voter in means)
            name = f"Office+Caltech-10, {setting.name}, six pairs"
            keep(f"{name}, adapted BagSVM", float(adapted.mean()), goal, "whole image + SVM")
            keep(f"{name}, least lead over the whole image", float((adapted - whole).min()), -0.5, "whole image + SVM")
    for protocol in (Protocol.load("scene15-few"), Protocol.load("amazon-few")):
        rows_by_key = {(row["setting"], row["voter"]): row for row in summarise(protocol, results)}
        for setting in protocol.settings:
            others = [row for key, row in rows_by_key.items() if key[0] == setting.name and key[1] != "default"]
            row = rows_by_key.get((setting.name, "default"))
            if row is not None and others:
                best = max(others, key=lambda other: other["mean"])
                error = row["deviation"] / row["splits"] ** 0.5
                name = (
                    f"{protocol.title}: {setting.name} per class, the default voter's lead over the best simple voter"
                )
                keep(name, row["mean"] - best["mean"], -error, best["voter"])
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, default=DATA / "scene15", help="folder of photos; Scene-15 by default")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of stored cells")
    args = parser.parse_args()
    photos = find_photos(args.photos)
    random.Random(0).shuffle(photos)
    figures = [*measure_costs(photos, args.quick), *stored_accuracies(Results(args.results))]
    write(figures, args.json)


if __name__ == "__main__":
    main()
