"""The bags of an image set, a store for each recipe and network; extracted when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..backbones import EMBEDDED
from ..backbones.joined import unit
from ..backbones.names import JOIN
from ..bags.bags import Bags
from ..bags.extract import Extractor
from ..bags.fill import Filled, up_to_date
from ..bags.store import Store
from ..errors import PatchvoteError
from ..photos.find import Photo
from ..utils.files import make_folder
from .recipes import parse_recipe


class Stores:
    """The bags of the photos of one image set.

    Parameters
    ----------
    folder : Path
        Holds a store for each recipe and network.
    photos : dict
        Photos by name.
    jobs : int, optional
        Threads of extraction.
    """

    def __init__(self, folder: Path, photos: Mapping[str, Photo], jobs: int | None = None) -> None:
        self.folder, self.photos, self.jobs = folder, photos, jobs

    def path(self, recipe: str, network: str) -> Path:
        """Return where the bags of a recipe and a single network are kept."""
        return self.folder / f"{recipe}@{network_name(network)}.store"

    def missing(self, recipe: str, networks: str, names: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return for each network the photos whose bags are not there."""
        result = []
        for network in networks.split(JOIN):
            path = self.path(recipe, network)
            there = set(Store.open(path).names) if path.is_dir() and any(path.glob("*.safetensors")) else set()
            result.append((network, [name for name in names if name not in there]))
        return result

    def extractor(self, recipe: str, network: str) -> Extractor:
        """Return what extracts the bags of a recipe and a single network."""
        return Extractor(parse_recipe(recipe, network), jobs=self.jobs)

    def open(
        self, recipe: str, networks: str, names: Sequence[str], progress: Callable[[Filled], None] | None = None
    ) -> list[Store]:
        """Extract what is missing of `names`, and open the stores, one a network, with the bags of these photos.

        Photos that cannot be read are left out; `Filled.skipped` tells `progress` which.
        """
        stores = []
        for network in networks.split(JOIN):
            path = self.path(recipe, network)
            make_folder(path.parent)
            photos = [self.photos[name] for name in names]
            stores.append(up_to_date(path, photos, self.extractor(recipe, network), progress=progress)[1])
        return stores


def load(stores: Sequence[Store], names: Sequence[str]) -> Bags:
    """Read the bags of these photos; descriptors of several networks stand side by side, as in `JoinedBackbone`."""
    parts = [store.only(names).load()[0] for store in stores]
    if len(parts) == 1:
        return parts[0]
    for part in parts[1:]:
        if not np.array_equal(part.offsets, parts[0].offsets) or not np.allclose(part.boxes, parts[0].boxes, atol=1e-3):
            raise PatchvoteError(
                "networks whose descriptors stand side by side must look at the same places: use patch."
            )
    first = parts[0]
    values = np.hstack([unit(np.asarray(part.values, np.float32)) for part in parts])
    if stores[0].recipe.mode == "dense":  # there the whole image is the mean of the cells of the first scale
        rows = np.flatnonzero(first.level == 1)
        whole = np.flatnonzero(first.level == 0)
        starts = np.searchsorted(first.owner[rows], first.owner[whole])
        counts = np.bincount(first.owner[rows], minlength=len(first))[first.owner[whole]]
        values[whole] = np.add.reduceat(values[rows], starts, axis=0) / counts[:, None]
    return Bags(values, first.offsets, first.boxes, first.level)


def network_name(networks: str) -> str:
    """Return what results call a network: its name, or that of its file without folder and ending.

    Examples
    --------
    >>> network_name("efficientnet-lite0+weights/places.onnx")
    'efficientnet-lite0+places'
    """
    return JOIN.join(name if name in EMBEDDED else Path(name).stem for name in networks.split(JOIN))
