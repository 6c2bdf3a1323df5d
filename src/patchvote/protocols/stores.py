"""The bags of an image set: one store per recipe and network, extracted on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..backbones.cache import cache_folder
from ..backbones.names import parts_of
from ..bags.extract import Extractor
from ..bags.fill import up_to_date
from ..bags.filled import Filled
from ..bags.store import Store
from ..photos.find import Photo
from ..utils.engine import Engine
from ..utils.files import make_folder
from .names import network_file_name
from .recipes import parse_recipe


def default_bags_folder(layout: str) -> Path:
    """Return the default folder for the bags of an image set, in the cache of patchvote."""
    return cache_folder() / "protocols" / layout


class Stores:
    """The bags of the photos of one image set.

    Parameters
    ----------
    folder : Path
        Folder with one store per recipe and network.
    photos : dict
        Photos by name.
    jobs : int, optional
        Threads of extraction; one per core by default.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device on which the network runs.
    """

    def __init__(self, folder: Path, photos: Mapping[str, Photo], jobs: int | None = None, device: str = "cpu") -> None:
        self.folder, self.photos, self.jobs, self.device = folder, photos, jobs, device

    def path(self, recipe: str, network: str) -> Path:
        """Return the store of a recipe and a single network."""
        return self.folder / f"{recipe}@{network_file_name(network)}.store"

    def missing(self, recipe: str, networks: str, names: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return for each network the photos whose bags have not been extracted."""
        result = []
        for network in parts_of(networks):
            path = self.path(recipe, network)
            present = set(Store.open(path).names) if path.is_dir() and any(path.glob("*.safetensors")) else set()
            result.append((network, [name for name in names if name not in present]))
        return result

    def extractor(self, recipe: str, network: str) -> Extractor:
        """Return the extractor for a recipe and a single network."""
        return Extractor(parse_recipe(recipe, network), jobs=self.jobs, device=self.device)

    def open(
        self,
        recipe: str,
        networks: str,
        names: Sequence[str],
        progress: Callable[[Filled], None] | None = None,
        engine: Engine | None = None,
    ) -> list[Store]:
        """Extract the missing bags of `names`, and open the stores of these photos, one per network.

        Photos that cannot be read are left out; `progress` gets them in `Filled.skipped`. With an engine, its workers
        extract.
        """
        stores = []
        for network in parts_of(networks):
            path = self.path(recipe, network)
            make_folder(path.parent)
            photos = [self.photos[name] for name in names]
            extractor = self.extractor(recipe, network)
            stores.append(up_to_date(path, photos, extractor, progress=progress, engine=engine)[1])
        return stores
