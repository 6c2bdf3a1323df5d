"""Photos in which the thing is small and the rest is clutter: where averaging over parts should dilute most.

Half of the photos of Amazon (products on white ground) stay as they are; each of the others becomes one quarter of a
collage, whose other quarters are photos of places of SUN-397. `plain` and `quarter` are then two domains of one image
set, in the layout `domains`, and no product is in both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from patchvote.errors import PatchvoteError

_PLACES = ("desert", "sky", "waterfall", "bamboo_forest", "aquarium", "campus", "stadium", "tennis_court")
_TILE = 224  # pixels; a quarter has the resolution of a photo at the first scale of `dense`
_PER_CLASS = 80  # photos, half of them plain


def write_collages(things: Path, places: Path, folder: Path) -> int:
    """Write plain photos and collages; return how many photos there are."""
    grounds = [path for name in _PLACES for path in sorted(places.glob(f"*/{name}/**/*.jpg"))]
    if not grounds:
        raise PatchvoteError(f"{places} has no photos of {', '.join(_PLACES)}.")
    count, rng = 0, np.random.default_rng(0)
    for label in sorted(path.name for path in things.iterdir()):
        for number, photo in enumerate(sorted((things / label).glob("*.jpg"))[:_PER_CLASS]):
            thing = ImageOps.pad(_opened(photo), (_TILE, _TILE), color="white")
            tiles = [_opened(grounds[index]) for index in rng.choice(len(grounds), 3, replace=False)]
            tiles = [ImageOps.fit(tile, (_TILE, _TILE)) for tile in tiles]
            tiles.insert(int(rng.integers(4)), thing)
            collage = Image.new("RGB", (2 * _TILE, 2 * _TILE))
            for place, tile in enumerate(tiles):
                collage.paste(tile, (place % 2 * _TILE, place // 2 * _TILE))
            domain, image = ("quarter", collage) if number % 2 else ("plain", thing)
            path = folder / domain / label / f"{count:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
            count += 1
    return count


def _opened(path: Path) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")
