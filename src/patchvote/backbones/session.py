"""Sessions of ONNX Runtime, with bounds for graphs that come from a file.

A graph is a program: it can compute for hours and ask for any amount of memory. What the package builds itself runs as
it is. A graph from a file gets a limit of time for being prepared and for every call, and all such graphs together get
a share of the machine's memory. Libraries of further operations are never loaded.

ONNX Runtime looks between two operations whether it is to stop, never within one. A call that has a limit therefore
runs in a thread that nobody has to wait for: past the limit, and on Ctrl-C, the thread is left behind.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from ..utils.machine import memory

T = TypeVar("T")

_PREPARING_SECONDS = 120.0  # most large networks take one or two; constants are computed meanwhile
_CALL_SECONDS = 60.0  # of one call, and as many again per megapixel: slow networks on slow machines take a tenth
_GRACE_SECONDS = 5.0  # for work to end once it was told to
_MEMORY_SHARE = 0.5  # of the machine's memory, for all graphs that come from files

_at_work: set[threading.Thread] = set()  # threads of `within` that have not ended, abandoned ones included

_PROVIDERS = {"cpu": (), "cuda": ("CUDAExecutionProvider",), "mps": ("CoreMLExecutionProvider",)}


class Session:
    """A graph that is ready to run.

    Parameters
    ----------
    graph : bytes
        The serialised graph; its only input is a batch of images, its first output is read.
    name : str
        What messages call it.
    threads : int, default 1
        Threads of one call.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Where ONNX Runtime computes.
    bounded : bool, default False
        Whether time and memory are limited.

    Raises
    ------
    NetworkError
        ONNX Runtime cannot run it, or not in time.
    """

    def __init__(
        self, graph: bytes, name: str, *, threads: int = 1, device: str = "cpu", bounded: bool = False
    ) -> None:
        import onnxruntime

        providers = _providers(device, onnxruntime.get_available_providers())
        options = _options(onnxruntime, threads, bounded)
        self._name, self._bounded, self._abandoned = name, bounded, False
        make = functools.partial(onnxruntime.InferenceSession, graph, options, providers=providers)

        def stop() -> None:
            with contextlib.suppress(AttributeError):  # older versions cannot be told to
                options.set_load_cancellation_flag(True)

        try:
            self._session = within(_PREPARING_SECONDS, make, stop, f"{name} cannot be prepared") if bounded else make()
        except NetworkError:
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no common base
            raise NetworkError(f"{name} is not a graph that ONNX Runtime can run: {error}") from error

    @property
    def inputs(self) -> list[Any]:
        """What the graph takes: name, type and shape of each input."""
        return list(self._session.get_inputs())

    @property
    def metadata(self) -> dict[str, str]:
        """What the graph says of itself."""
        return dict(self._session.get_modelmeta().custom_metadata_map)

    def run(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Run the graph; raises whatever ONNX Runtime raises, and `NetworkError` when time is up."""
        value = self._session.get_inputs()[0]
        batch, count = value.shape[0], len(tensor)
        if not isinstance(batch, int) or batch == count:
            return np.asarray(self._call({value.name: tensor}), dtype=np.float32)
        # A graph frozen to one batch size takes the images in portions of it, the last one filled up.
        filled = -(-count // batch) * batch
        tensor = np.concatenate([tensor, np.zeros((filled - count, *tensor.shape[1:]), np.float32)])
        parts = [self._call({value.name: tensor[start : start + batch]}) for start in range(0, filled, batch)]
        return np.concatenate(parts).astype(np.float32)[:count]

    def _call(self, feeds: dict[str, npt.NDArray[np.float32]]) -> Any:
        if not self._bounded:
            return self._session.run(None, feeds)[0]
        if self._abandoned:
            raise NetworkError(f"{self._name} does not answer: an earlier call could not even be stopped.")
        import onnxruntime

        options = onnxruntime.RunOptions()

        def stop() -> None:
            options.terminate = True

        limit, call = sum(map(_seconds, feeds.values())), functools.partial(self._session.run, None, feeds, options)
        try:
            return within(limit, call, stop, f"{self._name} does not answer")[0]
        except EndlessWorkError:
            self._abandoned = True
            raise


class EndlessWorkError(NetworkError):
    """A network took too long, and goes on although it was told to stop."""


def within(seconds: float, work: Callable[[], T], stop: Callable[[], None], what: str) -> T:
    """Return what `work` returns, or raise a `NetworkError` that begins with `what` after so many seconds.

    Work that does not end when it is told to stop goes on in a thread that does not keep the process alive.

    Raises
    ------
    NetworkError
        It took longer.
    EndlessWorkError
        It took longer, and is still going on.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # it belongs to the one who waits
            future.set_exception(error)
        finally:
            _at_work.discard(thread)

    thread = threading.Thread(target=run, daemon=True, name="patchvote-network")
    _at_work.add(thread)
    thread.start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # it ended at the last moment, or this is its own error
            return future.result()
        stop()
        thread.join(_GRACE_SECONDS)
        kind = EndlessWorkError if thread.is_alive() else NetworkError
        raise kind(f"{what}: it took more than {seconds:.0f} seconds.") from None
    except KeyboardInterrupt:
        stop()
        raise


def exit_past_work(code: int) -> None:
    """End the process at once where a network is still at work: nobody waits for it, and Python would crash at its end.

    Called by the command line when all else is done. It does not return where a thread of `within` has not ended.
    """
    if any(thread.is_alive() for thread in list(_at_work)):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, or full
                stream.flush()
        os._exit(code)


def _seconds(tensor: npt.NDArray[Any]) -> float:
    """Return how long a call with these images may take."""
    return _CALL_SECONDS * (1 + tensor.size / 3e6)


def _providers(device: str, there: list[str]) -> list[str]:
    """Return what ONNX Runtime shall compute with, the CPU last: it takes what others cannot."""
    if device not in _PROVIDERS:
        raise NetworkError(f"device must be one of {', '.join(_PROVIDERS)}, got {device!r}.")
    for provider in _PROVIDERS[device]:
        if provider not in there:
            how = "pip install onnxruntime-gpu in place of onnxruntime" if device == "cuda" else "it is part of macOS"
            raise NetworkError(f"ONNX Runtime cannot use {device!r} here: it has no {provider} ({how}).")
    return [*_PROVIDERS[device], "CPUExecutionProvider"]


def _options(onnxruntime: Any, threads: int, bounded: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; printed raw, names from a file could steer the terminal
    # Photos come in many shapes: a plan of the memory kept for each of them doubles the memory and saves no time.
    options.enable_mem_pattern = False
    # Threads that spin while they wait take the time that decoding needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if bounded:
        _limit_memory()
        options.add_session_config_entry("session.use_env_allocators", "1")
    return options


@functools.cache
def _limit_memory() -> None:
    """Make one allocator for all sessions that ask for it; a limit of its own per session is not to be had."""
    import onnxruntime

    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    limit = onnxruntime.OrtArenaCfg({"max_mem": int(_MEMORY_SHARE * memory())})
    with contextlib.suppress(Exception):  # the host program may have made one already, and then that one counts
        onnxruntime.create_and_register_allocator(place, limit)
