"""Photos for benchmarks where no folder is given: random crops of the photos that scikit-image brings.

`python benchmarks/crops.py crops --count 300` writes class folders into crops/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import skimage
from PIL import Image

from patchvote.cli.demo import PHOTOS


def make_crops(folder: Path, count: int) -> Path:
    """Write so many crops in all, in one folder per photo that they are cut from; return the folder."""
    rng = np.random.default_rng(0)
    images = {
        label: Image.open(Path(skimage.__file__).parent / "data" / name).convert("RGB")
        for label, name in PHOTOS.items()
    }
    labels = list(images)
    for index in range(count):
        label = labels[index % len(labels)]
        image, side = images[label], int(rng.integers(80, 260))
        x, y = int(rng.integers(image.width - side + 1)), int(rng.integers(image.height - side + 1))
        (folder / label).mkdir(parents=True, exist_ok=True)
        image.crop((x, y, x + side, y + side)).save(folder / label / f"{index:05d}.jpg", quality=90)
    return folder


def main() -> None:
    """Write crops for other benchmarks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder for the class folders")
    parser.add_argument("--count", type=int, default=300, help="crops in all (default %(default)s)")
    args = parser.parse_args()
    make_crops(args.folder, args.count)


if __name__ == "__main__":
    main()
