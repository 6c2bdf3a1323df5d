"""The cost of networks and recipes: seconds of extraction per photo relative to the default, in one run and in turns.

python benchmarks/costs.py --photos scene15/ --json costs.json
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from common import DATA, Record, options, record, write
from experiments.recipes import parse_recipe
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


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, default=DATA / "scene15", help="folder of photos; Scene-15 by default")
    args = parser.parse_args()
    photos = find_photos(args.photos)
    random.Random(0).shuffle(photos)
    write(measure_costs(photos, args.quick), args.json)


if __name__ == "__main__":
    main()
