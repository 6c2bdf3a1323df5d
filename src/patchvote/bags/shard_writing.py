"""Writing one shard: header, arrays and their checksums, streamed to a temporary file that is then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PhotoError, StoreError
from ..utils.files import write_and_hold
from ..utils.float16 import to_float32
from ..utils.moments import Moments
from ..utils.temporary import owner
from ..utils.tensor_parts import content_of, header_of
from .bags import Bags
from .codes import Codes, encoded
from .entries import Entry
from .keep import ALL, Keep
from .recipe import Recipe
from .shard import COVERED, DIGITS, DTYPES, ENDING, FORMAT, PARTS, check_of, number_of, shard_files

_ROWS = 256  # descriptors whose moments are computed at once, few enough for the processor's cache


def write_shard(folder: Path, *what: Any, **more: Any) -> Path:
    """Write a shard atomically; see `hold_shard`."""
    with hold_shard(folder, *what, **more) as path:
        return path


@contextlib.contextmanager
def hold_shard(
    folder: Path,
    recipe: Recipe,
    fingerprint: str,
    entries: Sequence[Entry],
    bags: Sequence[Bags | Codes],
    forgotten: Sequence[str] = (),
    *,
    keep: Keep = ALL,
    after: int = 0,
) -> Iterator[Path]:
    """Write a shard atomically, and keep it locked until the end.

    Its number is the time, which shows the later of two shards with the same photo. If a clock went back, the number
    follows that of the latest shard instead: of those in the folder, by their names, and of `after`, the largest number
    that the caller has read in a header. The file name contains the number and random digits, so that any number of
    processes and machines can write at once. `keep` says what the bags are of those that were extracted.
    """
    metadata = {
        "format": FORMAT,
        "recipe": recipe.to_json(),
        "fingerprint": fingerprint,
        "entries": json.dumps([entry.plain() for entry in entries]),
        "forgotten": json.dumps(list(forgotten)),
        "owner": owner(),
        "id": uuid.uuid4().hex,
    }
    if keep.name != ALL.name:
        metadata["keep"] = keep.name
    # Without entries, one empty bag sets the shapes.
    ends = np.cumsum([len(bag.values) for bag in bags])[: len(entries)]
    arrays: dict[str, list[npt.NDArray[Any]]] = {
        "values": [bag.values for bag in bags],
        "offsets": [np.concatenate([[0], ends]).astype(np.int64)],
        "boxes": [bag.boxes for bag in bags],
        "level": [bag.level for bag in bags],
        "moments": [_moments(bags)],
    }
    if keep.basis is not None:
        arrays["basis"] = [keep.basis]
    if bags[0].values.dtype == np.uint8:
        scales = [bag.scales for bag in bags if isinstance(bag, Codes)][: len(entries)]
        arrays["scales"] = scales or [np.empty((0, bags[0].dim), np.float16)]
    with contextlib.ExitStack() as stack:
        try:
            number = max([time.time_ns(), after + 1, *(number_of(path) + 1 for path in shard_files(folder))])
            if number >= 10**DIGITS:
                raise StoreError(f"{folder} has a file with the number {number - 1}, the largest possible.")
            path = folder / f"{number:020d}-{os.getpid()}-{metadata['id'][:12]}{ENDING}"
            stack.enter_context(write_and_hold(path, _safetensors(arrays, {**metadata, "number": str(number)})))
        except OSError as error:
            raise StoreError(
                f"{folder}: the descriptors of {len(entries)} photos cannot be written: {error.strerror or error}. "
                "What was written before is safe: free some space, then run the same command again to continue."
            ) from error
        yield path


def _safetensors(arrays: dict[str, list[npt.NDArray[Any]]], metadata: dict[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a shard: the header, the arrays, and the checksums of both."""
    count = len(arrays["offsets"][0])  # one for the header, and one per photo
    checks = np.zeros(count, np.uint64)
    arrays = {**arrays, "checks": [checks.view(np.int64)]}
    header = header_of(arrays, metadata)
    checks[0] = check_of([header, *(part for name in COVERED for part in arrays.get(name, []))])
    parts = [arrays[name][: count - 1] for name in PARTS if name in arrays]
    checks[1:] = [check_of(bag) for bag in zip(*parts, strict=True)]
    yield header
    yield from content_of(arrays)


def _moments(bags: Sequence[Bags | Codes]) -> npt.NDArray[np.float64]:
    """Return the moments of all features and of the centres of the boxes, for whoever standardises them later.

    Those of codes are the moments of the values that they stand for.
    """
    features, positions, ends = Moments(), Moments(), np.cumsum([len(bag.values) for bag in bags])
    groups = np.searchsorted(ends, np.arange(_ROWS, ends[-1], _ROWS))  # many small bags at once
    with np.errstate(over="ignore", invalid="ignore"):  # moments that are not finite are not used
        for part in np.split(np.arange(len(bags)), np.unique(groups)):
            chosen = [bags[index] for index in part if len(bags[index].values)]
            if chosen:
                values = [bag.bag().values if isinstance(bag, Codes) else bag.values for bag in chosen]
                features.update(to_float32(values[0] if len(values) == 1 else np.concatenate(values)))
                boxes = np.concatenate([bag.boxes for bag in chosen])
                positions.update((boxes[:, :2] + boxes[:, 2:]) / 2)
    if not features.weight:
        return np.zeros((2, bags[0].dim + 2))
    return np.concatenate([features.as_array(), positions.as_array()], axis=1)


def cast(name: str, bag: Bags | Codes, dtype: str) -> Bags | Codes:
    """Convert the bag of the photo `name` to the dtype of the store; raises as `check_fits` does."""
    if isinstance(bag, Codes):
        if dtype == "uint8":
            return bag
        bag = bag.bag()
    check_fits(name, bag, dtype)
    return encoded(bag) if dtype == "uint8" else bag.astype(DTYPES[dtype])


def check_fits(name: str, bag: Bags, dtype: str) -> None:
    """Refuse the bag of the photo `name` if the dtype of the store cannot represent it.

    Raises
    ------
    PhotoError
        If a descriptor does not fit into that type, or is not finite.
    """
    # NaN if any value is; twice over the values is faster than a copy of their sizes.
    largest = float(np.maximum(bag.values.max(initial=0), -bag.values.min(initial=0)))
    if not largest <= float(np.finfo(np.float16 if dtype == "uint8" else DTYPES[dtype]).max):
        advice = "Keep all descriptors in float32 (`--dtype float32`), or look" if dtype != "float32" else "Look"
        raise PhotoError(
            name,
            f"a descriptor of it is not finite, or does not fit into {dtype}. {advice} at the network's preprocessing.",
        )
