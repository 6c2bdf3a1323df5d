"""The demonstration: fit, evaluate and explain, end to end, on real photos that scikit-image ships.

Six photos of surfaces and small things are each cut in two. Crops of the left sides are for training, crops of the
right sides for testing, and a collage of four right sides shows whether the evidence points at the right places. Test
crops are thus of the same photos as the training crops: an easy task, which shows how the program is used and what it
draws, not how accurate it is. No package was found that ships photos of several classes with a test set of their own,
under a free licence and large enough to look at (docs/architecture.md).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from PIL import Image

from ..classifier import ImageClassifier
from ..errors import PatchvoteError
from ..models.evidence import Evidence
from ..models.report.picture import draw, encoded
from ..photos.decode import load_image
from ..photos.find import Photo, walk
from ..photos.outputs import check_outputs
from ..utils.files import make_folder, write_file
from ..utils.marks import Kind
from ..utils.terminal import show
from .answers import answers_of, csv_lines

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


def run(folder: Path, *, device: str = "cpu", force: bool = False) -> None:
    """Fit, evaluate, predict and explain; print the results, and write everything into `folder`.

    Raises
    ------
    PatchvoteError
        scikit-image is not installed, or, without `force`, the folder holds files that the demonstration did not write.
    """
    _check_folder(folder, force)
    train, test, collage = make_photos(folder / "photos")
    show(
        f"{len(PHOTOS)} photos, each cut in two: {_TRAIN * len(PHOTOS)} crops of the left sides to learn from, "
        f"{_TEST * len(PHOTOS)} crops of the right sides to test on"
    )
    classifier = ImageClassifier(cache=folder / "bags", device=device).fit(train)
    show(f"method: {classifier.model.about.method}")
    classifier.save(folder / "model.patchvote")

    scores = classifier.evaluate(test)
    measured = f"on {len(scores)} crops of the right sides of photos whose left sides it had learned from"
    parts = sorted(collage.with_name("parts").iterdir())
    classifier.report(folder / "report.html", title="The demonstration", measured=measured, examples=[collage, *parts])
    low, high = scores.interval
    show(
        f"accuracy {100 * scores.accuracy:.1f} % on {len(scores)} test crops ({100 * low:.1f} to {100 * high:.1f} %, "
        "95 % confidence); the sides of a photo look alike, so photos of your own will be harder"
    )
    lines = csv_lines(answers_of(scores))
    write_file(folder / "predictions.csv", (f"{line}\n".encode() for line in lines))

    evidence = classifier.explain(collage)
    picture = draw(evidence, load_image(Photo("a collage", collage)), list(COLLAGE), side=300)
    write_file(folder / "evidence.png", [encoded(picture)])
    show("the collage: share of the evidence for each class that lies in its own quarter of the picture")
    for label, share in in_own_quarter(evidence).items():
        show(f"  {label:<8} {100 * share:.0f} %")
    show(f"look at {folder / 'evidence.png'} and {folder / 'report.html'}; all files are in {folder}")


def make_photos(folder: Path) -> tuple[Path, Path, Path]:
    """Cut the photos into crops; return a folder for training, one for testing, and a collage of right sides.

    The folder `parts` beside the collage has a larger part of every right side.
    """
    source, rng = _source(), np.random.default_rng(0)
    quarters = {}
    for label, name in PHOTOS.items():
        image = Image.open(source / name).convert("RGB")
        middle = round(image.width * 0.55)
        left, right = image.crop((0, 0, middle, image.height)), image.crop((middle, 0, image.width, image.height))
        for part, kind, count in ((left, "train", _TRAIN), (right, "test", _TEST)):
            make_folder(folder / kind / label)
            for index in range(count):
                side = int(rng.integers(40, 90))
                x, y = int(rng.integers(part.width - side + 1)), int(rng.integers(part.height - side + 1))
                crop = part.crop((x, y, x + side, y + side))
                write_file(folder / kind / label / f"{index:02d}.png", [encoded(crop)])
        side = min(224, *right.size)
        quarters[label] = right.crop((0, 0, side, side)).resize((224, 224), Image.Resampling.BICUBIC)
        make_folder(folder / "parts")
        write_file(folder / "parts" / f"{label}.png", [encoded(quarters[label])])
    collage = Image.new("RGB", (448, 448))
    for index, label in enumerate(COLLAGE):
        collage.paste(quarters[label], (224 * (index % 2), 224 * (index // 2)))
    write_file(folder / "collage.png", [encoded(collage)])
    return folder / "train", folder / "test", folder / "collage.png"


def _check_folder(folder: Path, force: bool) -> None:
    """Refuse a folder that holds files which the demonstration does not write."""
    if folder.exists() and not folder.is_dir():
        raise PatchvoteError(
            f"the demonstration writes into a folder, and {folder} is a file. Choose another name, such as demo."
        )
    expected = {"photos", "bags", "model.patchvote", "report.html", "predictions.csv", "evidence.png"}
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    foreign = [name for name in present if name not in expected and not name.startswith(".")]
    if foreign and not force:
        raise PatchvoteError(
            f"{folder} holds {foreign[0]!r}, which the demonstration did not write. Choose a new or empty folder, "
            "or add --force to write into this one."
        )
    names = {"model.patchvote": Kind.model, "report.html": Kind.report, "predictions.csv": Kind.answers}
    wanted = [(folder / name, kind) for name, kind in names.items() if (folder / name).exists()]
    crops = [
        folder / "photos" / kind / label / f"{index:02d}.png"
        for kind, count in (("train", _TRAIN), ("test", _TEST))
        for label in PHOTOS
        for index in range(count)
    ]
    others = walk(folder / "photos")[0] if (folder / "photos").is_dir() else []  # other photos would be taken for crops
    parts = [folder / "photos" / "parts" / f"{label}.png" for label in PHOTOS]
    photos = dict.fromkeys([folder / "evidence.png", folder / "photos" / "collage.png", *parts, *crops, *others])
    wanted += [(path, Kind.picture) for path in photos if path.exists()]
    check_outputs(wanted, [], force=force, updated=[path for path, _ in wanted])


def in_own_quarter(evidence: Evidence) -> dict[str, float]:
    """Return, for each class of the collage, the share of the votes for it that lies in its own quarter."""
    shares = {}
    for index, label in enumerate(COLLAGE):
        votes = np.maximum(evidence.contrast(label, 32, 32), 0)
        row, column = divmod(index, 2)
        quarter = votes[16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
        shares[label] = float(quarter.sum() / max(votes.sum(), 1e-12))
    return shares


def _source() -> Path:
    """Return the folder of photos inside the installed scikit-image; nothing is downloaded."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise PatchvoteError("the demo uses photos of scikit-image. Install it with: pip install 'patchvote[demo]'")
    return Path(spec.origin).parent / "data"
