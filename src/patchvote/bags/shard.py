"""One shard of a store: a safetensors file that describes itself.

It holds the bags of some photos (descriptors, offsets, boxes, levels) and, in its header, their metadata: the recipe,
the network's fingerprint, and the name, label and content hash of each photo. It may also list photos that are removed
from the store. A shard is written once and never changed; later shards replace its entries. The order of shards is in
their headers, so that a copy under another name is as old as its original.

One more array, `checks`, holds a checksum of the header and the offsets, and then one per photo's bag. Everything that
is read is compared with them. `moments` holds the mean of each feature and of the centres of the boxes, and the sums of
squared differences from it, over all descriptors of the shard; the header's checksum covers it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DamagedShardError, StoreError
from ..utils.arrays import to_float32
from ..utils.reading import open_regular
from ..utils.tensors import Place, checksum, header_bytes, read_header, read_rows
from .bags import Bags
from .entries import Entries
from .recipe import Recipe

FORMAT = "patchvote-bags-2"
ENDING = ".safetensors"
DIGITS = 30  # most digits of a shard's number; a time in nanoseconds has 19
SET_ASIDE = ".damaged"  # appended to the name of a damaged shard
PARTS = ("values", "boxes", "level")  # arrays that a photo has a part of
COVERED = ("offsets", "moments")  # arrays that the header's checksum covers, in this order
_MAX_FEATURES = 1 << 20  # per descriptor; networks have some thousands
# Types of the descriptors on disk.
DTYPES: dict[str, type[np.float16] | type[np.float32]] = {"float16": np.float16, "float32": np.float32}


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """The header of one shard; descriptors stay on disk until `read_into` reads them.

    Attributes
    ----------
    order : tuple of int and str
        Sort key: the later of two shards has the greater one. A copy has the order of its original.
    owner : str
        Machine and process that wrote the shard.
    checks : array of int
        Checksums of the header and of each photo's bag.
    moments : array of shape (2, features + 2)
        Means of the features and of the centres of the boxes over all descriptors, and sums of squared differences.
    """

    path: Path
    recipe: Recipe
    fingerprint: str
    entries: Entries
    offsets: npt.NDArray[np.int64]
    dim: int
    dtype: str
    forgotten: tuple[str, ...]
    order: tuple[int, str]
    owner: str
    checks: npt.NDArray[np.uint64]
    places: Mapping[str, Place]
    moments: npt.NDArray[np.float64]

    @property
    def kind(self) -> tuple[object, ...]:
        """Properties that must be equal for bags to be comparable; the path of a network's file need not be."""
        return self.recipe.sampling, self.recipe.activation, self.fingerprint, self.dim

    @property
    def is_claim(self) -> bool:
        """Whether it only reserves a new store for a recipe, while the first bags are extracted."""
        return not self.entries and not self.forgotten

    @classmethod
    def open(cls, path: Path) -> Shard:
        """Read the header of a shard, and verify it.

        Raises
        ------
        DamagedShardError
            If the file is damaged.
        StoreError
            If the file cannot be read, or is not a shard.
        """
        verified = False
        try:
            with open_regular(path) as file:
                metadata, places, arrays = _read_verified(path, file)
            verified = True
            return cls._parsed(path, metadata, places, arrays)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"{path.name} cannot be read: {error.strerror or error}.") from error
        except Exception as error:  # a hostile header can cause any exception
            if verified:
                raise StoreError(
                    f"{path.name} has metadata this version does not understand: {error!s:.200}"
                ) from error
            raise DamagedShardError(f"{path.name} is damaged, or no part of a store: {error!s:.200}") from error

    @classmethod
    def _parsed(
        cls, path: Path, metadata: dict[str, str], places: dict[str, Place], arrays: dict[str, npt.NDArray[Any]]
    ) -> Shard:
        if metadata.get("format") != FORMAT:
            raise StoreError(f"{path.name} was made by another version of patchvote: extract its photos again.")
        rows, dim = places["values"].shape
        shard = cls(
            path,
            Recipe.from_json(metadata["recipe"]),
            metadata["fingerprint"],
            Entries(json.loads(metadata["entries"])),
            arrays["offsets"],
            dim,
            places["values"].dtype,
            tuple(json.loads(metadata.get("forgotten", "[]"))),
            _order(metadata),
            metadata["owner"],
            arrays["checks"],
            places,
            arrays["moments"],
        )
        if not _is_sound(shard, rows):
            raise DamagedShardError(f"{path.name} contradicts itself: its arrays do not fit its header.")
        return shard

    def bag(self, index: int) -> Bags:
        """Read and verify the bag of one photo, in its type on disk; raises as `read_into` does."""
        rows = int(self.offsets[index + 1] - self.offsets[index])
        values: npt.NDArray[Any] = np.empty((rows, self.dim), DTYPES[self.dtype])
        bag = Bags(values, np.array([0, rows]), np.empty((rows, 4), np.float32), np.empty(rows, np.int16))
        self.read_into([(index, bag)])
        return bag

    def read_into(self, wanted: Iterable[tuple[int, Bags]]) -> None:
        """Read the bags of photos into arrays of the caller, and verify them.

        Parameters
        ----------
        wanted : iterable of int and Bags
            Index of the photo in the shard, and a bag with as many descriptors, which is overwritten.

        Raises
        ------
        DamagedShardError
            If a bag is not what was written.
        StoreError
            If the shard is no longer there.
        """
        buffer: npt.NDArray[Any] = np.empty((0, self.dim), self.dtype)
        with self._opened() as file:
            for index, bag in wanted:
                rows = len(bag.values)
                stored: npt.NDArray[Any] = bag.values
                if stored.dtype != buffer.dtype:  # one buffer for all bags, which stays in the processor's cache
                    buffer = buffer if len(buffer) >= rows else np.empty((rows, self.dim), buffer.dtype)
                    stored = buffer[:rows]
                self._read(file, index, [stored, bag.boxes, bag.level])
                if stored is not bag.values:
                    _convert(stored, bag.values)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[io.BufferedReader]:
        try:
            with open_regular(self.path) as file:
                yield file
        except (EOFError, OSError) as error:
            raise StoreError(f"{self.path} can no longer be read: {error}. Was the store moved or changed?") from error

    def _read(self, file: io.BufferedReader, index: int, parts: list[npt.NDArray[Any]]) -> None:
        """Read what is stored of one photo, and verify it at once, while the bytes are in the processor's cache."""
        for name, part in zip(PARTS, parts, strict=True):
            read_rows(file, self.places[name], int(self.offsets[index]), part)
        self._verify(index, parts)

    def _verify(self, index: int, parts: list[npt.NDArray[Any]]) -> None:
        if check_of(parts) != self.checks[1 + index]:
            raise DamagedShardError(
                f"{self.path} is damaged: what it holds of {self.entries.names[index]} is not what was written. "
                "Without this file, `patchvote extract` extracts its photos again."
            )


def _convert(stored: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Convert verified descriptors to another dtype."""
    if target.dtype == np.float32:
        to_float32(stored, target)
    else:
        target[...] = stored


def _read_verified(
    path: Path, file: io.BufferedReader
) -> tuple[dict[str, str], dict[str, Place], dict[str, npt.NDArray[Any]]]:
    """Read the header of a shard and the arrays that describe its bags, and verify them."""
    metadata, places = read_header(file)
    header = header_bytes(file)
    version = metadata.get("format", "")
    if version != FORMAT:
        if version.startswith("patchvote-bags-"):
            raise StoreError(
                f"{path.name} has the format {version[:40]!r}, not {FORMAT!r}: another version of patchvote made it. "
                "Extract its photos again."
            )
        raise DamagedShardError(f"{path.name} is damaged, or no part of a store: its format is {version[:40]!r}.")
    most = metadata.get("entries", "").count("{") + 1  # the header has one object per photo
    for name in ("offsets", "checks"):  # a file may claim any size without having it
        if name in places and (places[name].dtype != "int64" or not 1 <= math.prod(places[name].shape) <= most):
            raise DamagedShardError(f"{path.name} contradicts itself: its header does not have as many photos.")
    values, moments = places.get("values"), places.get("moments")
    dim = values.shape[1] if values is not None and len(values.shape) == 2 else -1
    if moments is not None and (moments.dtype, moments.shape) != ("float64", (2, dim + 2)):
        raise DamagedShardError(f"{path.name} contradicts itself: its moments do not fit its descriptors.")
    names = ("offsets", "checks", "moments")
    if missing := [name for name in names if name not in places]:
        raise DamagedShardError(f"{path.name} is damaged, or no part of a store: it has no {missing[0]}.")
    arrays: dict[str, npt.NDArray[Any]] = {
        name: read_rows(file, places[name], 0, np.empty(places[name].shape, places[name].dtype)) for name in names
    }
    checks = arrays["checks"] = arrays["checks"].view(np.uint64)
    if check_of([header, *(arrays[name] for name in COVERED)]) != checks[0]:
        raise DamagedShardError(f"{path.name} is damaged: its header is not what was written.")
    return metadata, places, arrays


def _is_sound(shard: Shard, rows: int) -> bool:
    """Whether the parts of a header are consistent, which is not certain for a header read from a file."""
    offsets = shard.offsets
    described = {name: (place.dtype, place.shape) for name, place in shard.places.items()}
    count = len(shard.entries) + 1
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "values": (shard.dtype, (rows, shard.dim)),
        "offsets": ("int64", (count,)),
        "boxes": ("float32", (rows, 4)),
        "level": ("int16", (rows,)),
        "checks": ("int64", (count,)),
        "moments": ("float64", (2, shard.dim + 2)),
    }
    return (
        shard.dtype in DTYPES
        and described == expected
        and min(1, len(shard.entries)) <= shard.dim <= _MAX_FEATURES  # a file without descriptors may claim any number
        and not (shard.moments[1] < 0).any()  # sums of squares
        and offsets[0] == 0
        and offsets[-1] == rows
        and not (np.diff(offsets) < 0).any()
        and all(isinstance(name, str) for name in shard.forgotten)
    )


def newest(shards: Iterable[Shard]) -> dict[str, tuple[Shard, int]]:
    """Return the latest shard of each photo, and its index there, by name; without photos that were removed."""
    places: dict[str, tuple[Shard, int]] = {}
    for shard in sorted(shards, key=lambda shard: shard.order):
        places.update((name, (shard, index)) for index, name in enumerate(shard.entries.names))
        for name in shard.forgotten:
            places.pop(name, None)
    return places


def shard_files(folder: Path) -> list[Path]:
    """Return the files of `folder` that are shards by their names, in the order of their numbers."""
    return sorted(folder.glob(f"[!.]*{ENDING}"), key=lambda path: (number_of(path), path.name))


def set_aside(path: Path) -> Path:
    """Rename a damaged shard so that it is ignored, and return its new name; nothing is overwritten."""
    target = path.with_name(path.name + SET_ASIDE)
    for number in range(2, 1000):
        if not target.exists():
            break
        target = path.with_name(f"{path.name}.{number}{SET_ASIDE}")
    path.rename(target)
    return target


def is_own_name(path: Path) -> bool:
    """Whether a file has the name that `write_shard` gives."""
    return re.fullmatch(rf"\d{{20,{DIGITS}}}-\d+-[0-9a-f]{{12}}{re.escape(ENDING)}", path.name) is not None


def number_of(path: Path) -> int:
    """Return the number at the start of a shard's name; 0 for a name of another form."""
    first = path.name.partition("-")[0]
    return int(first) if first.isascii() and first.isdigit() and 20 <= len(first) <= DIGITS else 0


def _order(metadata: Mapping[str, str]) -> tuple[int, str]:
    """Return the number and the id in the header."""
    number = metadata["number"]
    if not (number.isascii() and number.isdigit() and len(number) <= DIGITS):
        raise ValueError(f"its number is {number[:40]!r}")
    return int(number), metadata["id"]


def check_of(parts: Iterable[bytes | npt.NDArray[Any]]) -> int:
    """Return the checksum of bytes and arrays as a number."""
    return int(checksum(parts), 16)
