"""Photos of the benchmark of rejection: image sets, crops of shipped photos, and images that nobody photographed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from experiments.datasets import read_dataset
from labelled import moments_of
from patchvote import Extractor, Photo, Recipe, Store
from patchvote.bags.fill import fill
from patchvote.bags.moments import MomentBags
from patchvote.models.fit import Learned
from patchvote.voters.registry import DEFAULT

CAMERAS = ("amazon", "caltech", "dslr", "webcam")


@dataclasses.dataclass(frozen=True, eq=False)
class Collection:
    """Bags in a store, with the moments, class, domain (camera) and world (scenes or objects) of each photo."""

    store: Store
    moments: MomentBags
    labels: np.ndarray
    domains: np.ndarray
    worlds: np.ndarray

    def learned(self, rows: np.ndarray, kind: str) -> Learned:
        """Return some photos as a voter of this kind learns them: their moments, or their bags in the store."""
        names = [self.store.names[row] for row in rows.tolist()]
        digests = [self.store.entries[row].digest for row in rows.tolist()]
        bags = self.moments.rows(rows) if kind == DEFAULT else self.store.only(names)
        return Learned(names, self.labels[rows].tolist(), digests, bags)


def collected(store: Store, domains: dict[str, str]) -> Collection:
    """Return the collection of a store; `domains` maps the first part of a name to its domain, if it is not one."""
    first = [name.partition("/")[0] for name in store.names]
    found = np.array([domains.get(part, part) for part in first])
    worlds = np.where(np.isin(found, CAMERAS), "objects", found)
    return Collection(store, moments_of(store), store.labels.astype(str), found, worlds)


def image_sets(data: Path, folder: Path, store: Path | None) -> Collection:
    """Return Office+Caltech-10 and Scene-15, from a store or else extracted from their photos."""
    if store is None:
        sets = read_dataset("office-caltech", data / "office_caltech"), read_dataset("scene15", data / "scene15")
        store = folder / "store"
        fill(store, [photo for one in sets for photo in one.photos], Extractor(Recipe()))
    opened = Store.open(store)
    scenes = {name.partition("/")[0] for name in opened.names} - set(CAMERAS)
    return collected(opened, dict.fromkeys(scenes, "scene15"))


def shipped(folder: Path) -> Collection:
    """Return crops of photos of scikit-image: textures, whose classes are learned, and others."""
    import skimage.data

    rng = np.random.default_rng(0)
    kinds = {"textures": ("brick", "grass", "gravel", "coffee"), "others": ("page", "ihc")}
    for domain, names in kinds.items():
        for name in names:
            image = Image.open(Path(skimage.data.data_dir) / f"{name}.png").convert("RGB")
            (folder / "photos" / f"{domain}-{name}").mkdir(parents=True)
            for index in range(16):
                side = int(rng.integers(80, min(160, *image.size)))
                left, top = (int(rng.integers(0, size - side + 1)) for size in image.size)
                crop = image.crop((left, top, left + side, top + side))
                crop.save(folder / "photos" / f"{domain}-{name}" / f"{index}.png")
    fill(folder / "store", folder / "photos", Extractor(Recipe()))
    store = Store.open(folder / "store")
    return collected(store, {label: label.partition("-")[0] for label in set(store.labels)})


def very_far(folder: Path, quick: bool) -> Store:
    """Return bags of photos of scikit-image and of images that nobody photographed."""
    import skimage.data

    rng, photos = np.random.default_rng(0), []
    for path in sorted(Path(skimage.data.data_dir).glob("*.[pj][np]g"))[:: 6 if quick else 1]:
        with Image.open(path) as image:
            if min(image.size) >= 64 and path.stem != "coffee":  # it shows a mug, one of the objects
                photos.append(Photo(f"shipped/{path.name}", image.convert("RGB")))
    words = ["each", "patch", "votes", "and", "the", "name", "of", "a", "photo", "shows", "where", "evidence", "is"]
    across = np.linspace(0, 1, 320)[None, :, None]
    for index in range(2 if quick else 12):
        colours = rng.integers(0, 256, (3, 3)).astype(float)
        noise = rng.integers(0, 256, (256, 320, 3))
        ramp = np.broadcast_to(colours[0] * across + colours[1] * (1 - across), (256, 320, 3))
        text = Image.new("RGB", (320, 256), "white")
        for line in range(16):
            ImageDraw.Draw(text).text((8, 8 + 15 * line), " ".join(rng.choice(words, 10)), fill="black")
        plain = np.broadcast_to(colours[2], (256, 320, 3))
        for name, pixels in (("noise", noise), ("ramp", ramp), ("plain", plain), ("text", np.asarray(text))):
            photos.append(Photo(f"{name}/{index}", Image.fromarray(pixels.astype(np.uint8))))
    fill(folder / "far", photos, Extractor(Recipe()))
    return Store.open(folder / "far")


def drawn(photos: Collection, source: str, per_class: int, seed: int, most: int) -> dict[str, np.ndarray]:
    """Draw known classes, training photos, and at most so many photos of every kind to ask about."""
    rng, own = np.random.default_rng([seed, per_class]), photos.domains == source
    classes = rng.permutation(np.unique(photos.labels[own]))
    known = np.isin(photos.labels, classes[: len(classes) // 2])
    world = photos.worlds == photos.worlds[own][0]

    def some(mask: np.ndarray) -> np.ndarray:
        return np.sort(rng.permutation(np.flatnonzero(mask))[:most])

    training = np.zeros(len(own), bool)
    for label in np.unique(photos.labels[own & known]):
        rows = rng.permutation(np.flatnonzero(own & (photos.labels == label)))
        training[rows[: min(per_class, max(2, len(rows) - 8))]] = True
    sets = {
        "training": np.flatnonzero(training),
        "known": some(own & known & ~training),
        "near": some(own & ~known),
        "camera known": some(world & ~own & known),
        "camera": some(world & ~own & ~known),
        "far": some(~world),
    }
    return {name: rows for name, rows in sets.items() if len(rows)}
