"""Run an ONNX graph with ONNX Runtime: the base of embedded networks, converted networks and ONNX files of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from .base import NetworkSpec
from .session import Session

if TYPE_CHECKING:
    import onnx


class OnnxBackbone:
    """A graph in ONNX Runtime.

    Parameters
    ----------
    spec : NetworkSpec
        Specification of the network.
    graph : bytes
        Serialised graph, cut so that its only output is the descriptors.
    threads : int, default 1
        Number of threads per call. One is best where several photos are processed at once; use all cores for the lowest
        latency of a single photo.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device of ONNX Runtime.
    bounded : bool, default False
        Whether time and memory are limited, as for every graph that comes from a file.
    read : function, optional
        Function that returns the serialised network, so that it need not stay in memory; `graph` by default.
    channels_last : bool, default False
        Whether the channels of the feature map come last in `graph`, whatever layout the network itself has.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        graph: bytes,
        threads: int = 1,
        device: str = "cpu",
        *,
        bounded: bool = False,
        read: Callable[[], bytes] | None = None,
        channels_last: bool = False,
    ) -> None:
        self.spec = spec
        self._channels_last = channels_last
        self._read = read or (lambda: graph)
        self.session = Session(graph, spec.name, threads=threads, device=device, bounded=bounded)

    def graph(self) -> onnx.ModelProto:
        """Return the network, from a batch of preprocessed images to the descriptors."""
        import onnx

        return onnx.load_from_string(self._read())

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe ``(n, h, w, 3)`` RGB images."""
        return self.describe(self.spec.preprocessing(images))

    def describe(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Describe images that are already preprocessed."""
        return self.describe_all(tensor)[0]

    def describe_all(self, tensor: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
        """Describe images that are already preprocessed; return all outputs of the graph, descriptors first."""
        try:
            result, *others = self.session.run_all(tensor)
            if self.spec.stride is None:
                return [result.reshape(len(tensor), self.spec.dim), *others]
            if self.spec.output_layout == "NCHW" and not self._channels_last:
                result = result.transpose(0, 2, 3, 1)
            if result.shape[::3] != (len(tensor), self.spec.dim):
                raise ValueError(f"its output has the shape {result.shape}")
            return [result, *others]
        except NetworkError:
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no common base
            raise NetworkError(f"{self.spec.name} cannot take an input of shape {tensor.shape}: {error}") from error
