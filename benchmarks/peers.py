"""patchvote beside what people would use instead, on the same photos and the same machine in one run.

Every method is what its user would write: two commands of patchvote, or a script in `peer_scripts`, which learns from a
folder of class folders, and is then asked about another. Learning and asking are processes of their own. Per method:
accuracy on the test photos, seconds to learn, seconds per photo asked, peak memory, size of the model's file, and the
lines that a user writes. No method finds anything in a cache. Photos come from a folder of class folders, of which
`--train` per class are learned and `--test` are asked; without one, from scikit-image, cut as in `patchvote demo`, on
which every network is right. A method whose package is missing or does not run is named and left out.

    python benchmarks/peers.py --photos scene15 --json peers.json --table peers.md
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common import Record, options, record, write
from patchvote import find_photos
from patchvote.cli.demo import make_photos

SCRIPTS = Path(__file__).resolve().parent / "peer_scripts"
OURS = "patchvote"  # the default, whose time to learn is the budget of the tuned network


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to classify photos.

    Parameters
    ----------
    name : str
        Name in the table.
    fit : sequence of str
        Options of `patchvote fit`, or the arguments of the script after the model; {seconds} is the budget.
    script : str, optional
        File in `peer_scripts`; without one, the method is patchvote itself.
    """

    name: str
    fit: Sequence[str] = ()
    script: str | None = None

    def commands(self, train: Path, test: Path, model: Path, answers: Path, seconds: float) -> list[list[str]]:
        """Return the command that learns, and the one that asks."""
        more = [word.format(seconds=f"{seconds:.1f}") for word in self.fit]
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
        """Return how many lines a user writes: those of a script without comments and empty ones, or the commands."""
        if self.script is None:
            return 2
        text = (SCRIPTS / self.script).read_text().split('"""', 2)[2]
        return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


METHODS = (
    Method(OURS),
    Method("patchvote, votes of parts (snbnl)", ("--voter", "snbnl")),
    Method("whole photo 448 px, ONNX, logistic regression", ("logistic",), "onnx_sklearn.py"),
    Method("whole photo 448 px, ONNX, LinearSVC", ("svm",), "onnx_sklearn.py"),
    Method("whole photo 448 px, ONNX, 5 neighbours", ("knn",), "onnx_sklearn.py"),
    Method("whole photo 448 px, eager torch, logistic regression", (), "torch_sklearn.py"),
    Method("network trained in torch, 224 px, time of patchvote", ("{seconds}",), "torch_tuned.py"),
    Method("nearest patches per class, faiss", (), "faiss_patches.py"),
    Method("embetter, colour histograms", (), "embetter_histogram.py"),
    Method("one prototype per class (NearestCentroid), 448 px", ("centroid",), "onnx_sklearn.py"),
    Method("the paper's patches, snbnl", (), "paper_patches.py"),
)


@dataclasses.dataclass(frozen=True)
class Result:
    """What one method took and brought; the fields are the columns of the table."""

    accuracy: float
    fit_seconds: float
    photo_seconds: float
    gigabytes: float
    model_megabytes: float
    lines: int


UNITS = {
    "accuracy": "%",
    "fit_seconds": "s",
    "photo_seconds": "s/photo",
    "gigabytes": "GB",
    "model_megabytes": "MB",
    "lines": "lines",
}


def divided(source: Path, folder: Path, train: int, test: int) -> tuple[Path, Path]:
    """Link random photos of every class into a folder to learn from, and others into one to ask about."""
    rng = np.random.default_rng(0)
    by_class: dict[str, list[Path]] = {}
    for photo in find_photos(source):
        by_class.setdefault(str(photo.label), []).append(Path(str(photo.source)).resolve())
    for label, files in sorted(by_class.items()):
        chosen = [files[index] for index in rng.permutation(len(files))[: train + test]]
        for number, file in enumerate(chosen):
            target = folder / ("train" if number < train else "test") / label / f"{number:04d}{file.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)
    return folder / "train", folder / "test"


def run(command: list[str], folder: Path) -> tuple[float, float]:
    """Run a command to its end; return its seconds, and the peak memory of its process in gigabytes."""
    errors = folder / "errors.txt"
    with errors.open("w") as file:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError((errors.read_text().strip().splitlines() or ["no message"])[-1])
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


def measured(method: Method, train: Path, test: Path, seconds: float) -> Result:
    """Let a method learn and answer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, answers = folder / "model.patchvote", folder / "answers.csv"
        learn, ask = method.commands(train, test, model, answers, seconds)
        fitting, memory_fit = run(learn, folder)
        asking, memory_ask = run(ask, folder)
        size = sum(file.stat().st_size for file in folder.glob("model*"))
        hits = right(answers, method.script is None)
    return Result(
        100 * sum(hits) / len(hits),
        fitting,
        asking / len(hits),
        max(memory_fit, memory_ask),
        size / 1e6,
        method.lines(),
    )


def right(answers: Path, has_header: bool) -> list[bool]:
    """Return whether each answer in a CSV is the name of the photo's folder."""
    with answers.open(newline="") as file:
        rows = list(csv.reader(file))
    if not has_header:
        return [Path(row[0]).parent.name == row[1] for row in rows]
    name, label = rows[0].index("file"), rows[0].index("likeliest")
    return [Path(row[name]).parent.name == row[label] for row in rows[1:]]


def table(results: dict[str, Result | str], photos: str) -> str:
    """Return the table as Markdown."""
    lines = [
        photos,
        "",
        "| method | accuracy | to learn | per photo | peak memory | model | lines |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in results.items():
        if isinstance(one, str):
            lines.append(f"| {name} | did not run: {one[:100]} | | | | | |")
            continue
        lines.append(
            f"| {name} | {one.accuracy:.1f} | {one.fit_seconds:.0f} s | {1000 * one.photo_seconds:.0f} ms "
            f"| {one.gigabytes:.2f} GB | {one.model_megabytes:.1f} MB | {one.lines} |"
        )
    return "\n".join(lines) + "\n"


def records_of(name: str, result: Result) -> list[Record]:
    """Return one record per column."""
    return [
        record(f"{key.replace('_', ' ')}, {name}", float(value), UNITS[key], None, None if name == OURS else OURS)
        for key, value in dataclasses.asdict(result).items()
    ]


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = options(__doc__)
    parser.add_argument("--photos", type=Path, help="folder of class folders")
    parser.add_argument("--train", type=int, default=20, help="photos per class to learn (default %(default)s)")
    parser.add_argument("--test", type=int, default=20, help="photos per class to ask about (default %(default)s)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table to FILE")
    return parser.parse_args()


def main() -> None:
    """Measure all methods, or with --quick those that take seconds."""
    arguments = parsed()
    methods = METHODS[:1] + METHODS[2:4] + METHODS[7:8] if arguments.quick else METHODS
    records: list[Record] = []
    results: dict[str, Result | str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.photos is None:
            train, test, _ = make_photos(folder / "crops")
            told = "Crops of six photos of scikit-image, as in `patchvote demo`"
        else:
            per_class = (4, 4) if arguments.quick else (arguments.train, arguments.test)
            train, test = divided(arguments.photos, folder, *per_class)
            told = arguments.photos.name
        counts = [sum(1 for _ in part.glob("*/*")) for part in (train, test)]
        seconds = math.nan
        for method in methods:
            try:
                result = measured(method, train, test, seconds)
            except RuntimeError as error:
                print(f"{method.name} did not run: {error}", flush=True)
                results[method.name] = str(error)
                continue
            seconds = result.fit_seconds if method.name == OURS else seconds
            results[method.name] = result
            records += records_of(method.name, result)
        shutil.rmtree(folder / "crops", ignore_errors=True)
    text = table(results, f"{told}: {counts[0]:,} photos to learn, {counts[1]:,} asked.")
    print(text)
    if arguments.table is not None:
        arguments.table.write_text(text)
    write(records, arguments.json)


if __name__ == "__main__":
    main()
