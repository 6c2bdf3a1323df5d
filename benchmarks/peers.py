"""patchvote beside what people would use instead, on the same photos and the same machine in one run.

Every method is what its user would write: two commands of patchvote, or a script in `peer_scripts`, which learns from a
folder of class folders, and is then asked about another. Learning and asking are processes of their own. Per method:
accuracy on the test photos, compared with patchvote's default photo by photo (sign test), seconds to learn, seconds per
photo asked, peak memory, size of the model's file, and the lines that a user writes. No method finds anything in a
cache. Photos come from a folder of class folders, of which `--train` per class are learned and `--test` are asked;
without one, from scikit-image, cut as in `patchvote demo`, on which every network is right. A method whose package is
missing or does not run is named and left out. Beside the records, FILE.answers.jsonl has which photos each method has
right: the methods in its first line, then one line per photo.

    python benchmarks/peers.py --photos scene15 --json peers.json --table peers.md
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from common import Record, options, record, run_command, write
from patchvote import find_photos
from patchvote.cli.demo import make_photos

OURS = "patchvote"  # the default, with which every other method is compared

# By column: unit, header, how a cell is written. A record's name is the column's, a comma, and the method's.
COLUMNS: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "fit seconds": ("s", "to learn", lambda value: f"{value:.0f} s"),
    "photo seconds": ("s/photo", "per photo", lambda value: f"{1000 * value:.0f} ms"),
    "gigabytes": ("GB", "peak memory", lambda value: f"{value:.2f} GB"),
    "lines": ("lines", "lines", lambda value: f"{value:.0f}"),
}

SCRIPTS = Path(__file__).resolve().parent / "peer_scripts"
QUICK = (
    OURS,
    "whole photo, ONNX, logistic regression",
    "whole photo, ONNX, LinearSVC",
    "whole photo, ONNX, root of the mean at two scales, LinearSVC, C by cross-validation",
    "whole photo, eager torch, logistic regression",
    "nearest parts, faiss",
)


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to classify photos.

    Parameters
    ----------
    name : str
        Name in the table.
    fit : sequence of str
        Options of `patchvote fit`, or the arguments of the script after the model. {seconds} is the time that
        patchvote's default took to learn, and {tenfold} ten times as long.
    script : str, optional
        File in `peer_scripts`; without one, the method is patchvote itself.
    """

    name: str
    fit: Sequence[str] = ()
    script: str | None = None

    def commands(self, train: Path, test: Path, model: Path, answers: Path, seconds: float) -> list[list[str]]:
        """Return the command that learns, and the one that asks."""
        more = [word.format(seconds=f"{seconds:.1f}", tenfold=f"{10 * seconds:.1f}") for word in self.fit]
        if self.script is not None:
            start = [sys.executable, str(SCRIPTS / self.script)]
            return [
                [*start, "fit", str(train), str(model), *more],
                [*start, "predict", str(model), str(test), str(answers)],
            ]
        start = [sys.executable, "-m", "patchvote"]
        return [
            [*start, "fit", str(train), str(model), "--no-cache", "--quiet", *more],
            [*start, "predict", str(model), str(test), "--no-cache", "--quiet", "-o", str(answers)],
        ]

    def lines(self) -> int:
        """Return how many lines a user writes: the commands, or those of the script that this method needs.

        Comments and empty lines do not count, nor do the lines of a table of classifiers (`"svm": LinearSVC(),`) that
        stand for another method, nor imports that only those use.
        """
        if self.script is None:
            return 2
        text = (SCRIPTS / self.script).read_text().split('"""', 2)[2]
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        lines = [line for line in lines if not line.startswith('"') or line.split('"')[1] in self.fit]
        code = " ".join(line for line in lines if " import " not in line)
        needed = [line.rpartition(" import ")[2].split(", ") for line in lines if line.startswith("from sklearn")]
        return len(lines) - sum(not any(name in code for name in names) for names in needed)


METHODS = (
    Method(OURS),
    Method("patchvote, votes of parts (snbnl)", ("--voter", "snbnl")),
    Method("patchvote, the paper's patches (snbnl)", (), "paper_patches.py"),
    Method("whole photo, ONNX, logistic regression", ("logistic",), "onnx_sklearn.py"),
    Method("whole photo, ONNX, logistic regression, C by cross-validation", ("logistic-cv",), "onnx_sklearn.py"),
    Method("whole photo, ONNX, LinearSVC", ("svm",), "onnx_sklearn.py"),
    Method("whole photo, ONNX, LinearSVC, C by cross-validation", ("svm-cv",), "onnx_sklearn.py"),
    Method("whole photo, ONNX, 5 neighbours by cosine", ("knn",), "onnx_sklearn.py"),
    Method("whole photo, ONNX, one prototype per class", ("centroid",), "onnx_sklearn.py"),
    Method(
        "whole photo, ONNX, root of the mean at two scales, LinearSVC, C by cross-validation", (), "onnx_two_scales.py"
    ),
    Method("whole photo, eager torch, logistic regression", (), "torch_sklearn.py"),
    Method("fine-tuned in torch, 224 px, patchvote's time", ("{seconds}", "224"), "torch_tuned.py"),
    Method("fine-tuned in torch, 224 px, 10 times that time", ("{tenfold}", "224"), "torch_tuned.py"),
    Method("nearest parts, faiss", (), "faiss_patches.py"),
    Method("attention over parts, torchmil", (), "torchmil_attention.py"),
    Method("colour histograms, embetter", (), "embetter_histogram.py"),
)


@dataclasses.dataclass(frozen=True)
class Result:
    """What one method took and brought: figures by column of the table, and which test photos it has right."""

    figures: dict[str, float]
    processor: tuple[float, float]  # seconds of all processors, to learn and per photo
    right: dict[str, bool]


def divided(source: Path, folder: Path, train: int, test: int) -> tuple[Path, Path]:
    """Link random photos of every class into a folder to learn from, and others into one to ask about."""
    rng = np.random.default_rng(1)  # settings of peers were chosen on the draw with seed 0
    by_class: dict[str, list[Path]] = {}
    for photo in find_photos(source):
        by_class.setdefault(str(photo.label), []).append(Path(str(photo.source)).resolve())
    for label, files in sorted(by_class.items()):
        chosen = [files[index] for index in rng.permutation(len(files))[: train + test]]
        for number, file in enumerate(chosen):
            target = folder / ("train" if number < train else "test") / label / f"{number:04d}{file.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)
    if not (folder / "test").exists():
        raise SystemExit(f"{source} has no class with more than {train} photos: learn from fewer (--train).")
    return folder / "train", folder / "test"


def measured(method: Method, train: Path, test: Path, seconds: float) -> Result:
    """Let a method learn and answer."""
    photos = sorted(f"{photo.parent.name}/{photo.name}" for photo in test.glob("*/*"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, answers = folder / "model.patchvote", folder / ("answers.csv" if method.script else "answers.jsonl")
        learn, ask = method.commands(train, test, model, answers, seconds)
        fitting = run_command(learn, folder)
        asking = run_command(ask, folder)
        size = model.stat().st_size  # without the report that patchvote writes beside it
        hits = right(answers)
    figures = {
        "fit seconds": fitting.seconds,
        "photo seconds": asking.seconds / len(photos),
        "gigabytes": max(fitting.gigabytes, asking.gigabytes),
        "model megabytes": size / 1e6,
        "lines": float(method.lines()),
    }
    processor = (fitting.processor, asking.processor / len(photos))
    return Result(figures, processor, {photo: hits.get(photo, False) for photo in photos})


def right(answers: Path) -> dict[str, bool]:
    """Return by photo (class/name) whether its answer is the name of its folder.

    patchvote writes .jsonl, in which names are exact: in its .csv, one that a spreadsheet takes for a formula is not.
    """
    with answers.open(encoding="utf-8", newline="") as file:  # names of classes may hold line breaks
        if answers.suffix == ".jsonl":
            pairs = [(Path(row["file"]), row["likeliest"]) for row in map(json.loads, file)]
        else:
            pairs = [(Path(name), label) for name, label in csv.reader(file)]
    return {f"{path.parent.name}/{path.name}": path.parent.name == answer for path, answer in pairs}


def records_of(name: str, result: Result, ours: Result) -> list[Record]:
    """Return one record per column, and the comparison with our default."""
    peer = None if result is ours else OURS
    records = [record(f"accuracy, {name}", 100 * float(np.mean(list(result.right.values()))), "%", None, peer)]
    if peer is not None:
        pairs = [(hit, ours.right[photo]) for photo, hit in result.right.items()]
        won, lost = pairs.count((True, False)), pairs.count((False, True))
        p = float(binomtest(won, won + lost).pvalue) if won + lost else 1.0
        records += [
            record(f"won, {name}", won, "photos", None, peer),
            record(f"lost, {name}", lost, "photos", None, peer),
            record(f"p, {name}", p, "sign test", None, peer),
        ]
    units = {column: unit for column, (unit, _, _) in COLUMNS.items()} | {"model megabytes": "MB"}
    records += [
        record(f"{column}, {name}", value, units[column], None, peer) for column, value in result.figures.items()
    ]
    for title, seconds, unit in zip(("to learn", "per photo"), result.processor, ("s", "s/photo"), strict=True):
        records.append(record(f"processor seconds {title}, {name}", seconds, unit, None, peer))
    return records


def write_answers(results: dict[str, Result], test: Path, file: Path) -> None:
    """Write which photos each method has right: the methods, then a photo per line, by the name in its own folder."""
    lines: list[object] = [{"methods": list(results)}]
    for photo in next(iter(results.values())).right if results else ():
        source = (test / photo).resolve()
        hits = "".join(str(int(one.right[photo])) for one in results.values())
        lines.append({"photo": f"{Path(photo).parent}/{source.name}", "right": hits})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def measure_all(methods: Sequence[Method], train: Path, test: Path) -> tuple[dict[str, Result], list[Record]]:
    """Measure method after method, patchvote's default first; return their results, and the records."""
    results: dict[str, Result] = {}
    records: list[Record] = []
    failures: list[Record] = []
    seconds = math.nan
    for method in methods:
        try:
            result = measured(method, train, test, seconds)
        except RuntimeError as error:
            if method.name == OURS:
                raise
            failures.append(record(f"did not run, {method.name}: {str(error)[:100]}", 1, "failure"))
            continue
        results[method.name] = result
        seconds = results[OURS].figures["fit seconds"]
        records += records_of(method.name, result, results[OURS])
    return results, records + failures


def rows_of(records: list[Record]) -> dict[str, list[str]]:
    """Return the cells of each method, in the order of the records."""
    values = {str(one["name"]): float(one["value"]) for one in records}  # type: ignore[arg-type]
    asked = next(value for name, value in values.items() if name.startswith("photos asked"))
    rows = {}
    for key, accuracy in values.items():
        column, _, method = key.partition(", ")
        if column == "did not run":
            rows[method] = [column, *[""] * (len(COLUMNS) + 1)]
        if column == "accuracy":
            error = math.sqrt(accuracy * (100 - accuracy) / asked)
            won, lost, p = (values.get(f"{what}, {method}") for what in ("won", "lost", "p"))
            compared = "" if p is None else f"{won:.0f}:{lost:.0f} ({p:.2g})"
            cells = [write(values[f"{what}, {method}"]) for what, (_, _, write) in COLUMNS.items()]
            rows[method] = [f"{accuracy:.1f} ± {error:.1f}", compared, *cells]
    return rows


def table(records: list[Record]) -> str:
    """Return the table."""
    header = ["method", "accuracy, %", "won:lost (p)", *(title for _, title, _ in COLUMNS.values())]
    lines = [f"| {' | '.join(header)} |", "|---|" + "--:|" * (len(header) - 1)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows_of(records).items())])


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, help="folder of class folders")
    parser.add_argument("--train", type=int, default=20, help="photos per class to learn (default %(default)s)")
    parser.add_argument("--test", type=int, default=30, help="photos per class to ask about (default %(default)s)")
    parser.add_argument("--only", metavar="WORDS", help="methods whose name has these words, beside the default")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table to FILE")
    return parser.parse_args()


def main() -> None:
    """Measure all methods, or with --quick those that take seconds."""
    arguments = parsed()
    chosen = [one for one in METHODS if not arguments.quick or one.name in QUICK]
    if arguments.only:
        chosen = [one for one in chosen if one.name == OURS or arguments.only in one.name]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.photos is None:
            train, test, _ = make_photos(folder / "crops")
            source = "Crops of six photos of scikit-image, as in `patchvote demo`"
        else:
            per_class = (5, 3) if arguments.quick else (arguments.train, arguments.test)
            train, test = divided(arguments.photos, folder, *per_class)
            source = arguments.photos.resolve().name
        records = [
            record(f"{what}, {source}", sum(1 for _ in part.glob("*/*")), "photos")
            for what, part in (("photos to learn", train), ("photos asked", test))
        ]
        results, figures = measure_all(chosen, train, test)
        if arguments.json is not None:
            write_answers(results, test, arguments.json.with_suffix(".answers.jsonl"))
    records += figures
    text = table(records) + "\n"
    print(text)
    if arguments.table is not None:
        arguments.table.write_text(text)
    write(records, arguments.json)


if __name__ == "__main__":
    main()
