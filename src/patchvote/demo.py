"""The demonstration: bags from real photos that scikit-image ships, and a picture of what the network sees.

Each cell of a photo gets a colour from the three directions in which all descriptors differ most. Cells that look alike
to the network have like colours, in one photo and across photos, before anything has been learned.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from .bags import Bags
from .errors import PatchvoteError
from .extract import Extractor
from .filling import fill
from .images import load_image
from .photos import Photo
from .store import Store

PHOTOS = ("brick.png", "grass.png", "gravel.png", "coffee.png", "chelsea.png", "motorcycle_left.png")
_SIDE, _GAP = 280, 12


def demo_photos() -> list[Photo]:
    """Find the photos inside scikit-image's installed package; nothing is downloaded."""
    found = importlib.util.find_spec("skimage")
    if found is None or found.origin is None:
        raise PatchvoteError("the demo looks at photos of scikit-image. Install it with: pip install 'patchvote[demo]'")
    folder = Path(found.origin).parent / "data"
    return [Photo(name, folder / name, Path(name).stem) for name in PHOTOS]


def run(folder: Path) -> None:
    """Extract, print what was done, and write the store and a picture into `folder`."""
    photos, extractor = demo_photos(), Extractor()
    filled = fill(folder / "bags", photos, extractor)
    store = Store.open(folder / "bags")
    bags, _ = store.load()
    print(
        f"{filled.photos} photos of scikit-image, {filled.extracted} of them extracted now, {filled.kept} from before:"
    )
    for name, bag in zip(store.names, bags, strict=True):
        counts = np.bincount(bag.level)
        print(
            f"  {name:<22}{len(bag.values):>5} descriptors: the whole image, {' + '.join(map(str, counts[1:]))} cells"
        )
    if filled.extracted:
        print(f"{filled.descriptors:,} descriptors in {filled.seconds:.2f} s with {extractor.jobs} threads")
    picture = draw(photos, dict(zip(store.names, bags, strict=True)))
    path = folder / "what-the-network-sees.png"
    picture.save(path)
    print(f"wrote {store.path} (see `patchvote info {store.path}`) and {path}")


def draw(photos: list[Photo], bags: dict[str, Bags]) -> Image.Image:
    """Draw each photo above its finest cells, coloured by what they look like to the network."""
    finest = {name: bag.values[bag.level == bag.level.max()].astype(np.float32) for name, bag in bags.items()}
    colours = _colours(np.concatenate(list(finest.values())))
    starts = np.cumsum([0] + [len(values) for values in finest.values()])
    first = dict(zip(finest, starts, strict=False))
    step = _SIDE + _GAP
    sheet = Image.new("RGB", (len(photos) * step + _GAP, 2 * step + _GAP), "white")
    for column, photo in enumerate(photos):
        image = load_image(photo)
        image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        cells = Image.new("RGB", image.size)
        boxes = bags[photo.name].boxes[bags[photo.name].level == bags[photo.name].level.max()]
        pen = ImageDraw.Draw(cells)
        for row, box in enumerate(boxes * np.tile(image.size, 2)):
            left, top, right, bottom = (round(float(edge)) for edge in box)
            red, green, blue = colours[first[photo.name] + row].tolist()
            pen.rectangle((left, top, right - 1, bottom - 1), fill=(red, green, blue))
        sheet.paste(image, (_GAP + column * step, _GAP))
        sheet.paste(cells, (_GAP + column * step, _GAP + step))
    return sheet


def _colours(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Bring descriptors to three dimensions by PCA, and those to the range of colours."""
    values = values / np.linalg.norm(values, axis=1, keepdims=True).clip(1e-9)
    values = values - values.mean(axis=0)
    _, _, axes = np.linalg.svd(values, full_matrices=False)
    shown = values @ axes[:3].T
    low, high = np.percentile(shown, [2, 98], axis=0)
    colours: npt.NDArray[np.uint8] = ((shown - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
    return colours
