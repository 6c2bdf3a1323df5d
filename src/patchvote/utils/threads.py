"""Threads of the BLAS libraries that numpy, scipy and faiss bring along.

These threads wait actively for their next product. While the network runs on all cores, that takes processor time from
it: a third of that of `predict`, before this module. Products of single bags are small, and faster on one thread.

A limit of threadpoolctl restores the number that it found, and since version 3.8 only from the thread that set it. Two
limits that overlap in different threads leave one thread behind for good, so limits are counted here: the first sets
one thread, and the last one restores.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

_BRING_BLAS = ("numpy", "scipy.linalg", "faiss")  # each loads a BLAS library of its own

_lock = threading.Lock()
_holders = 0
_before: list[tuple[Any, int]] | None = None  # libraries and their numbers of threads, while these are limited


_SMALL = 2e10  # multiplications up to which threads of BLAS cost more by waiting than they save: about half a second


def blas_threads_for(multiplications: float) -> contextlib.AbstractContextManager[None]:
    """Let BLAS libraries use all threads for a large amount of work within the block, and one for a small amount.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.ones((30, 500))
    >>> with blas_threads_for(30 * 30 * 500):
    ...     products = vectors @ vectors.T
    """
    return contextlib.nullcontext() if multiplications > _SMALL else one_blas_thread()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS libraries use one thread, in the whole process, until the last of all such blocks has ended.

    A library that is built on OpenMP, as that of faiss may be, has a number per calling thread: there, the first block
    limits its own thread only.

    Examples
    --------
    >>> import numpy as np
    >>> with one_blas_thread():
    ...     product = np.ones((2, 3)) @ np.ones((3, 2))
    """
    _take()
    try:
        yield
    finally:
        _give_back()


def _take() -> None:
    global _holders, _before
    with _lock:
        if _holders == 0:
            if _before is None:  # else an interrupt left some libraries limited, and these numbers are still right
                _before = [(library, library.get_num_threads()) for library in _libraries()]
            _set([(library, 1) for library, _ in _before])
        _holders += 1


def _give_back() -> None:
    global _holders, _before
    with _lock:
        _holders -= 1
        if _holders == 0 and _before is not None:
            _set(_before)
            _before = None
            _take_control()  # and leave it: other packages may set limits from any thread


def _set(numbers: list[tuple[Any, int]]) -> None:
    _take_control()
    for library, number in numbers:
        library.set_num_threads(number)


def _take_control() -> None:
    """Let the calling thread set numbers of threads, whichever thread did so before."""
    import threadpoolctl

    controllers: Any = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(controllers, "clear_controlling_thread"):  # since version 3.8
        controllers.clear_controlling_thread(force=True)


def _libraries() -> Any:
    return _found(tuple(name for name in _BRING_BLAS if name in sys.modules))


@functools.cache
def _found(loaded: tuple[str, ...]) -> Any:
    """Return the libraries, looked for again only where a package brought another one: it takes milliseconds."""
    from threadpoolctl import ThreadpoolController  # a command that needs no limit starts without it

    return ThreadpoolController().select(user_api="blas").lib_controllers
