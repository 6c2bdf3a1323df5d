"""Read the tensors of a legacy torch file without torch, and without running code from the file.

Such a file is a few pickles followed by raw storages. A pickle may name any function to call; this reader accepts four
names, which only make arrays, and refuses all others. It is never used for files of users, only for weights from
packages, whose digest is known.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError

_MAGIC = 0x1950A86A20F9469CFC6C  # first and second pickle of the format
_PROTOCOL = 1001


class _Storage:
    """A block of numbers that tensors are views of; filled when the raw bytes are read."""

    def __init__(self, dtype: np.dtype[Any], count: int) -> None:
        self.dtype = dtype
        self.count = count
        self.data: npt.NDArray[Any] = np.empty(0, dtype)


class _Tensor:
    """Storage, offset, shape and strides of a tensor whose numbers are not read yet."""

    def __init__(self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides

    def array(self) -> npt.NDArray[Any]:
        flat = self.storage.data[self.offset :]
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        if min(self.shape, default=1) < 1 or min(self.strides, default=0) < 0 or span > flat.size:
            raise NetworkError(f"a tensor of shape {self.shape} reaches outside its storage of {flat.size} numbers.")
        strides = tuple(s * flat.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides).copy()


def _rebuild(storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> _Tensor:
    return _Tensor(storage, offset, shape, strides)


_KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch", "LongStorage"): np.dtype("<i8"),
}


class _TensorsOnly(pickle.Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise NetworkError(f"the file uses '{module}.{name}', which is not a tensor: it is refused.") from None

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _device, count, *_ = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise NetworkError(f"the file refers to a {kind!r}, only storages are supported: it is refused.")
        return self.storages.setdefault(key, _Storage(dtype, count))


def read_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the named arrays of a legacy torch file.

    Raises
    ------
    NetworkError
        The file has another format, is cut short, or holds anything but tensors.
    """
    with io.BytesIO(path.read_bytes()) as file:
        try:
            if _TensorsOnly(file).load() != _MAGIC or _TensorsOnly(file).load() != _PROTOCOL:
                raise NetworkError("it does not begin as a legacy torch file does.")
            _TensorsOnly(file).load()  # sizes of C types for the writer; not needed, the dtypes above are explicit
            reader = _TensorsOnly(file)
            tensors = reader.load()
            for key in _TensorsOnly(file).load():
                storage = reader.storages[key]
                (count,) = np.frombuffer(file.read(8), "<i8")
                if count != storage.count:
                    raise NetworkError(f"storage {key} holds {count} numbers instead of {storage.count}.")
                storage.data = np.frombuffer(file.read(storage.count * storage.dtype.itemsize), storage.dtype)
            return {str(name): tensor.array() for name, tensor in tensors.items()}
        except NetworkError as error:
            raise NetworkError(f"{path.name} is not a file of tensors: {error}") from None
        except Exception as error:  # a damaged pickle can raise nearly anything
            raise NetworkError(f"{path.name} is not a file of tensors: {error!r}") from error
