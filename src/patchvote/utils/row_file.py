"""RowFile: a matrix in a file, of which rows are read when they are needed.

It has the shape, the type and the indexing of an array, and holds nothing in memory. Rows are read into ordinary
memory, which is freed with them: the pages of a memory map would count as memory of the process until the system takes
them back, and a file that somebody shortens would end the process instead of raising an error.
"""

from __future__ import annotations

import errno
import io
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PatchvoteError
from .files import remove_abandoned, temporary_file

_BLOCK = 1 << 22  # bytes that are read at once where a caller needs all rows, one after the other


class RowFile:
    """A matrix in a file.

    The file stays open as long as the object exists, so it may be renamed, replaced or removed meanwhile.

    Parameters
    ----------
    file : file opened for reading
        File that holds the matrix, row after row.
    dtype : str
        Type of the numbers.
    shape : tuple of int
        Number of rows and of columns.
    start : int, default 0
        Byte at which the first row begins.
    lock : lock, optional
        Lock that all matrices in one file share: reading one moves the position of the file.

    Raises
    ------
    PatchvoteError
        When rows are read: the file has become shorter, or its disk fails.

    Examples
    --------
    >>> rows = temporary_rows([np.eye(3), np.ones((2, 3))], np.float32, (5, 3))
    >>> rows.shape, rows[1:4].tolist()
    ((5, 3), [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    >>> rows.take(np.array([4, 0]))[:].tolist()
    [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    """

    ndim = 2

    def __init__(
        self,
        file: io.BufferedReader,
        dtype: npt.DTypeLike,
        shape: tuple[int, ...],
        start: int = 0,
        lock: threading.Lock | None = None,
    ) -> None:
        self.dtype, self.shape = np.dtype(dtype), (int(shape[0]), int(shape[1]))
        self._file, self._start, self._lock = file, start, lock or threading.Lock()
        self._chosen: npt.NDArray[np.int64] | None = None  # rows of the file, where only some are used

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Number of bytes of all rows."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, key: slice | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Read rows: a slice, an array of row numbers, or a mask."""
        if isinstance(key, slice):
            first, stop, step = key.indices(len(self))
            numbers = np.arange(first, max(first, stop), step)
        else:
            numbers = np.flatnonzero(key) if key.dtype == bool else key
        numbers = numbers if self._chosen is None else self._chosen[numbers]
        rows: npt.NDArray[Any] = np.empty((len(numbers), self.shape[1]), self.dtype)
        width, done = self.shape[1] * self.dtype.itemsize, 0
        cuts = np.flatnonzero(np.diff(numbers) != 1) + 1  # runs of consecutive rows are read at once
        try:
            with self._lock:
                for cut in (*cuts.tolist(), len(numbers)):
                    if cut > done:
                        read_at(self._file, self._start + int(numbers[done]) * width, rows[done:cut])
                    done = cut
        except (EOFError, OSError) as error:
            raise PatchvoteError(f"{self._file.name} can no longer be read: {error}. Was it changed?") from error
        return rows

    def take(self, rows: npt.NDArray[np.int64]) -> RowFile:
        """Return a view with only these rows, in this order; nothing is read."""
        part = RowFile(self._file, self.dtype, (len(rows), self.shape[1]), self._start, self._lock)
        part._chosen = rows if self._chosen is None else self._chosen[rows]
        return part

    def blocks(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all rows, a few megabytes at a time."""
        count = max(1, _BLOCK // max(1, self.shape[1] * self.dtype.itemsize))
        for start in range(0, len(self), count):
            yield self[start : start + count]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (self[:],)  # in another process, it is an ordinary array

    def __deepcopy__(self, _: Any) -> RowFile:
        return self  # it cannot be changed


def blocks_of(array: Any) -> Iterable[npt.NDArray[Any]]:
    """Return an array in blocks of rows: one if it is in memory, many if it is in a file."""
    return array.blocks() if isinstance(array, RowFile) else [array]


def read_at(file: io.BufferedReader, position: int, array: npt.NDArray[Any]) -> None:
    """Fill an array with the bytes of a file from a position on; the file's buffer, one more copy, is bypassed.

    Raises
    ------
    EOFError
        The file ends before the array is full.
    """
    file.raw.seek(position, io.SEEK_SET)
    rest = array.reshape(-1).view(np.uint8).data
    while rest:
        count = file.raw.readinto(rest)
        if not count:
            raise EOFError("the file has become shorter")
        rest = rest[count:]


def temporary_rows(parts: Iterable[npt.NDArray[Any]], dtype: npt.DTypeLike, shape: tuple[int, int]) -> RowFile:
    """Write the rows of several arrays to a temporary file; it disappears with the object, or with the process.

    Parameters
    ----------
    parts : iterable of arrays
        Rows, written in the given order.
    dtype : dtype
        Type of the numbers in the file.
    shape : tuple of int
        Number of rows of all parts together, and of columns.

    Raises
    ------
    PatchvoteError
        The system's temporary folder has no room for them, or there is none.
    """
    folder, size = Path("the system's temporary folder"), math.prod(shape) * np.dtype(dtype).itemsize
    try:
        folder = Path(tempfile.gettempdir())
        remove_abandoned(folder)
        if (free := shutil.disk_usage(folder).free) < size:
            raise OSError(errno.ENOSPC, f"it has {free / 1e9:,.1f} GB free")
        with temporary_file(folder) as (path, file):
            for part in parts:
                file.write(np.ascontiguousarray(part, dtype).data)
            file.flush()
            return RowFile(path.open("rb"), dtype, shape)
    except OSError as error:  # also when the file is closed, with what was still in its buffer
        raise PatchvoteError(
            f"a temporary file of {size / 1e9:,.1f} GB cannot be written to {folder}: {error.strerror or error}. The "
            "environment variable TMPDIR can name another folder."
        ) from error


def opened_again(file: io.BufferedReader) -> io.BufferedReader:
    """Return the same file, whatever its name leads to by now; it stays open when the first one is closed."""
    return open(file.name, "rb", opener=lambda *_: os.dup(file.fileno()))
