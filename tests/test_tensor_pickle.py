from __future__ import annotations

import io
import pickle
import struct
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from patchvote import NetworkError
from patchvote.networks import EMBEDDED, efficientnet
from patchvote.networks.tensor_pickle import read_tensors


@pytest.mark.parametrize("network", EMBEDDED)
def test_every_tensor_equals_what_torch_reads(network):
    torch = pytest.importorskip("torch")
    path = efficientnet.weights_file(network)
    expected = torch.load(path, map_location="cpu", weights_only=True)
    ours = read_tensors(path)
    assert list(ours) == list(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(ours[name], tensor.numpy())


def test_views_into_a_shared_storage_are_cut_right(tmp_path):
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32)
    tensors = OrderedDict(a=base.view(4, 6), b=base.view(4, 6).t(), c=base[5:9], d=base.view(2, 3, 4)[:, 1:])
    torch.save(tensors, tmp_path / "x.pth", _use_new_zipfile_serialization=False)
    for name, array in read_tensors(tmp_path / "x.pth").items():
        np.testing.assert_array_equal(array, tensors[name].numpy())


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def legacy(body: bytes) -> bytes:
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    return b"".join(pickle.dumps(part, 2) for part in head) + body


def test_a_file_that_asks_for_anything_but_tensors_runs_nothing(tmp_path):
    trace = tmp_path / "trace"
    path = tmp_path / "evil.pth"
    path.write_bytes(legacy(pickle.dumps({"weights": Evil(trace)}, 2)))
    with pytest.raises(NetworkError, match="is refused"):
        read_tensors(path)
    path.write_bytes(pickle.dumps(Evil(trace), 2))
    with pytest.raises(NetworkError, match="is refused"):
        read_tensors(path)
    assert not trace.exists()


def legacy_tensor(offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *, kind: str = "storage") -> bytes:
    """Return a legacy file of one tensor in a storage of the six numbers 0 to 5."""
    torch = pytest.importorskip("torch")

    class Storage:
        pass

    class Tensor:
        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, (Storage(), offset, shape, strides, False, OrderedDict())

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return (kind, torch.FloatStorage, "0", "cpu", 6) if isinstance(value, Storage) else None

    body = io.BytesIO()
    Pickler(body, 2).dump(OrderedDict(weights=Tensor()))
    numbers = struct.pack("<q", 6) + np.arange(6, dtype="<f4").tobytes()
    return legacy(body.getvalue() + pickle.dumps(["0"], 2) + numbers)


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [(0, (7,), (1,)), (3, (4,), (1,)), (0, (2, 3), (4, 1)), (5, (2,), (-1,)), (0, (-1,), (1,)), (0, (3, 0), (1, 1))],
)
def test_a_tensor_never_reads_memory_beside_its_numbers(tmp_path, offset, shape, strides):
    path = tmp_path / "x.pth"
    path.write_bytes(legacy_tensor(0, (2, 3), (3, 1)))
    np.testing.assert_array_equal(read_tensors(path)["weights"], [[0, 1, 2], [3, 4, 5]])
    path.write_bytes(legacy_tensor(offset, shape, strides))
    with pytest.raises(NetworkError, match="x.pth is not a file of tensors: a tensor of shape .* reaches outside its"):
        read_tensors(path)


def test_a_reference_to_anything_but_numbers_is_refused(tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(legacy_tensor(0, (6,), (1,), kind="module"))
    with pytest.raises(NetworkError, match="refers to a 'module', only storages are supported: it is refused"):
        read_tensors(path)


def test_a_pickle_of_another_kind_is_told_apart_by_its_first_number(tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(pickle.dumps(7, 2) + legacy_tensor(0, (6,), (1,)))
    with pytest.raises(NetworkError, match="it does not begin as a legacy torch file does"):
        read_tensors(path)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "count"])
def test_damaged_files_are_refused(tmp_path, damage):
    data = efficientnet.weights_file("efficientnet-lite0").read_bytes()
    if damage == "count":
        # The first storage is preceded by its number of elements: 32 * 3 * 3 * 3 of the stem, or of any other tensor.
        where = data.index(struct.pack("<q", 32 * 27))
        data = data[:where] + struct.pack("<q", 5) + data[where + 8 :]
    path = tmp_path / "x.pth"
    path.write_bytes({"empty": b"", "text": b"hello", "cut": data[: len(data) // 2], "count": data}[damage])
    with pytest.raises(NetworkError, match="is not a file of tensors"):
        read_tensors(path)
