"""The demonstration: fit, evaluate and explain, end to end, on real photos that scikit-image ships.

Six photos of surfaces and small things are each cut in two. Crops of the left sides are for training, crops of the
right sides for testing, and a collage of four right sides shows where the evidence points. Test crops are thus of the
same photos as the training crops: an easy task, which shows how the program is used and what it draws, not how accurate
it is.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from ..errors import PatchvoteError
from ..utils.terminal import show
from .options import Force, Machine
from .output import csv_lines

PHOTOS = {
    "brick": "brick.png",
    "coins": "coins.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "stars": "hubble_deep_field.jpg",
    "tissue": "ihc.png",
}
COLLAGE = ("brick", "tissue", "stars", "gravel")  # left to right, top to bottom
_TRAIN, _TEST = 6, 20  # crops per class


def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write into.")] = Path("demo"),
    force: Force = False,
    *,
    machine: Machine,
) -> None:
    """Fit, test and explain a model on crops of a few real photos, and write it all into FOLDER."""
    is_ours = (folder / "photos" / "collage.png").exists()
    if folder.exists() and any(folder.iterdir()) and not (is_ours or force):
        raise PatchvoteError(f"{folder} holds other files. Choose an empty folder, or add --force to write into it.")
    run(folder, machine)


def run(folder: Path, machine: Machine) -> None:
    """Fit, evaluate, predict and explain; print the results, and write everything into `folder`."""
    from ..classifier import ImageClassifier

    train, test, collage = make_photos(folder / "photos")
    show(
        f"{len(PHOTOS)} photos, each cut in two: {_TRAIN * len(PHOTOS)} crops of the left sides to learn from, "
        f"{_TEST * len(PHOTOS)} crops of the right sides to test on"
    )
    classifier = ImageClassifier(cache=folder / "bags", **machine.settings).fit(train)
    show(f"method: {classifier.model.about.method}")
    classifier.save(folder / "model.patchvote")

    scores = classifier.evaluate(test)
    measured = f"on {len(scores)} crops of the right sides of photos whose left sides it had learned from"
    classifier.report(folder / "report.html", title="The demonstration", measured=measured)
    low, high = scores.interval
    show(
        f"accuracy {100 * scores.accuracy:.1f} % on {len(scores)} test crops ({100 * low:.1f} to {100 * high:.1f} %, "
        "95 % confidence); the sides of a photo look alike, so photos of your own will be harder"
    )
    lines = csv_lines(classifier.answers(test))
    (folder / "predictions.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    classifier.explain(collage).plot(list(COLLAGE), side=300).save(folder / "evidence.png")
    show(f"look at {folder / 'evidence.png'} and {folder / 'report.html'}; all files are in {folder}")


def make_photos(folder: Path) -> tuple[Path, Path, Path]:
    """Cut the photos into crops; return a folder for training, one for testing, and a collage of right sides."""
    import numpy as np
    from PIL import Image

    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise PatchvoteError("the demo uses photos of scikit-image. Install it with: pip install 'patchvote[demo]'")
    source, rng = Path(spec.origin).parent / "data", np.random.default_rng(0)
    collage = Image.new("RGB", (448, 448))
    for label, name in PHOTOS.items():
        image = Image.open(source / name).convert("RGB")
        middle = round(image.width * 0.55)
        left, right = image.crop((0, 0, middle, image.height)), image.crop((middle, 0, image.width, image.height))
        for part, kind, count in ((left, "train", _TRAIN), (right, "test", _TEST)):
            (folder / kind / label).mkdir(parents=True, exist_ok=True)
            for index in range(count):
                side = int(rng.integers(40, 90))
                x, y = int(rng.integers(part.width - side + 1)), int(rng.integers(part.height - side + 1))
                part.crop((x, y, x + side, y + side)).save(folder / kind / label / f"{index:02d}.png")
        if label in COLLAGE:
            side, (row, column) = min(224, *right.size), divmod(COLLAGE.index(label), 2)
            quarter = right.crop((0, 0, side, side)).resize((224, 224), Image.Resampling.BICUBIC)
            collage.paste(quarter, (224 * column, 224 * row))
    collage.save(folder / "collage.png")
    return folder / "train", folder / "test", folder / "collage.png"
