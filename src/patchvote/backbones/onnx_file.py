"""Run an ONNX graph with ONNX Runtime: the embedded networks, and any file that a user brings.

A user's file needs its preprocessing described, in arguments or in a small TOML file beside it (`net.toml` beside
`net.onnx`); everything else (axes, size, dimension, stride) is read from the graph or found by running it once.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from ..files import file_digest
from ..names import nearest
from .base import Activation, NetworkSpec, Preprocessing
from .graph import cut, output_names


class OnnxBackbone:
    """A graph in ONNX Runtime, on the CPU.

    Parameters
    ----------
    spec : NetworkSpec
        What the network is like.
    graph : bytes
        The serialised graph, cut so that its only output is the descriptors.
    threads : int, default 1
        Threads of one call. One is best where several photos are at work at once; use all cores where one photo is
        to be answered as soon as possible.
    """

    def __init__(self, spec: NetworkSpec, graph: bytes, threads: int = 1) -> None:
        self.spec = spec
        self._session = _session(graph, threads, spec.name)
        self._input = self._session.get_inputs()[0]

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe ``(n, h, w, 3)`` RGB images."""
        return self.describe(self.spec.preprocessing(images))

    def describe(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Describe images that are already in the network's own numbers and layout."""
        batch = self._input.shape[0]
        if not isinstance(batch, int):
            return self._axes(self._run(tensor))
        # A graph frozen to one batch size takes the images in portions of it, the last one filled up.
        count = len(tensor)
        filled = -(-count // batch) * batch
        tensor = np.concatenate([tensor, np.zeros((filled - count, *tensor.shape[1:]), np.float32)])
        parts = [self._run(tensor[start : start + batch]) for start in range(0, filled, batch)]
        return self._axes(np.concatenate(parts))[:count]

    def _run(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        try:
            (result,) = self._session.run(None, {self._input.name: tensor})
        except Exception as error:  # ONNX Runtime's exceptions have no common base
            raise NetworkError(f"{self.spec.name} cannot take an input of shape {tensor.shape}: {error}") from error
        return np.asarray(result, dtype=np.float32)

    def _axes(self, result: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if self.spec.stride is None:
            return result.reshape(len(result), self.spec.dim)
        return result.transpose(0, 2, 3, 1) if self.spec.preprocessing.layout == "NCHW" else result


def _session(graph: bytes, threads: int, name: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Photos come in many shapes: a plan of the memory kept for each of them doubles the memory and saves no time.
    options.enable_mem_pattern = False
    # Threads that spin while they wait take the time that decoding needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        raise NetworkError(f"{name} is not a graph that ONNX Runtime can run: {error}") from error


@dataclasses.dataclass(frozen=True)
class OnnxSettings:
    """What a graph does not say of itself; the keys of the TOML file beside it.

    Parameters
    ----------
    mean, scale : float or three floats
        Pixels become ``(x - mean) / scale``, in the network's channel order.
    color : {"RGB", "BGR"}
        The network's channel order.
    output : str, optional
        The tensor to read; may be left out where the graph has one output. Any tensor inside the graph will do.
    size : int, optional
        Side of the square input that the network was trained on; 224 where the graph does not fix it.
    stride : int, optional
        Pixels between two cells of the feature map, where the nearest power of two is not it.
    """

    mean: float | tuple[float, float, float] = 0.0
    scale: float | tuple[float, float, float] = 1.0
    color: str = "RGB"
    output: str | None = None
    size: int | None = None
    stride: int | None = None

    @classmethod
    def beside(cls, path: Path) -> OnnxSettings:
        """Read the TOML file beside the ONNX file `path`; the defaults where there is none."""
        beside = path.with_suffix(".toml")
        if not beside.exists():
            return cls()
        try:
            told: dict[str, Any] = tomllib.loads(beside.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise NetworkError(f"{beside} is not a TOML file: {error}") from None
        known = [field.name for field in dataclasses.fields(cls)]
        for key in told:
            if key not in known:
                raise NetworkError(f"{beside} has an unknown key {key!r}.{nearest(key, known)}")
        return cls(**told)

    def preprocessing(self, layout: str) -> Preprocessing:
        """Check the settings and turn them into a `Preprocessing`."""
        if self.color not in ("RGB", "BGR"):
            raise NetworkError(f"color must be 'RGB' or 'BGR', got {self.color!r}.")
        return Preprocessing(
            mean=_three("mean", self.mean),
            scale=_three("scale", self.scale),
            color="RGB" if self.color == "RGB" else "BGR",
            layout="NCHW" if layout == "NCHW" else "NHWC",
        )


def _three(name: str, value: Any) -> tuple[float, float, float]:
    try:
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), (3,))
    except (TypeError, ValueError):
        raise NetworkError(f"{name} must be a number or three numbers, got {value!r}.") from None
    if not np.isfinite(values).all() or (name == "scale" and not values.all()):
        raise NetworkError(f"{name} must be finite{' and not 0' if name == 'scale' else ''}, got {value!r}.")
    return float(values[0]), float(values[1]), float(values[2])


def open_onnx(
    path: str | Path,
    *,
    activation: Activation = "after",
    threads: int = 1,
    **settings: Any,
) -> OnnxBackbone:
    """Open an ONNX file as a backbone.

    Parameters
    ----------
    path : path
        The ONNX file.
    activation : {"after", "before"}, default "after"
        Read the output tensor as it is, or before the activation that it comes out of.
    threads : int, default 1
        Threads of one call.
    **settings
        The fields of `OnnxSettings`; each replaces what the TOML file beside `path` says.

    Raises
    ------
    NetworkError
        The file, the settings or the TOML file beside it cannot be used; the message says why.
    """
    import onnx

    path = Path(path)
    told = dataclasses.replace(OnnxSettings.beside(path), **settings)
    try:
        digest = file_digest(path)
        model = onnx.load(path)
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror}. Is the path right?") from None
    except Exception as error:  # what the protobuf reader raises differs between its versions
        raise NetworkError(f"{path} is not an ONNX file: {error}") from None

    output = told.output
    if output is None:
        names = output_names(model)
        if len(names) != 1:
            raise NetworkError(
                f"{path} has {len(names)} outputs ({', '.join(names)}): say which to read, with output=… or in a line "
                f'output = "…" of {path.with_suffix(".toml").name} beside it.'
            )
        output = names[0]
    graph = cut(model, output, activation).SerializeToString()
    session = _session(graph, threads, path.name)
    layout, fixed = _read_input(session, path)
    size = told.size or (max(fixed) if fixed else 224)

    # The graph's own shapes are often missing or symbolic, so it is asked: one blank image goes through.
    preprocessing = told.preprocessing(layout)
    probe = NetworkSpec(path.name, 0, size, 0, preprocessing, activation, digest, output, fixed)
    height, width = fixed or (size, size)
    blank = preprocessing(np.zeros((1, height, width, 3), np.uint8))
    result = OnnxBackbone(probe, graph, threads)._run(np.repeat(blank, _batch_size(session), axis=0))
    if result.ndim == 4 and max(result.shape[2:] if layout == "NCHW" else result.shape[1:3]) > 1:
        rows = result.shape[2] if layout == "NCHW" else result.shape[1]
        stride = told.stride or int(2 ** np.round(np.log2(height / rows)))
        dim = result.shape[1] if layout == "NCHW" else result.shape[3]
    elif result.ndim >= 2 and result.size == len(result) * max(result.shape[1:]):
        stride, dim = None, max(result.shape[1:])
    else:
        raise NetworkError(
            f"the tensor {output!r} of {path} has the shape {result.shape} for one image: neither a vector nor a "
            "feature map of rows and columns. Name another tensor with output=…"
        )
    spec = dataclasses.replace(probe, name=str(path), stride=stride, dim=dim)
    return OnnxBackbone(spec, graph, threads)


def _batch_size(session: Any) -> int:
    batch = session.get_inputs()[0].shape[0]
    return batch if isinstance(batch, int) else 1


def _read_input(session: Any, path: Path) -> tuple[str, tuple[int, int] | None]:
    """Find out in which order the input's axes stand, and whether its height and width are fixed."""
    inputs = session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type != "tensor(float)":
        got = "; ".join(f"{value.name}: {value.type} {value.shape}" for value in inputs)
        raise NetworkError(f"{path} must take one float32 input of 4 axes, a batch of colour images; it takes {got}.")
    shape = inputs[0].shape
    layout = "NHWC" if shape[3] == 3 and shape[1] != 3 else "NCHW"
    height, width = shape[2:] if layout == "NCHW" else shape[1:3]
    fixed = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    return layout, fixed
