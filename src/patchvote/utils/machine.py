"""What the machine has (cores, memory, BLAS threads, installed plugins), and how this process shares it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_BRING_BLAS = ("numpy", "scipy.linalg", "faiss")  # each loads a BLAS library of its own
_FEW_PRODUCTS = 2e10  # multiplications up to which threads of BLAS cost more by waiting than they save: half a second

_lock = threading.Lock()
_holders = 0  # blocks that limit BLAS to one thread at the moment
_limit: Any = None  # of threadpoolctl, while there are such blocks


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Return the bytes of memory that this process may use: those of the machine, or of its container."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no such call
        total = 8 << 30  # assumed
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # there is no container, or it has no limit ("max")
        return total


def forget_peak_memory() -> None:
    """Reset the peak memory of this process, where the system supports it (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Return the largest number of bytes that this process has used so far."""
    return _status("VmHWM")


def resident_memory() -> int:
    """Return the number of bytes that this process has in memory now; its peak where the system does not tell."""
    return _status("VmRSS")


def _status(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
    except OSError:  # not Linux
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def give_back_memory() -> None:
    """Return freed memory to the system, which glibc would otherwise keep for the thread that freed it."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library, or Windows
        ctypes.CDLL(None).malloc_trim(0)


def plugins(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, of all installed packages."""
    import importlib.metadata  # takes a twentieth of the start of a command, and is rarely needed

    return list(importlib.metadata.entry_points(group=group))


def blas_threads_for(multiplications: float) -> contextlib.AbstractContextManager[None]:
    """Let BLAS libraries use all threads for a large amount of work within the block, and one for a small amount."""
    return contextlib.nullcontext() if multiplications > _FEW_PRODUCTS else one_blas_thread()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS libraries use one thread, in the whole process, until the last of all such blocks has ended.

    Threads of BLAS wait actively for their next product, and take a third of the processor from the network. A limit of
    threadpoolctl restores the number that it found, so two that overlap in different threads would leave one thread
    behind for good. Therefore limits are counted: the first sets one thread, and the last restores.
    """
    global _holders, _limit
    with _lock:
        if _holders == 0:
            _take_control()
            _limit = _blas_libraries(tuple(name for name in _BRING_BLAS if name in sys.modules)).limit(limits=1)
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                _take_control()
                _limit.restore_original_limits()
                _take_control()  # and leave it: other packages may set limits from any thread


def _take_control() -> None:
    """Let the calling thread set numbers of threads, whichever thread did so before (see threadpoolctl 3.8)."""
    import threadpoolctl

    controllers: Any = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(controllers, "clear_controlling_thread"):
        controllers.clear_controlling_thread(force=True)


@functools.cache
def _blas_libraries(loaded: tuple[str, ...]) -> Any:
    """Return the BLAS libraries, looked for again only where a package brought another one: it takes milliseconds."""
    from threadpoolctl import ThreadpoolController  # a command that needs no limit starts without it

    return ThreadpoolController().select(user_api="blas")
