"""What a classifier needs of the bags of photos, kept in the user's cache or in a temporary folder.

All commands and all collections of photos share one cache. There, the name of a photo is its full path, with links
resolved, and the name of an image in memory is its digest: equal names then mean equal photos, whatever folder or list
they come from. A photo under another name is recognised by its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..backbones.cache import is_writable
from ..errors import CacheWarning, ForeignStoreError, PhotoError, StoreError
from ..photos.decode import digest_of
from ..photos.find import Photo
from ..utils.engine import Engine
from ..utils.remote import RemotePath
from ..utils.temporary import temporary_folder
from .cache_files import bound_of, root_of, touch, using
from .cached_stores import CachedStores
from .extract import Extractor
from .fill import distinct
from .filled import Filled, Progress
from .keep import ALL, Condenser, Keep
from .lending import CONTENT
from .store import Store


@contextlib.contextmanager
def cached_bags(
    photos: list[Photo],
    extractor: Extractor,
    *,
    need: Keep | Condenser = ALL,
    cache: str | Path | bool | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Iterator[tuple[Filled, Store]]:
    """Update the cache with photos; yield what was done, and a store of their bags in the order of the photos.

    Names and labels are those of the photos. Every bag belongs to the content that the photo had when it was read,
    whatever other processes write to the cache meanwhile. A cache that cannot be used is told, and done without.

    Parameters
    ----------
    photos : list of Photo
        Photos to extract.
    extractor : Extractor
        Extractor that makes the bags.
    need : Keep or Condenser
        What the store has to keep of each bag.
    cache : path, None or False
        Folder of the cache, the user's by default; False keeps nothing.
    progress : function, optional
        Called after each photo with what was done so far.
    engine : Engine, optional
        Engine whose workers extract, as for `fill`; they have to see the folder under the same path.

    Raises
    ------
    StoreError
        If two different photos have one name, or no photo can be read.
    """
    distinct(photos)
    root = root_of(cache)
    more: dict[str, Any] = {"names": names_of(photos), "progress": progress, "engine": engine}
    with contextlib.ExitStack() as stack:
        bags = None
        if root is not None:
            stack.enter_context(in_cache(root, cache))
            stores = CachedStores(base_of(root, extractor), photos, extractor, **more)
            bags = _kept(stores, need, stack)
        if bags is None:
            folder = stack.enter_context(temporary_folder()) / "bags"
            stores = CachedStores(folder, photos, extractor, **more)
            bags = stores.bring(*stores.plan(need), stack)
        yield bags


def _kept(stores: CachedStores, need: Keep | Condenser, stack: contextlib.ExitStack) -> tuple[Filled, Store] | None:
    """Bring the stores of a cache up to date; None, with a warning, if they cannot be used."""
    plan = stores.plan(need)
    if not is_writable(plan[1]):
        return None
    try:
        filled, store = stores.bring(*plan, stack)
    except StoreError as error:
        if not is_unusable(error):
            raise
        if stores.engine is not None:  # a folder of this machine alone would not do
            raise StoreError(f"{error} Or keep no bags: --no-cache, in Python cache=False.") from error
        warn_unusable(stores.base.parent, error)
        return None
    touch(store.files())
    return filled, store


@contextlib.contextmanager
def in_cache(root: Path, cache: str | Path | bool | None) -> Iterator[None]:
    """Use a cache while the block runs, as `using` does; its folder is made if it can be."""
    bound = bound_of(cache)
    with contextlib.suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
    with using(root, bound):
        yield


def is_unusable(error: StoreError) -> bool:
    """Whether an error is about the folder of a cache, and not about photos or the network."""
    return isinstance(error, ForeignStoreError) or isinstance(error.__cause__, OSError)


def warn_unusable(root: Path, error: StoreError) -> None:
    """Warn that a cache is not used, and why."""
    cause = error.__cause__
    why = str((cause.strerror or cause) if isinstance(cause, OSError) else error).rstrip(".")
    warnings.warn(
        f"the cache {root} cannot be used ({why}): the work is done without it, and the next run will take as long as "
        "this one.",
        CacheWarning,
        stacklevel=2,
    )


def base_of(root: Path, extractor: Extractor) -> Path:
    """Return the folder for the whole bags of a network and recipe; those of less have longer names."""
    recipe, spec = extractor.recipe, extractor.backbone.spec
    kind = f"{recipe.mode} {recipe.sampling} {recipe.activation} {spec.fingerprint}"
    name = re.sub("[^A-Za-z0-9.]+", "-", Path(recipe.network).name)[:40].strip("-.") or "network"
    return root / f"{name}-{recipe.mode}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"


def names_of(photos: Sequence[Photo]) -> list[str]:
    """Return a name for each photo that identifies it in every collection."""
    folders: dict[str, str] = {}
    return [_name(photo, folders) for photo in photos]


def _name(photo: Photo, folders: dict[str, str]) -> str:
    try:
        if isinstance(photo.source, RemotePath):
            return str(photo.source)
        if isinstance(photo.source, Path):
            folder, name = os.path.split(photo.source)
            if folder not in folders:
                folders[folder] = os.path.realpath(folder)
            path = Path(folders[folder], name)
            return (Path(os.path.realpath(path)) if path.is_symlink() else path).as_posix()
        return f"{CONTENT}{digest_of(photo)}"
    except (OSError, ValueError, PhotoError):  # it cannot be read; the extractor reports why
        return f"unreadable {photo.name}"
