"""Sessions of ONNX Runtime, with limits for graphs that come from a file.

A graph is a program: it can compute for hours and request any amount of memory. Graphs that this package builds run
without limits. A graph from a file has a time limit for its preparation and for every call, and all such graphs
together may use a share of the machine's memory. Libraries of custom operations are never loaded.

ONNX Runtime can be stopped between two operations, but not within one. A call with a limit therefore runs in a daemon
thread, which is abandoned after the limit and on Ctrl-C.
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

_PREPARING_SECONDS = 120.0  # per session, which includes constant folding; most large networks take one or two
_CALL_SECONDS = 60.0  # per call, plus as many per megapixel; slow networks on slow machines take a tenth
_GRACE_SECONDS = 5.0  # between the request to stop and abandoning the thread
_MEMORY_SHARE = 0.5  # of the machine's memory, for all graphs from files together

_at_work: set[threading.Thread] = set()  # threads of `within` that have not ended, including abandoned ones

_PROVIDERS = {"cpu": (), "cuda": ("CUDAExecutionProvider",), "mps": ("CoreMLExecutionProvider",)}


class Session:
    """A graph that is ready to run.

    Parameters
    ----------
    graph : bytes
        Serialised graph; its only input is a batch of images.
    name : str
        Name of the graph in error messages.
    threads : int, default 1
        Number of threads per call.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device of ONNX Runtime.
    bounded : bool, default False
        Whether time and memory are limited.

    Raises
    ------
    NetworkError
        ONNX Runtime cannot run the graph, or takes too long to prepare it.
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
            with contextlib.suppress(AttributeError):  # older versions cannot be stopped
                options.set_load_cancellation_flag(True)

        try:
            self._session = within(_PREPARING_SECONDS, make, stop, f"{name} cannot be prepared") if bounded else make()
        except NetworkError:
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no common base
            raise NetworkError(f"{name} is not a graph that ONNX Runtime can run: {error}") from error
        _check_used(device, self._session.get_providers())

    @property
    def inputs(self) -> list[Any]:
        """Inputs of the graph, each with name, type and shape."""
        return list(self._session.get_inputs())

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the graph: text by key."""
        return dict(self._session.get_modelmeta().custom_metadata_map)

    def run(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the first output; raises the exceptions of ONNX Runtime, and `NetworkError` after the time limit."""
        return self.run_all(tensor)[0]

    def run_all(self, tensor: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
        """Return all outputs, as `run` does the first."""
        value = self._session.get_inputs()[0]
        batch, count = value.shape[0], len(tensor)
        if not isinstance(batch, int) or batch == count:
            return [np.asarray(output, dtype=np.float32) for output in self._call({value.name: tensor})]
        # A graph with a fixed batch size gets the images in batches of this size; the last one is padded.
        padded = -(-count // batch) * batch
        tensor = np.concatenate([tensor, np.zeros((padded - count, *tensor.shape[1:]), np.float32)])
        parts = [self._call({value.name: tensor[start : start + batch]}) for start in range(0, padded, batch)]
        return [np.concatenate(outputs).astype(np.float32)[:count] for outputs in zip(*parts, strict=True)]

    def _call(self, feeds: dict[str, npt.NDArray[np.float32]]) -> Any:
        if not self._bounded:
            return self._session.run(None, feeds)
        if self._abandoned:
            raise NetworkError(f"{self._name} does not answer: an earlier call could not be stopped.")
        import onnxruntime

        options = onnxruntime.RunOptions()

        def stop() -> None:
            options.terminate = True

        limit, call = sum(map(_seconds, feeds.values())), functools.partial(self._session.run, None, feeds, options)
        try:
            return within(limit, call, stop, f"{self._name} does not answer")
        except EndlessWorkError:
            self._abandoned = True
            raise


class EndlessWorkError(NetworkError):
    """A network took too long, and did not stop on request."""


def within(seconds: float, work: Callable[[], T], stop: Callable[[], None], what: str) -> T:
    """Return the result of `work`, or raise a `NetworkError` that begins with `what` after this many seconds.

    Work that does not end after a call of `stop` continues in a thread that does not keep the process alive.

    Raises
    ------
    NetworkError
        The work took longer.
    EndlessWorkError
        The work took longer, and has not stopped.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again in the waiting thread
            future.set_exception(error)
        finally:
            _at_work.discard(thread)

    thread = threading.Thread(target=run, daemon=True, name="patchvote-network")
    _at_work.add(thread)
    thread.start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # the work ended at the last moment, or raised a TimeoutError itself
            return future.result()
        stop()
        thread.join(_GRACE_SECONDS)
        kind = EndlessWorkError if thread.is_alive() else NetworkError
        raise kind(f"{what}: it took more than {seconds:.0f} seconds.") from None
    except KeyboardInterrupt:
        stop()
        raise


def exit_past_work(code: int) -> None:
    """Exit the process at once where a network is still running: at a normal exit, its thread would crash Python.

    Called by the command line at the very end. Does not return where a thread of `within` has not ended.
    """
    if any(thread.is_alive() for thread in list(_at_work)):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, or the disk full
                stream.flush()
        os._exit(code)


def _seconds(tensor: npt.NDArray[Any]) -> float:
    """Return the time limit of a call with these images."""
    return _CALL_SECONDS * (1 + tensor.size / 3e6)


def check_device(device: str) -> None:
    """Refuse a device that ONNX Runtime does not have here.

    Raises
    ------
    NetworkError
        There is no such device, or this build of ONNX Runtime does not support it.
    """
    import onnxruntime

    _providers(device, onnxruntime.get_available_providers())


def _providers(device: str, available: list[str]) -> list[str]:
    """Return the execution providers of a device; the CPU comes last, for operations that the device does not have."""
    if device not in _PROVIDERS:
        raise NetworkError(f"device must be one of {', '.join(_PROVIDERS)}, got {device!r}.")
    for provider in _PROVIDERS[device]:
        if provider not in available:
            hint = "pip install onnxruntime-gpu in place of onnxruntime" if device == "cuda" else "it is part of macOS"
            raise NetworkError(f"ONNX Runtime cannot use {device!r} here: it has no {provider} ({hint}).")
    return [*_PROVIDERS[device], "CPUExecutionProvider"]


def _check_used(device: str, used: list[str]) -> None:
    """Refuse a session without the device: ONNX Runtime takes the CPU instead, and tells nobody."""
    for provider in _PROVIDERS[device]:
        if provider not in used:
            raise NetworkError(
                f"ONNX Runtime cannot use {device!r} here: its {provider} does not start. Is there such a device, and "
                f"does its driver work? Without it, the network runs on the CPU: leave {device!r} out."
            )


def _options(onnxruntime: Any, threads: int, bounded: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; in a raw log, names from a file could control the terminal
    # Photos have many shapes: a memory pattern per shape doubles the memory and saves no time.
    options.enable_mem_pattern = False
    # Threads that spin while they wait take processor time from decoding.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if bounded:
        _limit_memory()
        options.add_session_config_entry("session.use_env_allocators", "1")
    return options


@functools.cache
def _limit_memory() -> None:
    """Make one allocator with a limit for all bounded sessions: ONNX Runtime has no limit per session."""
    import onnxruntime

    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    limit = onnxruntime.OrtArenaCfg({"max_mem": int(_MEMORY_SHARE * memory())})
    with contextlib.suppress(Exception):  # the host program may have registered one already, which is then used
        onnxruntime.create_and_register_allocator(place, limit)
