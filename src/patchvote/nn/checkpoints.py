"""Checkpoints of fine-tuning: tensors by name, the history so far, and a checksum over both.

They are safetensors files, since torch's own files are pickles, which may run any code.
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
    """Write a checkpoint atomically.

    Parameters
    ----------
    path : path
        File to write.
    tensors : dict of tensors
        State of the training, by name.
    mark : str
        Hash of photos, network and settings, by which a training recognises its checkpoint.
    history : list of dict
        Loss and accuracy of each pass.
    """
    stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = {_MARK: mark, _HISTORY: json.dumps(history)}
    write_file(path, [save(stored, metadata | {_CHECKSUM: _checksum(stored, metadata)})])


def read_checkpoint(path: Path, mark: str) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Read a file of `write_checkpoint`, and verify it.

    Raises
    ------
    PatchvoteError
        The file is no checkpoint, is damaged, or belongs to another training.
    """
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        computed = _checksum(tensors, metadata)
        history = json.loads(metadata.get(_HISTORY, "[]"))
    except Exception as error:  # what safetensors raises differs between its versions
        raise PatchvoteError(f"{path} is not a checkpoint of fine-tuning: {error}.") from None
    if metadata.get(_CHECKSUM) != computed or _PASSES(history) is not None:
        raise PatchvoteError(f"{path} is damaged: remove it to begin anew, or restore it from a backup.")
    if metadata.get(_MARK) != mark:
        raise PatchvoteError(
            f"{path} is of another fine-tuning (other photos, network or settings): run that one again to continue it, "
            "or remove the file to begin anew."
        )
    return tensors, history


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    texts = [metadata.get(_MARK, ""), metadata.get(_HISTORY, "")]
    return checksum([*contents({name: value.numpy() for name, value in tensors.items()}), json.dumps(texts).encode()])
