"""Print the way of the data: the files and functions of patchvote that `fit` and `predict` pass.

python tools/way.py                 # files by room, in the order in which they are reached
python tools/way.py --functions     # the functions of each file, too, and how often they are called
python tools/way.py --photos DIR    # photos of yours (one folder per class) instead of twelve random pictures
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from PIL import Image

import patchvote

_PACKAGE = Path(patchvote.__file__).parent
Way = Counter[tuple[str, str]]  # calls by file and function, in the order of the first call


def passed(work: Callable[[], Any]) -> Way:
    """Return the functions of patchvote that a piece of work calls, in all of its threads."""
    way: Way = Counter()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(_PACKAGE)) and not code.co_name.startswith("<"):
            way[Path(code.co_filename).relative_to(_PACKAGE).as_posix(), code.co_qualname] += 1

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return way


def write(title: str, way: Way, functions: bool) -> None:
    """Print the files of a way by room, or each with its functions and their calls."""
    files = dict.fromkeys(file for file, _ in way)
    print(f"\n{title}: {len(files)} files, {len(way)} functions")
    rooms: dict[str, list[str]] = {}
    for file in files:
        room, _, inside = file.removesuffix(".py").partition("/")
        rooms.setdefault(room, []).append(inside)
    for room, names in rooms.items() if not functions else ():
        print(f"  {room:12}{', '.join(names)}".rstrip())
    for file in files if functions else ():
        print(f"  {file}")
        for (place, name), calls in way.items():
            if place == file:
                print(f"    {name:56}{calls:7,}")


def random_photos(folder: Path) -> Path:
    """Write twelve pictures of three classes."""
    rng = np.random.default_rng(0)
    for number in range(12):
        path = folder / f"class {number % 3}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (24, 32, 3)) // (number % 3 + 1)
        Image.fromarray(pixels.astype(np.uint8)).resize((320, 240)).save(path)
    return folder


def main() -> None:
    """Fit, predict, and print both ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--photos", type=Path, metavar="DIR")
    parser.add_argument("--functions", action="store_true", help="print functions as well")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photos = args.photos or random_photos(Path(folder))
        classifier = patchvote.ImageClassifier(cache=False)
        write("fit", passed(lambda: classifier.fit(photos)), args.functions)
        one = next(path for path in sorted(photos.rglob("*.*")) if path.is_file())
        write("predict", passed(lambda: classifier.predict([one])), args.functions)


if __name__ == "__main__":
    main()
