"""Small real photos for the examples: crops of six photos that scikit-image ships, as in `patchvote demo`.

Photos of your own stand in one folder per class; then none of this is needed: `ImageClassifier().fit("photos")`.
"""

from __future__ import annotations

import atexit
import io
import shutil
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from patchvote.cli.demo import make_photos


def small_photos(per_class: int = 4) -> tuple[Path, Path, Path]:
    """Return a folder of training photos, one of test photos (so many per class), and a collage of four classes."""
    folder = Path(tempfile.mkdtemp(prefix="patchvote-example-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    train, test, collage = make_photos(folder)
    for photo in test.glob("*/*.png"):
        if int(photo.stem) >= per_class:  # fewer than the demonstration has, to be quick
            photo.unlink()
    return train, test, collage


def output_folder() -> Path:
    """Return the folder for figures: the first word of the command line, or `figures` here."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "figures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure of matplotlib as a small file."""
    with io.BytesIO() as data:
        figure.savefig(data, dpi=90)
        save_picture(Image.open(data), path)


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a picture with few colours, which makes its file small."""
    picture.convert("RGB").quantize(128).save(path, optimize=True)
    print(f"wrote {path}")
