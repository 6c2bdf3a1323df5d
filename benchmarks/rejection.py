"""Strangers: how well photos of unknown classes are told from those of known ones, by which score.

A model learns half of the classes of an image set. Strangers are the other classes of the same set (near), those of
another camera (camera), photos of the other image set (far), and photos of scikit-image, noise, plain colours and text
(very far). Every score is calibrated to reject 1 in 20 held-out photos, as in `patchvote fit`. Recorded are the share
of known photos and of strangers that each score rejects, and its AUROC. Office+Caltech-10 and Scene-15 are read from a
folder, or from a store of their bags; where neither is at hand, crops of photos of scikit-image are used.

    python benchmarks/rejection.py --quick --json rejection.json
    python benchmarks/rejection.py --store DIR --voters moment-ridge snbnl --seeds 100 106 --results results/rejection
    python benchmarks/rejection.py --results results/rejection --table
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common import DATA, Record, options, record, write
from experiments.made_with import commit
from patchvote import Bags, Extractor
from patchvote.bags.copies import copy_groups
from patchvote.bags.moments import photo_vectors
from patchvote.models.fit import fit_model, voter_for
from patchvote.models.scores import Strangers
from patchvote.voters.familiarity import REJECTION
from patchvote.voters.registry import DEFAULT, OWN
from rejection_photos import CAMERAS, Collection, collected, drawn, image_sets, shipped, very_far
from rejection_table import (
    BEFORE,
    FILE,
    KINDS,
    SCORES,
    Trial,
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
    """A model of one trial: what `patchvote fit` learns, and every score of photos."""

    def __init__(self, photos: Collection, rows: np.ndarray, kind: str, extractor: Extractor, seed: int) -> None:
        learned = photos.learned(rows, kind)
        self.classes, self.numbers = np.unique(photos.labels[rows], return_inverse=True)
        self.vectors = photo_vectors(photos.moments.rows(rows))
        settings: dict[str, Any] = {"budget": math.inf, "seed": seed, "progress": None, "seconds": {}}
        fitted = fit_model(learned, voter_for(kind, seed), extractor, **settings)
        assert fitted.left_out is not None
        self.model, self.voter, self.left_out = fitted.model, fitted.voter, fitted.left_out
        index = {name: number for number, name in enumerate(learned.names)}
        images = np.array([index[name] for name in self.left_out.names])
        if self.voter.leaves_out:
            scores = self.voter.left_out_[images]
        else:
            scores = fitted.without(learned.names[images[0]]).scorer().scores(loaded(photos, rows[images], kind))
        groups = copy_groups(self.vectors, learned.digests)
        parts = [
            strangeness(
                self.left_out.probability[[place]],
                scores[[place]],
                self.voter.temperature_,
                self.vectors[[image]],
                (self.vectors[groups != groups[image]], self.numbers[groups != groups[image]]),
            )
            for place, image in enumerate(images.tolist())
        ]
        held_out = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self.limits = {name: float(np.quantile(found, 1 - REJECTION)) for name, found in held_out.items()}
        self.limits["familiarity"] = -REJECTION

    def asked(self, bags: Bags, vectors: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return every score of photos, and the classes that they are named."""
        scorer, temperature = self.model.scorer, self.voter.temperature_
        scores = scorer.scores(bags)
        probability = scorer.probability(scores, bags, temperature, 0.0)
        found = strangeness(probability, scores, temperature, vectors, (self.vectors, self.numbers))
        assert self.model.familiarity is not None
        found["familiarity"] = -self.model.familiarity.of(probability, vectors)
        return found, self.classes[probability.argmax(axis=1)]


def loaded(photos: Collection, rows: np.ndarray, kind: str) -> Bags:
    """Return the bags of photos as a voter of this kind reads them."""
    return photos.moments.rows(rows) if kind == DEFAULT else photos.store.load(rows, np.float32)[0]


def trial(
    photos: Collection, farther: Collection, voter: str, source: str, per_class: int, seed: int, most: int
) -> Trial:
    """Train a model, and measure every score on photos of every kind."""
    began, sets = time.perf_counter(), drawn(photos, source, per_class, seed, most)
    model = Model(photos, sets.pop("training"), voter, Extractor(photos.store.recipe), seed)
    found, accuracy = {}, {}
    for name, rows in sets.items():
        found[name], named = model.asked(loaded(photos, rows, voter), photo_vectors(photos.moments.rows(rows)))
        if "known" in name:
            accuracy[name] = round(float(np.mean(named == photos.labels[rows])), 4)
    found["very far"], _ = model.asked(
        loaded(farther, np.arange(len(farther.labels)), voter), photo_vectors(farther.moments)
    )
    measured = {
        score: {name: figures(of[score], found["known"][score], model.limits[score]) for name, of in found.items()}
        for score in SCORES
    }
    limit = (
        -model.voter.rejection_threshold_
    )  # that of earlier versions: 19 in 20 correctly classified held-out photos reach it
    measured[BEFORE] = {
        name: figures(of["probability"], found["known"]["probability"], limit) for name, of in found.items()
    }
    return {
        "voter": voter,
        "source": source,
        "per_class": per_class,
        "seed": seed,
        "classes": model.classes.tolist(),
        "held_out": len(model.left_out.names),
        "photos": {name: len(of["logit"]) for name, of in found.items()},
        "accuracy": accuracy,
        "scores": measured,
        "seconds": round(time.perf_counter() - began, 1),
    }


def trials(photos: Collection, farther: Collection, args: Any) -> Iterator[Trial]:
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
    parser.add_argument("--voters", nargs="+", choices=list(OWN), default=[DEFAULT], metavar="VOTER", help="voters")
    parser.add_argument("--seeds", nargs=2, type=int, default=(100, 102), metavar=("FIRST", "END"), help="of the draws")
    parser.add_argument("--per-class", nargs="+", type=int, default=[10], help="training photos per class")
    parser.add_argument("--most", type=int, default=200, help="most photos of every kind to ask about")
    parser.add_argument("--results", type=Path, metavar="DIR", help="add one line per trial to a file in DIR")
    parser.add_argument("--table", action="store_true", help="print the tables of the records in DIR, and run nothing")
    args = parser.parse_args()
    if args.table:
        print_tables(args.results)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = list(run(args, Path(folder)))
    write(goals(found), args.json)


def run(args: Any, folder: Path) -> Iterator[Trial]:
    """Run trials, print each, and add it to the records."""
    has_data = args.store is not None or all((args.data / name).is_dir() for name in ("office_caltech", "scene15"))
    quick = args.quick or not has_data
    photos = shipped(folder) if quick else image_sets(args.data, folder, args.store)
    farther = collected(very_far(folder, quick), {})
    path = args.results / FILE if args.results else None
    for one in trials(photos, farther, args):
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


if __name__ == "__main__":
    main()
