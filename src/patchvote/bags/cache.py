"""What a classifier needs of the bags of photos, kept in the user's cache or in a temporary folder.

A folder or a manifest has its own store, in which photos keep their names. All lists of photos share one store. There,
the name of a photo is its full path, with links resolved, and the name of an image in memory is its digest: equal names
then mean equal photos, whatever folder or list they come from.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..backbones.cache import cache_folder, is_writable
from ..errors import PhotoError, StoreError
from ..photos.decode import read_photo
from ..photos.find import Photo, Source
from ..utils.engine import Engine
from ..utils.remote import RemotePath
from ..utils.remote import place as path_of
from ..utils.temporary import temporary_folder
from .cached_stores import CachedStores
from .extract import Extractor
from .fill import distinct
from .filled import Filled, Progress
from .keep import ALL, Condenser, Keep
from .store import Store


@contextlib.contextmanager
def cached_bags(
    photos: list[Photo],
    source: Source,
    extractor: Extractor,
    *,
    need: Keep | Condenser = ALL,
    cache: str | Path | bool | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Iterator[tuple[Filled, Store]]:
    """Update the cache with photos; yield what was done, and a store of their bags in the order of the photos.

    Names and labels are those of the photos. Every bag belongs to the content that the photo had when it was read,
    whatever other processes write to the cache meanwhile.

    Parameters
    ----------
    photos : list of Photo
        Photos to extract.
    source : Source
        Source of the photos.
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
    with contextlib.ExitStack() as stack:
        names = None if isinstance(source, (str, Path)) else [_name(photo) for photo in photos]
        more: dict[str, Any] = {"names": names, "progress": progress, "engine": engine}
        path = None if cache is False else _place(source, extractor, cache)
        stores = None if path is None else CachedStores(path, photos, extractor, **more)
        plan = None if stores is None else stores.plan(need)
        if stores is None or plan is None or not is_writable(plan[1]):
            folder = stack.enter_context(temporary_folder()) / "bags"
            stores = CachedStores(folder, photos, extractor, **more)
            plan = stores.plan(need)
        try:
            bags = stores.bring(*plan, stack)
        except StoreError as error:
            if cache is False or not isinstance(error.__cause__, OSError):
                raise
            raise StoreError(f"{error} Or do without a cache: --no-cache, in Python cache=False.") from error
        yield bags


def _place(source: Source, extractor: Extractor, cache: str | Path | bool | None) -> Path:
    """Return the folder for the bags of a folder or manifest; lists of photos share one."""
    root = cache_folder() / "bags" if isinstance(cache, bool | None) else Path(cache)
    place = None
    if isinstance(source, (str, Path)):
        path = path_of(source)
        # The photos of a manifest that is a link are relative to the link, not to the file that it points to.
        place = path.resolve() if path.is_dir() else path.parent.resolve() / path.name
    recipe = extractor.recipe
    kind = f"{recipe.mode} {recipe.sampling} {recipe.activation} {extractor.backbone.spec.fingerprint}"
    key = f"{place} {kind}".encode(errors="backslashreplace")  # not every path is UTF-8
    return root / f"{place.stem if place else 'lists'}-{hashlib.sha256(key).hexdigest()[:12]}"


def _name(photo: Photo) -> str:
    """Return a name that identifies the photo in every list."""
    try:
        if isinstance(photo.source, RemotePath):
            return str(photo.source)
        if isinstance(photo.source, Path):
            return Path(os.path.realpath(photo.source)).as_posix()
        return f"content {read_photo(photo)[1]}"
    except (OSError, ValueError, PhotoError):  # it cannot be read; the extractor reports why
        return f"unreadable {photo.name}"
