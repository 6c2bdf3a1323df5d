"""Checkpoint: a file from which a training that was interrupted continues exactly.

It is a safetensors file: prototypes by name, the state of the training as JSON, the mark of data and settings to which
they belong, and a checksum over all. A fit may have two trainings; the prototypes of the first stay in the file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from ...bags.store import Store
from ...errors import PatchvoteError
from ...utils.files import write_file
from ...utils.reading import open_regular
from ...utils.remote import RemotePath
from ...utils.schema import flag, listed, number, record, table, text, whole
from ...utils.tensors import checksum, contents, empty, fill, read_header
from .minibatches import TrainingData

Arrays = dict[str, npt.NDArray[Any]]

_MARK, _STATES, _CHECKSUM = "patchvote_snbnl_training", "states", "checksum"
_COUNT = whole(0, 1 << 53)
_NUMBER = number(-1e300, 1e300)
_STATE = record(
    {
        "finished": flag,
        "pass": _COUNT,
        "position": _COUNT,
        "step": _COUNT,
        "averaged": _COUNT,
        "loss": _NUMBER,
        "stale": _COUNT,
        "dead": _COUNT,
        "best_accuracy": _NUMBER,
        "history": listed(lambda value: None if isinstance(value, dict) else " must be a table"),
        "random": lambda value: None if isinstance(value, dict) else " must be a table",
    }
)
_TRAININGS = table(_STATE, text(20))


class Checkpoint:
    """The file that keeps the trainings of one fit; what it holds already is read.

    Parameters
    ----------
    path : path
        File of the checkpoint; it need not exist.
    mark : str
        Hash of data and settings, by which a training recognises its checkpoint.
    seconds : float
        Least time between two writes within a pass.

    Raises
    ------
    PatchvoteError
        The file is no checkpoint, is damaged, or belongs to other data or settings; or its folder does not exist.
    """

    def __init__(self, path: Path, mark: str, seconds: float) -> None:
        self.path, self.mark, self.seconds = path, mark, seconds
        self._written = time.monotonic()
        self._arrays: Arrays = {}
        self._states: dict[str, Any] = {}
        if path.exists():
            self._read()
        elif (
            not isinstance(path, RemotePath) and not path.parent.is_dir()
        ):  # now, not when hours of work are to be kept
            raise PatchvoteError(f"the checkpoint {path} cannot be written: there is no folder {path.parent}. Make it.")

    def is_due(self) -> bool:
        """Whether the last write is so long ago that the next one is due."""
        return time.monotonic() - self._written >= self.seconds

    def of(self, training: str, shape: tuple[int, ...]) -> tuple[Arrays, dict[str, Any]] | None:
        """Return the arrays and the state of a training; None if it has not begun.

        Raises
        ------
        PatchvoteError
            Its prototypes are not finite numbers of this shape.
        """
        if training not in self._states:
            return None
        prefix = f"{training}."
        arrays = {name[len(prefix) :]: a for name, a in self._arrays.items() if name.startswith(prefix)}
        # A checksum shows that the file is as it was written, not that a training of ours wrote it.
        if "weights" not in arrays or not all(_are_prototypes(array, shape) for array in arrays.values()):
            raise self.damaged()
        return arrays, self._states[training]

    def damaged(self) -> PatchvoteError:
        """Return the error of a file whose content cannot be right."""
        return PatchvoteError(f"{self.path} is damaged: remove it to begin anew, or restore it from a backup.")

    def write(self, training: str, arrays: Arrays, state: dict[str, Any]) -> None:
        """Replace what the file holds of a training, atomically."""
        self._arrays = {name: a for name, a in self._arrays.items() if not name.startswith(f"{training}.")}
        self._states[training] = state
        stored = self._arrays | {f"{training}.{name}": np.ascontiguousarray(a) for name, a in arrays.items()}
        if state["finished"]:  # the next training keeps it in the file
            self._arrays = {name: a.copy() for name, a in stored.items()}
        metadata = {_MARK: self.mark, _STATES: json.dumps(self._states)}
        write_file(self.path, [save(stored, metadata | {_CHECKSUM: _checksum(stored, metadata)})])
        self._written = time.monotonic()

    def _read(self) -> None:
        try:
            with open_regular(self.path) as file:
                metadata, places = read_header(file)
                arrays = empty(places)
                computed = checksum([*fill(file, places, arrays), _texts(metadata)]) if _MARK in metadata else ""
        except OSError as error:
            raise PatchvoteError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        except ValueError as error:
            raise PatchvoteError(f"{self.path} is not a checkpoint of SNBNL: {error}.") from None
        if _MARK not in metadata:
            raise PatchvoteError(f"{self.path} is not a checkpoint of SNBNL: move it away, or name another.")
        try:
            states = json.loads(metadata[_STATES])
            sound = metadata[_CHECKSUM] == computed and _TRAININGS(states) is None
        except (KeyError, ValueError, RecursionError):
            sound = False
        if not sound:
            raise self.damaged()
        if metadata[_MARK] != self.mark:
            raise PatchvoteError(
                f"{self.path} is of another training (other photos, classes or settings): move it away, or name "
                "another."
            )
        self._arrays, self._states = arrays, states


def training_mark(
    data: TrainingData,
    settings: Mapping[str, Any],
    classes: npt.NDArray[Any],
    arrays: Iterable[npt.NDArray[Any]],
) -> str:
    """Return a hash of what a training depends on: images, classes, weights, settings, block sizes, and more arrays."""
    settings = dict(settings) | {"limits": [data.limits.block, data.limits.whole]}
    source = data.source
    content = [np.array([source.content()])] if isinstance(source, Store) else list(vars(source).values())
    texts = json.dumps([settings, classes.tolist()], sort_keys=True, default=str).encode()
    return checksum([texts, data.labels, data.weight, *content, *arrays])


def _are_prototypes(array: npt.NDArray[Any], shape: tuple[int, ...]) -> bool:
    return array.shape == shape and array.dtype in (np.float32, np.float64) and bool(np.isfinite(array).all())


def _checksum(arrays: Arrays, metadata: Mapping[str, str]) -> str:
    return checksum([*contents(arrays), _texts(metadata)])


def _texts(metadata: Mapping[str, str]) -> bytes:
    return json.dumps([metadata.get(_MARK, ""), metadata.get(_STATES, "")]).encode()
