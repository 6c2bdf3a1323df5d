"""The bags of an image set: one store per recipe and network, extracted on first use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from patchvote.bags.described import Filled
from patchvote.bags.extract import Extractor
from patchvote.bags.fill import fill
from patchvote.bags.store import Store
from patchvote.networks.cache import cache_folder
from patchvote.networks.names import parts_of
from patchvote.photos.find import Photo

from .caffe import load_with_caffe
from .recipes import parse_recipe


def network_name(network: str) -> str:
    """Return the name of networks in results: without the folders of their files and the extension .onnx."""
    names = []
    for part in parts_of(network):
        if part.lower().endswith(".onnx"):
            names.append(Path(part).stem)
            continue
        what, at, layer = part.partition("@")
        if what.startswith("caffe:"):
            what = re.sub(r"(?<=[:,])[^,]*/", "", what)
        names.append(re.sub(r"(?<=[:,=])/[^,@?&]*/", "", what + at + layer))
    return "+".join(names)


class Stores:
    """The bags of the photos of one image set, in a folder with one store per recipe and network."""

    def __init__(self, folder: Path, photos: Mapping[str, Photo], jobs: int | None = None, device: str = "cpu") -> None:
        self.folder, self.photos, self.jobs, self.device = folder, photos, jobs, device

    @staticmethod
    def default_folder(layout: str) -> Path:
        """Return the default folder for the bags of an image set, in the cache of patchvote."""
        return cache_folder() / "experiments" / layout

    def path(self, recipe: str, network: str) -> Path:
        """Return the store of a recipe and a network; a hash makes its name unique where letters are replaced."""
        name = network_name(network)
        slug = re.sub(r"[^\w.=@+-]+", "-", name)[:120]
        end = "" if slug == name else f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        return self.folder / f"{recipe}@{slug}{end}.store"

    def open(
        self, recipe: str, network: str, names: Sequence[str], progress: Callable[[Filled], None] | None = None
    ) -> Store:
        """Extract the missing bags of `names`, and open the store of these photos.

        Photos that cannot be read are left out; `progress` gets them in `Filled.skipped`.
        """
        made = parse_recipe(recipe, network)
        backbone = load_with_caffe(network, made.activation, self.device) if "caffe:" in network else None
        extractor = Extractor(made, backbone=backbone, jobs=self.jobs, device=self.device)
        path = self.path(recipe, network)
        path.parent.mkdir(parents=True, exist_ok=True)
        photos = [self.photos[name] for name in names]
        skipped = {error.name for error in fill(path, photos, extractor, progress=progress).skipped}
        return Store.open(path).only(
            [name for name in dict.fromkeys(one.name for one in photos) if name not in skipped]
        )
