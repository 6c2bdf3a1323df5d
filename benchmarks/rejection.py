"""Strangers: how well photos of unknown classes are told from those of known ones, by which score.

A model learns half of the classes of an image set. Strangers are the other classes of the same set (near), those of
another camera (camera), photos of the other image set (far), and photos of scikit-image, noise, plain colours and text
(very far). Every score is calibrated to reject 1 in 20 held-out photos, as in `patchvote fit`. Recorded are the share
of known photos and of strangers that each score rejects, and its AUROC. Office+Caltech-10 and Scene-15 are read from a
folder, or from a store of their bags; where neither is at hand, crops of photos of scikit-image are used.

    python benchmarks/rejection.py --quick --json rejection.json
    python benchmarks/rejection.py --store DIR --voters bag-svm moment-svm --seeds 100 106 --results results/rejection
    python benchmarks/rejection.py --results results/rejection --table
"""

from __future__ import annotations

import json
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from patchvote.models.choose import choose
from patchvote.voters.doubts import AdaptationWarning
from patchvote.voters.pooling import bag_vectors

from common import DATA, Record, options, record, write
from experiments.made_with import commit
from patchvote import Adapted, Bags, BagSVM, Store
from patchvote.models.fit import candidates_for
from patchvote.models.strangers import Strangers
from patchvote.models.train import train
from patchvote.voters.familiarity import REJECTION, Familiarity, HeldOut
from patchvote.voters.outputs import probability_of
from patchvote.voters.registry import OWN
from rejection_photos import CAMERAS, Collection, drawn, image_sets, shipped, very_far
from rejection_table import (
    ADAPTED_FILE,
    BEFORE,
    FILE,
    KINDS,
    SCORES,
    Trial,
    adapted_table,
    auroc_table,
    mean_of,
    read_trials,
    rejection_table,
    source_table,
)


def strangeness(
    probability: np.ndarray, scores: np.ndarray, temperature: float, vectors: np.ndarray, known: tuple[Any, Any]
) -> dict[str, np.ndarray]:
    """Return every score of photos but ours; larger is stranger. `known` are vectors and classes of known photos."""
    ranked = np.sort(scores, axis=1)
    distance = np.sqrt(np.maximum(2 - 2 * vectors @ known[0].T, 0))
    centres = np.stack([known[0][known[1] == number].mean(axis=0) for number in np.unique(known[1])])
    summed = np.exp((scores - ranked[:, -1:]) / temperature).sum(axis=1)
    return {
        "probability": -probability.max(axis=1),
        "logit": -ranked[:, -1],
        "energy": -ranked[:, -1] - temperature * np.log(summed),
        "margin": ranked[:, -2] - ranked[:, -1],
        "neighbour": distance.min(axis=1),
        "class mean": np.linalg.norm(vectors[:, None] - centres, axis=2).min(axis=1),
    }


def figures(found: np.ndarray, known: np.ndarray, limit: float) -> dict[str, float]:
    """Return the share of photos beyond a limit, and the AUROC against known photos."""
    strangers = Strangers(("",) * len(found), ("",) * len(found), -found, -limit)
    return {"rejected": round(float(strangers.rejected.mean()), 4), "auroc": round(strangers.auroc(-known), 4)}


class Model:
    """A model of one trial: a voter, its held-out photos, and every score of photos."""

    def __init__(self, photos: Collection, rows: np.ndarray, voter: str, seed: int) -> None:
        self.classes, self.numbers = np.unique(photos.labels[rows], return_inverse=True)
        candidate = candidates_for(voter, seed)[0]
        self.means_only = candidate.voter.means_only
        self.means = photos.means[rows]
        bags = photos.bags(rows, self.means_only)
        labels = self.classes[self.numbers]
        self.choice = choose([candidate], bags, labels, budget=math.inf, seed=seed)
        self.voter = train(candidate.voter, math.inf, bags.astype(np.float32), labels)
        self.vectors = bag_vectors(self.means, 0.5)
        self.familiarity, _ = Familiarity.learned(self.means, self.numbers, self.choice.folds())
        parts = [self._held_out(*fold, bags) for fold in zip(self.choice.voters, self.choice.folds(), strict=True)]
        held_out = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self.limits = {name: float(np.quantile(found, 1 - REJECTION)) for name, found in held_out.items()}
        self.limits["familiarity"] = -REJECTION

    def _held_out(self, voter: Any, fold: HeldOut, bags: Bags) -> dict[str, np.ndarray]:
        scores = voter._mean_votes(bags[fold.images].astype(np.float32))
        known = self.vectors[fold.kept], self.numbers[fold.kept]
        return strangeness(fold.probability, scores, self.choice.temperature, self.vectors[fold.images], known)

    def asked(self, bags: Bags) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return every score of photos, and the classes that they are named."""
        bags, temperature = bags.astype(np.float32), self.choice.temperature
        scores, means = self.voter._mean_votes(bags), bags.means()
        probability = probability_of(self.voter.scorer(), scores, bags, temperature, 0.0)
        known = self.vectors, self.numbers
        found = strangeness(probability, scores, temperature, bag_vectors(means, 0.5), known)
        assert self.familiarity is not None
        found["familiarity"] = -self.familiarity.of(probability, means)
        return found, self.classes[probability.argmax(axis=1)]


def trial(photos: Collection, farther: Store, voter: str, source: str, per_class: int, seed: int, most: int) -> Trial:
    """Train a model, and measure every score on photos of every kind."""
    began, sets = time.perf_counter(), drawn(photos, source, per_class, seed, most)
    model = Model(photos, sets.pop("training"), voter, seed)
    found, accuracy = {}, {}
    for name, rows in sets.items():
        found[name], named = model.asked(photos.bags(rows, model.means_only))
        if "known" in name:
            accuracy[name] = round(float(np.mean(named == photos.labels[rows])), 4)
    found["very far"], _ = model.asked(farther.load(dtype=farther.dtype)[0])
    measured = {
        score: {name: figures(of[score], found["known"][score], model.limits[score]) for name, of in found.items()}
        for score in SCORES
    }
    limit = -model.choice.threshold  # that of earlier versions: 19 in 20 correctly classified held-out photos reach it
    measured[BEFORE] = {
        name: figures(of["probability"], found["known"]["probability"], limit) for name, of in found.items()
    }
    return {
        "voter": voter,
        "source": source,
        "per_class": per_class,
        "seed": seed,
        "classes": model.classes.tolist(),
        "held_out": len(model.choice.images),
        "photos": {name: len(of["logit"]) for name, of in found.items()},
        "accuracy": accuracy,
        "scores": measured,
        "seconds": round(time.perf_counter() - began, 1),
    }


def adapted_trial(photos: Collection, source: str, target: str, seed: int, mixed: bool) -> Trial | None:
    """Adapt a model to another camera, with strangers among its photos or not; None if that is refused."""
    rng, labels = np.random.default_rng([seed, mixed]), photos.labels
    known = rng.permutation(np.unique(labels[photos.domains == source]))[:7]

    def some(domain: str, inside: bool, most: int) -> np.ndarray:
        mask = (photos.domains == domain) & (np.isin(labels, known) == inside)
        return rng.permutation(np.flatnonzero(mask))[:most]

    rows = np.concatenate(
        [rng.permutation(np.flatnonzero((photos.domains == source) & (labels == one)))[:20] for one in known]
    )
    sets = {"known": some(target, True, 200), "camera": some(target, False, 100), "far": some("scene15", False, 200)}
    voter = BagSVM(class_weight="balanced").fit(photos.means[rows], labels[rows]).to_adapt()
    asked = np.concatenate([sets["known"], sets["camera"]]) if mixed else sets["known"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        adapted = Adapted(voter.voter).fit(
            voter.bags, voter.labels, Bags.of(photos.means[asked]), unadapted=voter.unadapted
        )
    if adapted.refusal_ is not None or adapted.familiarity_ is None:
        return None
    rejected: dict[str, dict[str, float]] = {BEFORE: {}, "familiarity": {}}
    for name, some_rows in sets.items():
        means = photos.means[some_rows]
        probability = adapted.predict_proba(Bags.of(means))
        vetoed = probability.max(axis=1) < adapted.rejection_threshold_
        unfamiliar = adapted.familiarity_.of(probability, means) < REJECTION
        rejected[BEFORE][name] = round(float(vetoed.mean()), 4)
        rejected["familiarity"][name] = round(float((vetoed | unfamiliar).mean()), 4)
    return {
        "pair": f"{source}-{target}",
        "mixed": mixed,
        "seed": seed,
        "classes": sorted(known.tolist()),
        "rejected": rejected,
    }


def trials(photos: Collection, farther: Store, args: Any) -> Iterator[Trial]:
    """Run the trials that were asked for."""
    sources = [one for one in ("scene15", *CAMERAS[:2], "webcam", "textures") if one in photos.domains]
    for voter in args.voters:
        for seed in range(*args.seeds):
            for source in sources:
                for per_class in args.per_class:
                    if source != "webcam" or per_class <= 10:  # a webcam has 15 photos per class or a few more
                        yield trial(photos, farther, voter, source, per_class, seed, args.most)


def goals(found: list[Trial]) -> list[Record]:
    """Return the figures that have goals: ours beside the best of the three scores that were in question."""
    records = []
    for voter in dict.fromkeys(one["voter"] for one in found):
        own = [one for one in found if one["voter"] == voter]
        for kind in KINDS:
            ours = mean_of(own, "familiarity", kind, "auroc")
            if not np.isnan(ours):
                peers = {score: mean_of(own, score, kind, "auroc") for score in ("probability", "logit", "neighbour")}
                best = max(peers, key=lambda score: peers[score])
                records.append(record(f"{voter}, {kind}: AUROC", round(ours, 4), "", round(peers[best], 4), best))
    return records


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with office_caltech/ and scene15/")
    parser.add_argument("--store", type=Path, metavar="DIR", help="store of their bags, instead of photos")
    parser.add_argument("--voters", nargs="+", choices=list(OWN), default=["bag-svm"], metavar="VOTER", help="voters")
    parser.add_argument("--seeds", nargs=2, type=int, default=(100, 102), metavar=("FIRST", "END"), help="of the draws")
    parser.add_argument("--per-class", nargs="+", type=int, default=[10], help="training photos per class")
    parser.add_argument("--most", type=int, default=200, help="most photos of every kind to ask about")
    parser.add_argument("--adapted", action="store_true", help="try models that are adapted to another camera instead")
    parser.add_argument("--results", type=Path, metavar="DIR", help="add one line per trial to a file in DIR")
    parser.add_argument("--table", action="store_true", help="print the tables of the records in DIR, and run nothing")
    args = parser.parse_args()
    if args.table:
        print_tables(args.results)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = list(run(args, Path(folder)))
    write(goals(found) if not args.adapted else [], args.json)


def run(args: Any, folder: Path) -> Iterator[Trial]:
    """Run trials, print each, and add it to the records."""
    has_data = args.store is not None or all((args.data / name).is_dir() for name in ("office_caltech", "scene15"))
    quick = args.quick or not has_data
    photos = shipped(folder) if quick else image_sets(args.data, folder, args.store)
    farther = very_far(folder, quick)
    if args.adapted:
        pairs = [
            (one, other) for one in CAMERAS for other in CAMERAS if one != other and {one, other} <= set(photos.domains)
        ]
        runs = (
            adapted_trial(photos, *pair, seed, mixed)
            for pair in pairs
            for seed in range(*args.seeds)
            for mixed in (False, True)
        )
    else:
        runs = trials(photos, farther, args)
    path = args.results / (ADAPTED_FILE if args.adapted else FILE) if args.results else None
    for one in runs:
        if one is None:
            continue
        line = json.dumps(one | {"commit": commit()})
        print(line, flush=True)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        yield one


def print_tables(folder: Path) -> None:
    """Print the tables of docs/rejection.md."""
    found = read_trials(folder / FILE)
    for table in (auroc_table(found), rejection_table(found), source_table(found, "bag-svm")):
        print(f"{table}\n")
    print(adapted_table(read_trials(folder / ADAPTED_FILE)))


if __name__ == "__main__":
    main()
