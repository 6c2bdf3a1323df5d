"""Run an ONNX graph with ONNX Runtime: the embedded networks, and any file that a user brings.

A user's file needs its preprocessing described, in arguments or in a small TOML file beside it (`net.toml` beside
`net.onnx`); everything else (axes, size, dimension, stride) is read from the graph or found by running it once.
"""

from __future__ import annotations

import dataclasses
import hashlib
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
    """A graph in ONNX Runtime.

    Parameters
    ----------
    spec : NetworkSpec
        What the network is like.
    graph : bytes
        The serialised graph, cut so that its only output is the descriptors.
    threads : int, default 1
        Threads of one call. One is best where several photos are at work at once; use all cores where one photo is
        to be answered as soon as possible.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Where ONNX Runtime computes.
    """

    def __init__(self, spec: NetworkSpec, graph: bytes, threads: int = 1, device: str = "cpu") -> None:
        self.spec = spec
        self._session = _session(graph, threads, spec.name, device)

    def __call__(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Describe ``(n, h, w, 3)`` RGB images."""
        return self.describe(self.spec.preprocessing(images))

    def describe(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Describe images that are already in the network's own numbers and layout."""
        try:
            result = _run(self._session, tensor)
            if self.spec.stride is None:
                return result.reshape(len(tensor), self.spec.dim)
            result = result.transpose(0, 2, 3, 1) if self.spec.output_layout == "NCHW" else result
            if result.shape[::3] != (len(tensor), self.spec.dim):
                raise ValueError(f"it gave {result.shape}")
            return result
        except Exception as error:  # ONNX Runtime's exceptions have no common base
            raise NetworkError(f"{self.spec.name} cannot take an input of shape {tensor.shape}: {error}") from error


def _run(session: Any, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    value = session.get_inputs()[0]
    batch, count = value.shape[0], len(tensor)
    if not isinstance(batch, int) or batch == count:
        return np.asarray(session.run(None, {value.name: tensor})[0], dtype=np.float32)
    # A graph frozen to one batch size takes the images in portions of it, the last one filled up.
    filled = -(-count // batch) * batch
    tensor = np.concatenate([tensor, np.zeros((filled - count, *tensor.shape[1:]), np.float32)])
    parts = [session.run(None, {value.name: tensor[start : start + batch]})[0] for start in range(0, filled, batch)]
    return np.concatenate(parts).astype(np.float32)[:count]


_PROVIDERS = {"cpu": (), "cuda": ("CUDAExecutionProvider",), "mps": ("CoreMLExecutionProvider",)}


def _providers(device: str, there: list[str]) -> list[str]:
    """Return what ONNX Runtime shall compute with, the CPU last: it takes what others cannot."""
    if device not in _PROVIDERS:
        raise NetworkError(f"device must be one of {', '.join(_PROVIDERS)}, got {device!r}.")
    for provider in _PROVIDERS[device]:
        if provider not in there:
            how = "pip install onnxruntime-gpu in place of onnxruntime" if device == "cuda" else "it is part of macOS"
            raise NetworkError(f"ONNX Runtime cannot use {device!r} here: it has no {provider} ({how}).")
    return [*_PROVIDERS[device], "CPUExecutionProvider"]


def _session(graph: bytes, threads: int, name: str, device: str = "cpu") -> Any:
    import onnxruntime

    providers = _providers(device, onnxruntime.get_available_providers())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Photos come in many shapes: a plan of the memory kept for each of them doubles the memory and saves no time.
    options.enable_mem_pattern = False
    # Threads that spin while they wait take the time that decoding needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(graph, options, providers=providers)
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

    def __post_init__(self) -> None:
        for name in ("size", "stride"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise NetworkError(f"{name} must be a whole number above 0, got {value!r}.")
        if self.output is not None and not isinstance(self.output, str):
            raise NetworkError(f"output must be the name of a tensor, got {self.output!r}.")

    @classmethod
    def beside(cls, path: Path) -> OnnxSettings:
        """Read the TOML file beside the ONNX file `path`; the defaults where there is none."""
        beside = path.with_suffix(".toml")
        if not beside.exists():
            return cls()
        try:
            told: dict[str, Any] = tomllib.loads(beside.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
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
    device: str = "cpu",
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
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Where ONNX Runtime computes.
    **settings
        The fields of `OnnxSettings`; each replaces what the TOML file beside `path` says.

    Raises
    ------
    NetworkError
        The file, the settings or the TOML file beside it cannot be used; the message says why.
    """
    path = Path(path)
    told = dataclasses.replace(OnnxSettings.beside(path), **settings)
    model, digest = read_graph(path)
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
    backbone = OnnxBackbone(
        NetworkSpec(str(path), 0, 0, None, Preprocessing(), activation, digest, output), graph, threads, device
    )
    layout, fixed = _read_input(backbone._session, path)
    size = told.size or (max(fixed) if fixed else 224)
    preprocessing = told.preprocessing(layout)

    # The graph's own shapes are often missing or symbolic, so it is asked: a blank image goes through, twice as wide as
    # high where it may be, so that the map's rows and columns can be told from its channels.
    height, width = fixed or (size, 2 * size)
    try:
        result = _run(backbone._session, preprocessing(np.zeros((1, height, width, 3), np.uint8)))
    except Exception:  # ONNX Runtime's exceptions have no common base
        height, width = fixed or (size, size)  # a graph that names no size may still work with one only
        try:
            result = _run(backbone._session, preprocessing(np.zeros((1, height, width, 3), np.uint8)))
        except Exception as error:
            raise NetworkError(f"{path} cannot take an image of {width} x {height} pixels: {error}") from error
    dim, rows, output_layout = _read_output(result, height, width, output, path)
    stride = None if rows is None else told.stride or max(1, int(2 ** np.round(np.log2(height / rows))))
    backbone.spec = dataclasses.replace(
        backbone.spec,
        dim=dim,
        size=size,
        stride=stride,
        preprocessing=preprocessing,
        fixed_size=fixed,
        output_layout="NHWC" if output_layout == "NHWC" else "NCHW",
    )
    return backbone


def read_graph(path: Path) -> tuple[Any, str]:
    """Read an ONNX file, and the digest of it and of the files beside it that hold its weights, where it has such."""
    import onnx

    try:
        digest = file_digest(path)
        model = onnx.load(path, load_external_data=False)
        locations = {
            entry.value
            for tensor in model.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        if locations:
            onnx.load_external_data_for_model(model, str(path.parent))
            digests = [digest, *(file_digest(path.parent / location) for location in sorted(locations))]
            digest = hashlib.sha256("".join(digests).encode()).hexdigest()
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror or error}. Is the path right?") from None
    except Exception as error:  # what the protobuf reader raises differs between its versions
        raise NetworkError(f"{path} is not an ONNX file: {error}") from None
    return model, digest


def _read_output(
    result: npt.NDArray[np.float32], height: int, width: int, output: str, path: Path
) -> tuple[int, int | None, str]:
    """Tell from the answer to one image how many features it has, how many rows, and in which order its axes stand."""
    shape = result.shape
    if result.ndim >= 2 and result.size == shape[0] * max(shape[1:]):
        return max(shape[1:]), None, "NCHW"
    if result.ndim == 4:
        # Rows and columns are the two neighbouring axes whose proportions are nearest to the image's.
        misfit = {
            layout: abs(np.log((columns / rows) / (width / height)))
            for layout, rows, columns in (("NCHW", shape[2], shape[3]), ("NHWC", shape[1], shape[2]))
        }
        layout = min(misfit, key=misfit.__getitem__)
        return (shape[1], shape[2], layout) if layout == "NCHW" else (shape[3], shape[1], layout)
    raise NetworkError(
        f"the tensor {output!r} of {path} has the shape {shape} for one image: neither a vector nor a feature map of "
        "rows and columns. Name another tensor with output=…"
    )


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
