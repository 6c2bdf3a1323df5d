"""What the benchmarks share: options, records of figures, timing, and synthetic bags for a run without other data."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from patchvote import Bags, Photo, find_photos

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"  # beside the repository
DATA = Path(os.environ.get("PATCHVOTE_DATA", SHARED / "data"))  # folder of the image sets
Record = dict[str, object]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # for `experiments`


def record(name: str, value: float, unit: str, goal: float | None = None, peer: str | None = None) -> Record:
    """Print a figure, and return its record."""
    suffix = f" (goal {goal:g})" if goal is not None else ""
    print(f"{name}: {value:.3f} {unit}{suffix}", flush=True)
    return {"name": name, "value": value, "unit": unit, "goal": goal, "peer": peer}


def options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small run of about a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one record per figure to FILE")
    return parser


def write(records: list[Record], file: Path | None) -> None:
    """Write records to a file, if one is given, and beside it the command, commit, versions and machine."""
    if file is not None:
        file.write_text(json.dumps(records, indent=1) + "\n")
        command = ["benchmarks/" + Path(sys.argv[0]).name, *(Path(word).name for word in sys.argv[1:])]
        made = {"command": " ".join(command), "date": time.strftime("%Y-%m-%d"), **_made_with()}
        file.with_suffix(".made_with.json").write_text(json.dumps(made, indent=1) + "\n")


def _made_with() -> dict[str, Any]:
    """Return versions, machine and commit; the commit has a plus sign also where only benchmarks were changed since."""
    from experiments.made_with import here

    made = here()
    if "commit" in made and not made["commit"].endswith("+"):
        words = ["git", "status", "--porcelain", "--", "."]
        changed = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout
        made["commit"] += "+" if changed else ""
    return made


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that `work` takes, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a process took: seconds by the clock, seconds of all its processors, and peak memory in gigabytes."""

    seconds: float
    processor: float
    gigabytes: float


# The system counts the memory of the process that starts another as a part of its peak: a small one starts it.
_STARTER = """
import json, os, sys, time
start = time.perf_counter()
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
seconds = time.perf_counter() - start
with open("usage.json", "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss], file)
"""


def installed(folder: Path) -> dict[str, str]:
    """Return an environment in which compiled modules are kept, as they are after an installation."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def run_command(command: list[str], folder: Path) -> Usage:
    """Run a command in a folder to its end; if it fails, raise a RuntimeError with the last line that it wrote."""
    errors = folder / "errors.txt"
    with errors.open("w") as file:
        starter = [sys.executable, "-S", "-c", _STARTER, *command]
        subprocess.run(starter, stdout=subprocess.DEVNULL, stderr=file, cwd=folder, env=installed(folder), check=True)
    code, seconds, processor, peak = json.loads((folder / "usage.json").read_text())
    if code:
        raise RuntimeError((errors.read_text().strip().splitlines() or [f"exit code {code}"])[-1])
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return Usage(seconds, processor, peak * unit / 1e9)


def synthetic_bags(classes: int, images: int, size: int, dim: int, seed: int = 0) -> tuple[Bags, np.ndarray]:
    """Return bags of images whose descriptors scatter around a few centres per class, and around common ones.

    Features are positive and differ much in their spread, as those of a network do.
    """
    rng = np.random.default_rng(0)
    centres = rng.gamma(0.5, 1.0, (classes + 2, 8, dim))
    spread = rng.gamma(1.0, 0.3, dim)
    rng = np.random.default_rng([1, seed])
    labels = np.repeat(np.arange(classes), images)
    source = np.where(rng.random((len(labels), size)) < 0.6, labels[:, None], classes + rng.integers(0, 2))
    values = centres[source, rng.integers(0, 8, source.shape)] + spread * rng.standard_normal((*source.shape, dim))
    values = np.maximum(values, 0).astype(np.float32).reshape(-1, dim)
    offsets = np.arange(len(labels) + 1) * size
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (len(values), 1))
    level = (np.arange(len(values)) % size > 0).astype(np.int16)  # the first descriptor is of the whole image
    return Bags(values, offsets, boxes, level), np.array([f"class {label}" for label in labels])


def split(labels: np.ndarray, train: int, test: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw training and test images of each class at random; return their indices."""
    rng = np.random.default_rng(seed)
    class_rows = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    first, second = [rows[:train] for rows in class_rows], [rows[train : train + test] for rows in class_rows]
    return np.concatenate(first), np.concatenate(second)


def choose_photos(folder: Path, train: int, test: int) -> tuple[list[Photo], list[Photo]]:
    """Draw training and test photos of each class of a folder at random."""
    photos = find_photos(folder)
    first, second = split(np.array([photo.label for photo in photos]), train, test)
    return [photos[i] for i in first], [photos[i] for i in second]


def make_crops(folder: Path, names: Sequence[str], count: int) -> Path:
    """Cut random squares out of photos of scikit-image, into one folder per photo."""
    import skimage.data

    rng = np.random.default_rng(0)
    for name in names:
        image = Image.open(Path(skimage.data.data_dir) / f"{name}.png").convert("RGB")
        (folder / name).mkdir(parents=True)
        for index in range(count):
            side = int(rng.integers(80, min(160, *image.size)))
            left, top = (int(rng.integers(0, size - side + 1)) for size in image.size)
            image.crop((left, top, left + side, top + side)).save(folder / name / f"{index}.png")
    return folder
