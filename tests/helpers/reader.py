"""The folder of somebody who reads the pages: all photos, models and networks that they speak of."""

from __future__ import annotations

import shutil
from pathlib import Path

from PIL import Image

from conftest import write_tiny_network
from patchvote import ImageClassifier

from .pages import ROOT

CLASSES = {"cat": "brick", "dog": "grass", "oak": "gravel"}  # crops of surfaces stand for pets and trees


def furnished(folder: Path, demo_photos: Path) -> Path:
    """Put everything into a folder, and return it."""
    train, test = demo_photos / "train", demo_photos / "test"
    for label, surface in CLASSES.items():
        shutil.copytree(train / surface, folder / "photos" / label)
        unseen = iter(sorted((test / surface).iterdir()))
        for part, count in (("test", 3), ("phone-labelled", 6), ("more", 2), ("new", 2)):
            place = folder / part if part == "new" else folder / part / label
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                shutil.copyfile(next(unseen), place / f"{label}-{number}.png")
    (folder / "more" / "cat").rename(folder / "more" / "larch")
    for name in ("cat/2019-1.jpg", "dog/2.jpg", "oak/1.jpg", "oak/2019-1.jpg"):  # photos that pages let a model forget
        other = Image.open(folder / "photos" / name[:3] / "01.png").convert("RGB")
        other.rotate(90 * len(name)).save(folder / "photos" / name)
    shutil.copyfile(folder / "photos" / "cat" / "00.png", folder / "photos" / "cat" / "copy.png")
    (folder / "phone").mkdir()
    for photo in (folder / "phone-labelled").rglob("*.png"):
        darker = Image.open(photo).point(lambda value: value * 0.8)
        darker.save(photo)
        darker.save(folder / "phone" / photo.name)
    (folder / "others" / "tissue").mkdir(parents=True)
    for photo in sorted((test / "tissue").iterdir())[:3]:
        shutil.copyfile(photo, folder / "others" / "tissue" / photo.name)
    shutil.copytree(folder / "new", folder / "unlabelled")
    for name in ("new/1.jpg", "photo.jpg", "new.jpg", "boat.jpg", "car.jpg"):
        Image.open(folder / "new" / "cat-0.png").convert("RGB").save(folder / name)
    write_tiny_network(folder / "places.onnx", vector="feat512")
    shutil.copytree(ROOT / "examples" / "extending", folder / "examples" / "extending")
    ImageClassifier().fit(folder / "photos").save(folder / "my.patchvote")
    return folder
