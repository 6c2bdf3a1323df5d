from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save

from patchvote import PatchvoteError
from patchvote.nn.learner import read_checkpoint, write_checkpoint

TENSORS = {"now.tail.w": torch.arange(60.0).reshape(3, 20), "optimiser.0.step": torch.tensor(7.0)}
HISTORY = [{"pass": 1, "loss": 0.5, "held_out_accuracy": 0.75}]


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    write_checkpoint(tmp_path / "c", TENSORS, "mark", HISTORY)
    kept, history = read_checkpoint(tmp_path / "c", "mark")
    assert history == HISTORY
    assert kept.keys() == TENSORS.keys()
    assert all(torch.equal(kept[name], TENSORS[name]) for name in TENSORS)


def test_of_three_hundred_flipped_bits_none_changes_a_checkpoint_unnoticed(tmp_path):
    write_checkpoint(tmp_path / "c", TENSORS, "mark", HISTORY)
    data = (tmp_path / "c").read_bytes()
    refused = 0
    for bit in np.random.default_rng(0).choice(8 * len(data), 300, replace=False).tolist():
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "c").write_bytes(damaged)
        try:
            kept, history = read_checkpoint(tmp_path / "c", "mark")
        except PatchvoteError:
            refused += 1
        else:
            assert history == HISTORY
            assert all(torch.equal(kept[name], TENSORS[name]) for name in TENSORS)
    assert refused > 250


@pytest.mark.parametrize("history", [HISTORY, {"pass": 1}, [{"pass": "first"}], 7])
def test_a_checkpoint_without_a_checksum_is_refused(history, tmp_path):
    told = {"patchvote_fine_tuning": "mark", "history": json.dumps(history)}
    (tmp_path / "c").write_bytes(save(TENSORS, told))
    with pytest.raises(PatchvoteError, match="is damaged: remove it to begin anew"):
        read_checkpoint(tmp_path / "c", "mark")
