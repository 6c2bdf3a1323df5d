"""Store: bags on disk, which are read in part or as a stream.

A store is a folder of shards and nothing else; there is no index that could become inconsistent. Opening it reads the
headers. If several shards hold the same photo, the newest one is used. Photos are in the order of their names.
"""

from __future__ import annotations

import collections
import copy
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..utils.arrays import Moments, to_float32
from ..utils.remote import place
from .bags import Bags
from .moments import photo_vectors
from .shards import ENDING, SET_ASIDE, Entry, Shard, check_of, shard_files

Labels = npt.NDArray[Any]
_READERS = 4  # shards that are read at once
_MAX_TRAINING_DESCRIPTORS = 36_000  # in total; more brought no accuracy (see `thinned`)
_MIN_PER_PHOTO = 24  # descriptors, even if there are more in total than that
_AT_ONCE = 6_000  # descriptors read at once: few enough that the same memory is used again


class Store:
    """Bags of a collection of photos, on disk.

    Use `Store.open`. All ways of reading return ``(Bags, labels)`` and hold in memory only what they return.

    Attributes
    ----------
    path : Path
        Folder of the store.
    recipe : Recipe
        Recipe of the bags.
    fingerprint : str
        Fingerprint of the network that made the bags.
    dim : int
        Number of features per descriptor.
    names : list of str
        Names of the photos, sorted.
    labels : array
        Classes of the photos, as text; None for a photo without one.
    sizes : array of int
        Number of descriptors per photo.
    damaged : list of str
        Shards that could not be read, with the reason; their photos are extracted again by the next run.
    """

    dtype = np.float16  # of the descriptors on disk

    def __init__(self, path: Path, shards: Sequence[Shard], damaged: Sequence[str] = ()) -> None:
        self.path = path
        self.shards, self.damaged = list(shards), list(damaged)
        first, numbers = shards[0], _newest_numbers(shards)
        if not numbers:
            raise StoreError(f"{path} holds no photos yet. `patchvote extract PHOTOS {path}` fills it.")
        for shard in shards[1:]:
            if shard.kind != first.kind:
                raise StoreError(
                    f"{path} holds descriptors of two kinds: {first.path.name} was made with {first.recipe} (network "
                    f"{first.fingerprint}), {shard.path.name} with {shard.recipe} (network {shard.fingerprint}). Keep "
                    "each in a folder of its own."
                )
        self.recipe, self.fingerprint, self.dim = first.recipe, first.fingerprint, first.dim
        self.names = sorted(numbers)
        # The bags of all shards are numbered one after the other: a million tuples of shard and index take too much.
        self._numbers = np.array([numbers[name] for name in self.names], np.int64)
        self._firsts = np.cumsum([0, *(len(shard) for shard in shards)])  # number of the first bag of each shard
        every = list(itertools.chain.from_iterable(shard.labels for shard in self.shards))
        labels = [every[number] for number in self._numbers.tolist()]
        self.labels: Labels = np.array(labels, object if None in labels else str)
        self.sizes = np.concatenate([np.diff(shard.offsets) for shard in self.shards])[self._numbers]

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open a store: read the headers of its shards, not the descriptors."""
        path = place(path)
        if not path.is_dir():
            why = "it is a file, and a store is a folder" if path.exists() else "there is no such folder"
            raise StoreError(f"{path} is not a store: {why}. `patchvote extract PHOTOS STORE` makes one.")
        shards, damaged = [], []
        for file in shard_files(path):
            try:
                shards.append(Shard.open(file))
            except StoreError as error:
                damaged.append(str(error))
        if not shards:
            why = f"every file in it is damaged ({damaged[0]})" if damaged else "it holds no descriptors of photos"
            raise StoreError(f"{path} is not a store: {why}. `patchvote extract PHOTOS {path}` fills it.")
        return cls(path, shards, damaged)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def entries(self) -> list[Entry]:
        """Name, label and digest of each photo."""
        owners = self._shards_of(self._numbers)
        places = (self._numbers - self._firsts[owners]).tolist()
        return [self.shards[owner].entry(place) for owner, place in zip(owners.tolist(), places, strict=True)]

    def _shards_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.searchsorted(self._firsts, numbers, side="right") - 1

    def __repr__(self) -> str:
        return f"<Store: {len(self):,} photos, {int(self.sizes.sum()):,} descriptors of {self.dim:,} features>"

    def only(self, names: Sequence[str]) -> Store:
        """Return a view of the store with only these photos, in this order; StoreError if one is missing."""
        number = {name: index for index, name in enumerate(self.names)}
        missing = [name for name in names if name not in number]
        if missing or not names:
            raise StoreError(f"{self.path} does not hold {missing[0]}." if missing else "no photos were requested.")
        chosen = [number[name] for name in names]
        part = copy.copy(self)
        part.names = list(names)
        part._numbers = self._numbers[chosen]
        part.labels, part.sizes = self.labels[chosen], self.sizes[chosen]
        return part

    def load(self, indices: npt.ArrayLike | None = None, dtype: npt.DTypeLike = np.float32) -> tuple[Bags, Labels]:
        """Read the bags and labels of all photos, or of those with the numbers `indices`, in that order."""
        chosen = self._chosen(indices)
        if not len(chosen):
            raise StoreError("no photos were requested.")
        offsets = np.concatenate([[0], np.cumsum(self.sizes[chosen])]).astype(np.int64)
        bags = Bags(
            np.empty((offsets[-1], self.dim), dtype=dtype),
            offsets,
            np.empty((offsets[-1], 4), dtype=np.float32),
            np.empty(offsets[-1], dtype=np.int16),
        )
        # Shard by shard, each opened once and read from front to back; several at once, since each waits for the disk.
        where = self._numbers[chosen]
        order, shard_of = np.argsort(where, kind="stable"), self._shards_of(where)

        def read(run: npt.NDArray[np.int64]) -> None:
            number = int(shard_of[run[0]])
            places = (where[run] - self._firsts[number]).tolist()
            self.shards[number].read_into((place, bags[k]) for place, k in zip(places, run.tolist(), strict=True))

        runs = np.split(order, np.flatnonzero(np.diff(shard_of[order])) + 1)
        if len(runs) == 1:
            read(runs[0])
        else:
            with ThreadPoolExecutor(_READERS, thread_name_prefix="patchvote-shards") as threads:
                collections.deque(threads.map(read, runs), maxlen=0)  # raises what the first bad shard raised
        return bags, self.labels[chosen]

    def _chosen(self, indices: npt.ArrayLike | None) -> npt.NDArray[np.int64]:
        numbers = np.arange(len(self))
        if indices is None:
            return numbers
        return np.asarray(numbers[np.atleast_1d(np.asarray(indices, None if np.size(indices) else int))])

    def moments(self, indices: npt.NDArray[np.int64]) -> tuple[Moments, npt.NDArray[np.int64]]:
        """Return moments of features and centres of boxes that need no reading, and the photos that they leave out.

        Shards hold their moments: they are used where all photos of a shard are among those with the numbers `indices`.
        """
        numbers = self._numbers[indices]
        shard_of = self._shards_of(numbers)
        photos = np.bincount(shard_of, minlength=len(self.shards))
        different = np.bincount(shard_of[np.unique(numbers, return_index=True)[1]], minlength=len(self.shards))
        moments, used = Moments(), np.zeros(len(self.shards), bool)
        for number, shard in enumerate(self.shards):
            whole = 0 < photos[number] == different[number] == len(shard)
            if whole and np.isfinite(shard.moments).all():
                moments.merge(int(shard.offsets[-1]), shard.moments)
                used[number] = True
        return moments, np.asarray(indices[~used[shard_of]], np.int64)

    def content(self) -> int:
        """Return a checksum of the bags of all photos, in their order: of their checksums, not of the descriptors."""
        chosen = np.concatenate([shard.checks[1:] for shard in self.shards])[self._numbers]
        return check_of([self.fingerprint.encode(), chosen, self.sizes]) >> 1

    def blocks(
        self,
        descriptors: int = 100_000,
        *,
        seed: int | None = None,
        indices: npt.ArrayLike | None = None,
        dtype: npt.DTypeLike = np.float32,
    ) -> Iterator[tuple[Bags, Labels]]:
        """Yield all photos, or those with the numbers `indices`, in blocks of at most so many descriptors.

        A photo that has more is a block of its own. With a `seed`, the photos are shuffled, so that each block is a
        random sample of all.
        """
        chosen = self._chosen(indices)
        if seed is not None:
            chosen = np.random.default_rng(seed).permutation(chosen)
        block: list[int] = []
        filled = 0
        for index in chosen:
            if block and filled + self.sizes[index] > descriptors:
                yield self.load(block, dtype)
                block, filled = [], 0
            block.append(int(index))
            filled += int(self.sizes[index])
        if block:
            yield self.load(block, dtype)

    def summary(self) -> dict[str, Any]:
        """Return what the store holds, as plain values."""
        counts = collections.Counter(label for label in self.labels if label is not None)
        written = sum(len(shard) for shard in self.shards)
        return {
            "store": str(self.path),
            "photos": len(self),
            "classes": dict(sorted(counts.items())),
            "without_label": len(self) - sum(counts.values()),
            "descriptors": int(self.sizes.sum()),
            "descriptors_per_photo": [int(self.sizes.min()), float(self.sizes.mean()), int(self.sizes.max())],
            "features": self.dim,
            "dtype": ["float16"],
            "network": self.recipe.network,
            "fingerprint": self.fingerprint,
            "recipe": self.recipe.to_json(),
            "shards": len(self.shards),
            "bytes": sum(shard.path.stat().st_size for shard in self.shards),
            "superseded": written - len(self),
            "damaged": self.damaged,
            "set_aside": sorted(path.name for path in self.path.glob(f"*{ENDING}*{SET_ASIDE}")),
        }


def _newest_numbers(shards: Sequence[Shard]) -> dict[str, int]:
    """Return the number of the latest bag of each photo, by name; the oldest shard comes first."""
    numbers: dict[str, int] = {}
    first = 0
    for shard in shards:
        numbers.update(zip(shard.names, range(first, first + len(shard)), strict=True))
        first += len(shard)
        for name in shard.forgotten:
            numbers.pop(name, None)
    return numbers


def thinned(store: Store, seed: int, vectors: npt.NDArray[np.float32] | None = None) -> Bags:
    """Read the bags of all photos; for large collections, the first descriptor and a random part of every bag.

    The vectors of the whole bags (`moments.photo_vectors`) are written into `vectors`, if given. With 1,500 photos of
    Scene-15, 24 of 218 descriptors per photo gave the accuracy of all of them in a tenth of the time.
    """
    most = max(_MIN_PER_PHOTO, _MAX_TRAINING_DESCRIPTORS // len(store))
    sizes = np.minimum(store.sizes, most)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    n = int(offsets[-1])
    thin = Bags(np.empty((n, store.dim), np.float32), offsets, np.empty((n, 4), np.float32), np.empty(n, np.int16))
    on_disk = np.argsort(store._numbers, kind="stable")  # the order that is the fastest to read
    order = iter(on_disk.tolist())
    for bags, _ in store.blocks(_AT_ONCE, indices=on_disk, dtype=store.dtype):
        block_vectors = None if vectors is None else photo_vectors(bags)
        for index, (start, stop) in enumerate(itertools.pairwise(bags.offsets.tolist())):
            photo = next(order)
            if vectors is not None and block_vectors is not None:
                vectors[photo] = block_vectors[index]
            rows, place = np.arange(start, stop), slice(offsets[photo], offsets[photo + 1])
            if len(rows) > most:
                others = np.random.default_rng([seed, photo]).choice(rows[1:], most - 1, replace=False)
                rows = np.concatenate([rows[:1], np.sort(others)])
            to_float32(bags.values[rows], thin.values[place])
            thin.boxes[place], thin.level[place] = bags.boxes[rows], bags.level[rows]
    return thin
