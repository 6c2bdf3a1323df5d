"""CachedStores: the stores that a cache has for one network and recipe, each with what some voter needs of a bag.

All collections of photos share them. There is one store of whole bags, one of means, and others for what is computed
with numbers that were found in a collection, such as moments along its principal directions. A store gets from the
others what these can lend, and the rest from the network. So a voter that needs less than whole bags leaves a small
cache, and a voter that needs more has it extracted.

To find such numbers, the whole bags of a sample of photos are needed. They are kept in a store of their own as long as
somebody needs them, so that nothing is lost if the run is interrupted. What was found is used for other collections,
too, if the store has half of their photos, or many of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backbones.cache import is_writable
from ..errors import PhotoError, StoreError
from ..photos.find import Photo
from ..utils.engine import Engine
from ..utils.temporary import passing_folder
from .bags import Bags
from .entries import Entry
from .extract import Extractor
from .fill import lend, up_to_date
from .filled import Filled, Progress
from .keep import ALL, Condenser, Keep, Mean, in_words
from .lending import Lender, Seen, digests_in, recognised
from .store import Store

# Photos whose whole bags are the sample. Principal directions found in 10, 20, 50, 100 or 300 photos of Scene-15, or in
# 300 photos of objects, gave the same accuracy within noise (docs/architecture.md).
SAMPLE = 250


class CachedStores:
    """Stores of a cache, for one collection of photos.

    Parameters
    ----------
    base : Path
        Folder of the whole bags; those of other stores have longer names.
    photos : list of Photo
        The photos.
    extractor : Extractor
        Extractor that makes the bags.
    names : list of str
        Names of the photos in the stores, which several collections share, as for `up_to_date`.
    progress : function, optional
        Called after each photo with what was done so far.
    engine : Engine, optional
        Engine whose workers extract, as for `fill`.
    """

    def __init__(
        self,
        base: Path,
        photos: Sequence[Photo],
        extractor: Extractor,
        *,
        names: Sequence[str],
        progress: Progress | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.base, self.photos, self.names, self.extractor = base, photos, names, extractor
        self.progress, self.engine, self.why = progress, engine, ""
        # By their names in the stores, which have no labels.
        self.by_key = {name: Photo(name, photo.source) for name, photo in zip(names, photos, strict=True)}

    def plan(self, need: Keep | Condenser) -> tuple[Keep | Condenser, Path]:
        """Return what to keep and the folder that is written to first; a `Condenser` if a sample has to be taken."""
        if isinstance(need, Keep):
            return need, self._folder(need)
        whole = self._stores.get(self.base)
        has_most = whole is not None and 2 * self._count(whole) >= len(self.by_key)
        return self._existing(need) or (need, self.base if has_most else self._sample_folder)

    def bring(self, need: Keep | Condenser, path: Path, stack: contextlib.ExitStack) -> tuple[Filled, Store]:
        """Do what was planned: bring the store up to date, and open a view of it, as `up_to_date` does.

        A sample of whole bags is removed when `stack` is closed, if it has served its purpose.
        """
        if isinstance(need, Keep):
            self.borrow(need, path)
            return self._up_to_date(need, path)
        finished = [] if path == self.base else stack.enter_context(passing_folder(path))
        done = self._begun(need, path)
        finished.append("the sample")
        return done

    def writable(self, need: Keep) -> Path | None:
        """Return the folder of the store that keeps this; None, with a warning, if it cannot be written."""
        path = self._folder(need)
        return path if is_writable(path) else None

    # --- a store of what is needed ----------------------------------------------------------------------------------

    def _up_to_date(self, keep: Keep, path: Path, stored: dict[str, str] | None = None) -> tuple[Filled, Store]:
        more: dict[str, Any] = {"names": self.names, "progress": self._show, "engine": self.engine}
        return up_to_date(path, self.photos, self.extractor, **more, keep=keep, whole=self._whole, stored=stored)

    def _show(self, filled: Filled) -> None:
        if self.progress is not None:  # a sample is a part of all photos
            self.progress(dataclasses.replace(filled, photos=len(self.by_key), why=self.why))

    @functools.cached_property
    def _stores(self) -> dict[Path, Store]:
        """Stores by their folders, as they are when they are first asked for, without that of a sample."""
        found = ((folder, opened_store(folder)) for folder in self._folders(""))
        return {folder: store for folder, store in found if store is not None}

    @functools.cached_property
    def _seen(self) -> dict[str, Seen]:
        """Contents of the photos that the stores know, by their names in the stores."""
        return recognised(self.by_key, list(self._stores.values()))

    def _count(self, store: Store) -> int:
        """Return the number of photos of which a store has bags."""
        held = set(digests_in(store))
        return sum(one.digest in held for one in self._seen.values())

    def borrow(self, keep: Keep, path: Path) -> None:
        """Put into a store what others have of its photos, and note what they have that is of no use."""
        for folder, store in self._stores.items():
            if folder == path:
                continue
            if store.keep == ALL.name or (keep == Mean() and store.keep != keep.name):
                lender = Lender(store, self.extractor, self._seen)
                lend(path, [photo for photo in self.by_key.values() if lender.has(photo)], lender, keep)
            elif self._count(store):
                self.why = f"the cache keeps {in_words(store.keep)}, and this takes more"

    # --- a store that begins with a sample --------------------------------------------------------------------------

    def _existing(self, condenser: Condenser) -> tuple[Keep, Path] | None:
        """Return the store that serves these photos best, if any does: it has half of them, or many."""
        best: tuple[int, Keep, Path] | None = None
        for path in self._folders(f"{condenser.name} "):
            store = self._stores.get(path)
            if store is None or path != self._named(store.keep):
                continue
            there = self._count(store)
            enough = 2 * there >= len(self.by_key) or there >= SAMPLE
            if enough and (best is None or there > best[0]) and condenser.accepts(store):
                best = there, condenser.restore(store), path
        return None if best is None else best[1:]

    def _begun(self, condenser: Condenser, folder: Path) -> tuple[Filled, Store]:
        """Begin a store: find in a sample of whole bags what to keep, then keep it of all photos."""
        start = time.monotonic()
        self.borrow(ALL, folder)
        order = np.random.default_rng(0).permutation(len(self.photos))
        try:
            before, sample = self._sampled(folder, order[:SAMPLE])
        except StoreError:
            if len(order) <= SAMPLE:
                raise
            before, sample = self._sampled(folder, order)  # none of the sample can be read; other errors come again
        keep = condenser.find(sample)
        path = self._folder(keep)
        lender = Lender(Store.open(folder), self.extractor, {key: Seen(one) for key, one in before.digests.items()})
        stored = lend(path, [self.by_key[key] for key in before.digests], lender, keep)
        filled, store = self._up_to_date(keep, path, stored)
        filled.extracted += before.extracted
        filled.descriptors += before.descriptors
        filled.reused += before.reused
        filled.kept -= before.extracted + before.reused
        filled.damaged[:0] = before.damaged
        filled.seconds = time.monotonic() - start
        return filled, store

    def _sampled(self, folder: Path, chosen: npt.NDArray[np.int64]) -> tuple[Filled, Store]:
        """Extract whole bags of some photos, in the order of the photos."""
        numbers = np.sort(chosen).tolist()
        photos = [self.photos[number] for number in numbers]
        names = [self.names[number] for number in numbers]
        return up_to_date(folder, photos, self.extractor, names=names, progress=self._show, engine=self.engine)

    # --- whole bags of single photos --------------------------------------------------------------------------------

    def _whole(self, entries: Sequence[Entry]) -> Bags:
        """Return whole bags of photos: those that a store has, and for the others what the network makes of them now.

        Raises
        ------
        PhotoError
            A photo cannot be read any more, or has changed.
        """
        bags: dict[str, Bags] = {}
        for folder in (self.base, self._sample_folder):
            if (store := opened_store(folder)) is not None:
                for entry in entries:
                    with contextlib.suppress(StoreError):
                        bags[entry.digest] = store.by_content([entry]).load(dtype=np.float16)[0]
        photos = {photo.name: photo for photo in self.photos}
        missing = {entry.digest: photos[entry.name] for entry in entries if entry.digest not in bags}
        for digest, item in zip(missing, self.extractor.stream(missing.values()), strict=True):
            if item.bag is None or item.digest != digest:
                raise item.error or PhotoError(item.photo.name, "has changed since it was read.")
            bags[digest] = item.bag.astype(np.float16)
        return Bags.join([bags[entry.digest] for entry in entries])

    # --- names ------------------------------------------------------------------------------------------------------

    def _folder(self, keep: Keep) -> Path:
        return self.base if keep == ALL else self._named(keep.name)

    def _named(self, name: str) -> Path:
        return self.base.with_name(f"{self.base.name}-{re.sub('[^A-Za-z0-9.]+', '-', name)}")

    @property
    def _sample_folder(self) -> Path:
        return self._named("sample")

    def _folders(self, name: str) -> list[Path]:
        """Return the folders of the stores that begin with a name; with none, all, that of whole bags first."""
        found = sorted(self.base.parent.glob(f"{glob.escape(self._named(name).name)}*"))
        stores = [path for path in found if path != self._sample_folder]
        return stores if name else [self.base, *stores]


def opened_store(folder: Path) -> Store | None:
    """Open a store; None if there is none, or if it is empty."""
    if not folder.is_dir():
        return None
    try:
        return Store.open(folder)
    except StoreError:
        return None
