"""Run graphs with ONNX Runtime, with limits for graphs that come from a file.

A graph is a program: it can compute for hours and request any amount of memory. A graph from a file has a time limit
for its preparation and for every call, and all such graphs together may use a share of the machine's memory. ONNX
Runtime can be stopped between two operations, but not within one: a call with a limit runs in a daemon thread, which is
abandoned after the limit and on Ctrl-C. Libraries of custom operations are never loaded.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from ..utils.machine import memory
from .base import NetworkSpec

if TYPE_CHECKING:
    import onnx

T = TypeVar("T")

_PREPARING_SECONDS = 120.0  # per session, which includes constant folding; most large networks take one or two
_CALL_SECONDS = 60.0  # per call, plus as many per megapixel; slow networks on slow machines take a tenth
_GRACE_SECONDS = 5.0  # between the request to stop and abandoning the thread
_MEMORY_SHARE = 0.5  # of the machine's memory, for all graphs from files together

_at_work: set[threading.Thread] = set()  # threads of `within` that have not ended, including abandoned ones

_PROVIDERS = {"cpu": (), "cuda": ("CUDAExecutionProvider",), "mps": ("CoreMLExecutionProvider",)}


class Session:
    """A serialised graph that is ready to run; its only input is a batch of images."""

    def __init__(
        self, graph: bytes, name: str, *, threads: int = 1, device: str = "cpu", bounded: bool = False
    ) -> None:
        import onnxruntime

        check_device(device)
        options = _options(onnxruntime, threads, bounded)
        self._name, self._bounded, self._abandoned = name, bounded, False
        providers = [*_PROVIDERS[device], "CPUExecutionProvider"]  # the CPU for operations that the device lacks
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
        if not set(_PROVIDERS[device]) <= set(self._session.get_providers()):  # it took the CPU instead, silently
            raise NetworkError(f"ONNX Runtime cannot use {device!r} here: its {_PROVIDERS[device][0]} does not start.")
        self.inputs: list[Any] = self._session.get_inputs()  # each with name, type and shape
        self.output_type: str = self._session.get_outputs()[0].type  # such as "tensor(float)"
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map

    def run(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the output; `NetworkError` if ONNX Runtime fails, or takes longer than a bounded session may."""
        batch, count = self.inputs[0].shape[0], len(tensor)
        try:
            if not isinstance(batch, int) or batch == count:
                return np.asarray(self._call(tensor), dtype=np.float32)
            # A graph with a fixed batch size gets the images in batches of this size; the last one is padded.
            padded = -(-count // batch) * batch
            tensor = np.concatenate([tensor, np.zeros((padded - count, *tensor.shape[1:]), np.float32)])
            parts = [self._call(tensor[start : start + batch]) for start in range(0, padded, batch)]
            return np.concatenate(parts).astype(np.float32)[:count]
        except NetworkError:
            raise
        except Exception as error:  # as above
            raise NetworkError(f"{self._name} cannot take an input of the shape {tensor.shape}: {error}") from error

    def _call(self, tensor: npt.NDArray[np.float32]) -> Any:
        feeds = {self.inputs[0].name: tensor}
        if not self._bounded:
            return self._session.run(None, feeds)[0]
        if self._abandoned:
            raise NetworkError(f"{self._name} does not answer: an earlier call could not be stopped.")
        import onnxruntime

        options = onnxruntime.RunOptions()

        def stop() -> None:
            options.terminate = True

        call = functools.partial(self._session.run, None, feeds, options)
        try:
            limit = _CALL_SECONDS * (1 + tensor.size / 3e6)
            return within(limit, call, stop, f"{self._name} does not answer")[0]
        except EndlessWorkError:
            self._abandoned = True
            raise


class OnnxBackbone:
    """A session whose output is the descriptors, in the layout of `spec` or with its channels last.

    `read` returns the graph, from a batch of preprocessed images to the descriptors: it does not stay in memory.
    """

    def __init__(
        self, spec: NetworkSpec, session: Session, read: Callable[[], onnx.ModelProto], *, channels_last: bool = False
    ) -> None:
        self.spec, self.session, self.graph = spec, session, read
        self._channels_last = channels_last or spec.output_layout == "NHWC"

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe ``(n, h, w, 3)`` RGB images."""
        return self.describe(self.spec.preprocessing(images))

    def describe(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Describe images that are already preprocessed."""
        result = self.session.run(tensor)
        if self.spec.stride is None:
            return result.reshape(len(tensor), self.spec.dim)
        return result if self._channels_last else result.transpose(0, 2, 3, 1)


class EndlessWorkError(NetworkError):
    """A network took too long, and did not stop on request."""


def within(seconds: float, work: Callable[[], T], stop: Callable[[], None], what: str) -> T:
    """Return the result of `work`, or raise a `NetworkError` that begins with `what` after this many seconds.

    Work that does not end after a call of `stop` continues in a daemon thread; that is an `EndlessWorkError`.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # raised again in the waiting thread
            _at_work.discard(thread)
            future.set_exception(error)
        else:
            _at_work.discard(thread)  # before anybody has the result, and may exit
            future.set_result(result)

    thread = threading.Thread(target=run, daemon=True, name="patchvote-network")
    _at_work.add(thread)
    thread.start()
    try:
        return future.result(seconds)
    except TimeoutError:
        stop()
        thread.join(_GRACE_SECONDS)
        kind = EndlessWorkError if thread.is_alive() else NetworkError
        raise kind(f"{what}: it took more than {seconds:.0f} seconds.") from None
    except KeyboardInterrupt:
        stop()
        raise


def exit_past_work(code: int) -> None:
    """Exit the process at once where a thread of `within` has not ended: a normal exit would crash Python."""
    if any(thread.is_alive() for thread in list(_at_work)):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, or the disk full
                stream.flush()
        os._exit(code)


def check_device(device: str) -> None:
    """Refuse a device that ONNX Runtime does not have here."""
    import onnxruntime

    if device not in _PROVIDERS:
        raise NetworkError(f"device must be one of {', '.join(_PROVIDERS)}, got {device!r}.")
    for provider in set(_PROVIDERS[device]) - set(onnxruntime.get_available_providers()):
        hint = "pip install onnxruntime-gpu in place of onnxruntime" if device == "cuda" else "it is part of macOS"
        raise NetworkError(f"ONNX Runtime cannot use {device!r} here: it has no {provider} ({hint}).")


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
