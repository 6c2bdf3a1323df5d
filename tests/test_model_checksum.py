from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from helpers.small_models import ALL_KINDS, header_of, remade, same, with_header
from patchvote import ModelError, PatchvoteError
from patchvote.cli.info import model_info
from patchvote.models.file import checksum_of, read_model, write_model
from patchvote.models.model import Model


def written(model: Model, folder: Path) -> Path:
    write_model(model, folder / "m")
    return folder / "m"


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_of_three_hundred_flipped_bits_none_changes_a_model_unnoticed(kind, tmp_path):
    model = ALL_KINDS[kind]
    data = written(model, tmp_path).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for bit in rng.choice(8 * len(data), 300, replace=False).tolist():
        (tmp_path / "flipped").write_bytes(flipped(data, bit))
        try:
            back = read_model(tmp_path / "flipped")
        except ModelError:
            refused += 1
        else:
            assert same(back, model), f"bit {bit}"
    assert refused > 250  # the others hit what means nothing, such as the name of the checksum


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_bit_of_every_array_counts(kind, tmp_path):
    model = ALL_KINDS[kind]
    data = written(model, tmp_path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    rng = np.random.default_rng(1)
    for bit in rng.choice(np.arange(8 * start, 8 * len(data)), 100, replace=False).tolist():
        (tmp_path / "flipped").write_bytes(flipped(data, bit))
        with pytest.raises(ModelError, match="is damaged: its content does not have the checksum"):
            read_model(tmp_path / "flipped")


def test_a_checksum_that_was_taken_off_is_missed(tmp_path):
    whole = written(ALL_KINDS["snbnl"], tmp_path)
    bare = with_header(whole, tmp_path / "bare", json.dumps(header_of(whole)), signed=False)
    with pytest.raises(ModelError, match="does not have the checksum"):
        read_model(bare)


def test_info_tells_the_checksum_that_was_verified(tmp_path, capsys):
    path = written(ALL_KINDS["moment-ridge"], tmp_path)
    model_info(path, card=False, photos=False, as_json=False)
    assert f"checksum   {checksum_of(path)}, verified" in capsys.readouterr().out
    model_info(path, card=False, photos=False, as_json=True)
    assert json.loads(capsys.readouterr().out)["checksum"] == checksum_of(path)


def test_the_checksum_depends_on_types_and_shapes_and_words(tmp_path):
    model = ALL_KINDS["snbnl"]
    kinds = [
        model,
        dataclasses.replace(model, card="# Another card"),
        remade(model, arrays={**model.scorer.arrays, "mean": model.scorer.arrays["mean"].astype(np.float32)}),
        remade(model, arrays={**model.scorer.arrays, "scale": model.scorer.arrays["mean"] ** 2 + 0.1}),
    ]
    assert len({checksum_of(written(one, tmp_path)) for one in kinds}) == len(kinds)


def test_what_is_no_model_has_no_checksum_either(tmp_path):
    (tmp_path / "text").write_text("hello")
    with pytest.raises(PatchvoteError, match="not a model"):
        checksum_of(tmp_path / "text")
