"""Open an ONNX file of a user as a network.

The preprocessing must be given, in arguments or in a TOML file beside it (`net.toml` beside `net.onnx`); graphs that
patchvote wrote hold it themselves. Everything else (axes, size, dimension, stride) is read from the graph or found by
running it.
"""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from ..utils.reading import parse_toml, read_toml
from ..utils.schema import brief
from ..utils.terminal import nearest
from .base import Activation, NetworkSpec, Preprocessing, stride_of
from .graph import cut, output_names
from .graph_file import check_operations, read_graph
from .onnx_backbone import OnnxBackbone
from .session import Session

SETTINGS = "patchvote"  # key of a graph's metadata that holds the text of its TOML file
_MAX_SIDE = 4096  # pixels of the input; the largest networks take about 1,000
_MAX_PIXELS = 1 << 26  # of a batch, where the graph fixes its size: 0.8 GB as float32


@dataclasses.dataclass(frozen=True)
class OnnxSettings:
    """Settings that are not part of a graph; the keys of the TOML file beside it.

    Parameters
    ----------
    mean, scale : float or three floats
        Mean and scale of each channel, in the network's channel order: pixels become ``(x - mean) / scale``.
    color : {"RGB", "BGR"}
        Channel order of the network.
    output : str, optional
        Name of the tensor to read, which may be any tensor of the graph; its output by default, if it has only one.
    size : int, optional
        Side of the square input that the network was trained on; 224 where the graph does not fix it.
    stride : int, optional
        Pixels between two cells of the feature map; the nearest power of two by default.
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
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise NetworkError(f"{name} must be a whole number above 0, got {brief(value)}.")
            if value > _MAX_SIDE:
                raise NetworkError(f"{name} may be up to {_MAX_SIDE:,} pixels, got {brief(value)}.")
        if self.output is not None and not isinstance(self.output, str):
            raise NetworkError(f"output must be the name of a tensor, got {brief(self.output)}.")

    @classmethod
    def beside(cls, path: Path) -> OnnxSettings:
        """Read the TOML file beside the ONNX file `path`; return the defaults where there is none."""
        file = path.with_suffix(".toml")
        if not _exists(file):
            return cls()
        try:
            return cls._of(read_toml(file), file)
        except OSError as error:
            raise NetworkError(f"{file} cannot be read: {error.strerror or error}.") from None
        except ValueError as error:
            raise NetworkError(f"{file} is not a TOML file: {error}") from None

    @classmethod
    def inside(cls, model: Any, path: Path) -> OnnxSettings:
        """Read the settings that a graph holds; return the defaults where there are none."""
        text = next((entry.value for entry in model.metadata_props if entry.key == SETTINGS), "")
        try:
            return cls._of(parse_toml(text), path)
        except ValueError as error:
            raise NetworkError(f"the settings in {path} are damaged: {error}") from None

    @classmethod
    def _of(cls, settings: dict[str, Any], file: Path) -> OnnxSettings:
        known = [field.name for field in dataclasses.fields(cls)]
        for key in settings:
            if key not in known:
                raise NetworkError(f"{file} has an unknown key {brief(key)}.{nearest(key[:40], known)}")
        return cls(**settings)

    def preprocessing(self, layout: str) -> Preprocessing:
        """Check the settings and return them as a `Preprocessing`."""
        if self.color not in ("RGB", "BGR"):
            raise NetworkError(f"color must be 'RGB' or 'BGR', got {brief(self.color)}.")
        return Preprocessing(
            mean=_three("mean", self.mean),
            scale=_three("scale", self.scale),
            color="RGB" if self.color == "RGB" else "BGR",
            layout="NCHW" if layout == "NCHW" else "NHWC",
        )


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises for names that no file can have


def _three(name: str, value: Any) -> tuple[float, float, float]:
    try:
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), (3,))
    except (TypeError, ValueError, OverflowError):
        raise NetworkError(f"{name} must be a number or three numbers, got {brief(value)}.") from None
    if not np.isfinite(values).all() or (name == "scale" and not values.all()):
        raise NetworkError(f"{name} must be finite{' and not 0' if name == 'scale' else ''}, got {brief(value)}.")
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
        ONNX file.
    activation : {"after", "before"}, default "after"
        Whether to read the output tensor itself, or the input of the activation that computes it.
    threads : int, default 1
        Number of threads per call.
    device : {"cpu", "cuda", "mps"}, default "cpu"
        Device of ONNX Runtime.
    **settings
        Fields of `OnnxSettings`, which override those of the TOML file beside `path`.

    Raises
    ------
    NetworkError
        The file, the settings or the TOML file beside it cannot be used; the message gives the reason.
    """
    path = Path(path)
    beside = OnnxSettings.beside(path)  # before the graph, which may take a moment to read
    model, digest = read_graph(path)
    if not _exists(path.with_suffix(".toml")):
        beside = OnnxSettings.inside(model, path)
    chosen = dataclasses.replace(beside, **settings)
    output = chosen.output or _only_output(model, path)
    spec = NetworkSpec(str(path), 0, 0, None, Preprocessing(), activation, digest, output)

    def part(model: Any) -> bytes:
        wanted = cut(model, output, activation)
        check_operations(wanted, path)
        return serialised(wanted, path)

    backbone = OnnxBackbone(spec, part(model), threads, device, bounded=True, read=lambda: part(read_graph(path)[0]))
    backbone.spec = _completed(spec, backbone.session, chosen, path)
    return backbone


def _only_output(model: Any, path: Path) -> str:
    """Return the name of the output of a graph that must have only one."""
    names = output_names(model)
    if len(names) != 1:
        shown = ", ".join(names)[:500]
        raise NetworkError(
            f"{path} has {len(names)} outputs ({shown}): say which to read, with output=… or in a line "
            f'output = "…" of {path.with_suffix(".toml").name} beside it.'
        )
    return names[0]


def _completed(spec: NetworkSpec, session: Session, settings: OnnxSettings, path: Path) -> NetworkSpec:
    """Complete the specification of a network from its graph, its settings and a trial run."""
    layout, fixed = read_input(session, path)
    size = settings.size or (max(fixed) if fixed else 224)
    preprocessing = settings.preprocessing(layout)

    # The shapes in a graph are often missing or symbolic, so an image goes through it. The image is twice as wide as
    # high if possible, which distinguishes rows and columns of the map from its channels. A graph without a fixed size
    # may still work with one size only.
    sizes = [fixed] if fixed else [(size, 2 * size), (size, size)]
    result, height, width = trial_run(session, preprocessing, sizes, path)
    dim, rows, output_layout = read_output(result, height, width, spec.output, path)
    if fixed is None and rows is not None and height == width:  # the wide image failed
        fixed = (height, width)
    return dataclasses.replace(
        spec,
        dim=dim,
        size=size,
        stride=None if rows is None else settings.stride or stride_of(height, rows),
        preprocessing=preprocessing,
        fixed_size=fixed,
        output_layout="NHWC" if output_layout == "NHWC" else "NCHW",
    )


def load(name: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> OnnxBackbone:
    """Load the ONNX file of this path; the engine of names that end in .onnx."""
    return open_onnx(name, activation=activation, threads=threads, device=device)


def serialised(model: Any, path: Path) -> bytes:
    """Return a graph as bytes; `path` is its file, for messages."""
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # what the protobuf writer raises differs between its versions
        raise NetworkError(f"{path} is too large for one graph: {error}") from None


def trial_run(
    session: Session, preprocessing: Preprocessing, sizes: list[tuple[int, int]], path: Path
) -> tuple[npt.NDArray[np.float32], int, int]:
    """Run the graph on a blank image of the first size that works; return the output, and the image's height and width.

    The shape of the output might depend on the image's content, so the graph also runs on noise of that size.
    """
    problem: Exception | None = None
    noise = np.random.default_rng(0)
    for height, width in sizes:
        try:
            blank = session.run(preprocessing(np.zeros((1, height, width, 3), np.uint8)))
            other = session.run(preprocessing(noise.integers(0, 256, (1, height, width, 3), np.uint8)))
            if other.shape != blank.shape:
                raise NetworkError(
                    f"{path} returns the shape {blank.shape} for a blank image and {other.shape} for noise: the shape "
                    "must depend on the size of the image alone."
                )
            return blank, height, width
        except NetworkError:
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no common base
            problem = error
    height, width = sizes[-1]
    raise NetworkError(f"{path} cannot take an image of {width} x {height} pixels: {problem}") from problem


def read_output(
    result: npt.NDArray[np.float32], height: int, width: int, output: str, path: Path
) -> tuple[int, int | None, str]:
    """Return the number of features and of rows of the output for one image, and the order of its axes."""
    shape = result.shape
    if result.size == 0:
        raise NetworkError(f"the tensor {output!r} of {path} has the shape {shape} for one image: nothing is in it.")
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


def read_input(session: Session, path: Path) -> tuple[str, tuple[int, int] | None]:
    """Return the order of the input's axes, and its height and width where they are fixed."""
    inputs = session.inputs
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type != "tensor(float)":
        shown = "; ".join(f"{value.name}: {value.type} {value.shape}" for value in inputs)[:500]
        raise NetworkError(f"{path} must take one float32 input of 4 axes, a batch of colour images; it takes {shown}.")
    shape = inputs[0].shape
    layout = "NHWC" if shape[3] == 3 and shape[1] != 3 else "NCHW"
    height, width = shape[2:] if layout == "NCHW" else shape[1:3]
    sides = [side for side in (height, width) if isinstance(side, int)]
    batch = shape[0] if isinstance(shape[0], int) else 1
    if not all(1 <= side <= _MAX_SIDE for side in sides) or not 1 <= batch * math.prod(sides) <= _MAX_PIXELS:
        raise NetworkError(
            f"{path} takes {batch} images of {width} x {height} pixels at once; sides may have up to {_MAX_SIDE:,} "
            f"pixels, and all images of one call {_MAX_PIXELS:,}."
        )
    return layout, (height, width) if len(sides) == 2 else None
