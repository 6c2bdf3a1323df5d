"""Checkpoints of fine-tuning: tensors by name, the history so far, and a checksum over both.

They are safetensors, since torch's own files are pickles, which may run anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import PatchvoteError
from ..utils.checksums import checksum
from ..utils.files import write_file
from ..utils.reading import check_regular
from ..utils.schema import listed, number, record
from ..utils.tensors import contents

_MARK, _HISTORY, _CHECKSUM = "patchvote_fine_tuning", "history", "checksum"
_NUMBER = number(-1e300, 1e300)
_PASSES = listed(record({"pass": _NUMBER, "loss": _NUMBER, "held_out_accuracy": _NUMBER}))


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], mark: str, history: list[dict[str, float]]) -> None:
    """Write a checkpoint, whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    tensors : dict of tensors
        What training goes on from.
    mark : str
        Hash of all that a checkpoint must agree on with the training that it is read by.
    history : list of dict
        Loss and accuracy of each pass.
    """
    kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    told = {_MARK: mark, _HISTORY: json.dumps(history)}
    write_file(path, [save(kept, told | {_CHECKSUM: _checksum(kept, told)})])


def read_checkpoint(path: Path, mark: str) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Read what `write_checkpoint` wrote; a checkpoint of before, which has no checksum, is taken as it is.

    Raises
    ------
    PatchvoteError
        It is no checkpoint, is damaged, or is of another training.
    """
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            told = file.metadata() or {}
            kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found = _checksum(kept, told)
        history = json.loads(told.get(_HISTORY, "[]"))
    except Exception as error:  # what safetensors raises differs between its versions
        raise PatchvoteError(f"{path} is not a checkpoint of fine-tuning: {error}.") from None
    if told.get(_CHECKSUM, found) != found or _PASSES(history) is not None:
        raise PatchvoteError(f"{path} is damaged: remove it to begin anew, or take it from a backup.")
    if told.get(_MARK) != mark:
        raise PatchvoteError(
            f"{path} is of another fine-tuning (other photos, network or settings): move it away, or name another."
        )
    return kept, history


def _checksum(tensors: Mapping[str, Tensor], told: Mapping[str, str]) -> str:
    words = [told.get(_MARK, ""), told.get(_HISTORY, "")]
    return checksum([*contents({name: value.numpy() for name, value in tensors.items()}), json.dumps(words).encode()])
