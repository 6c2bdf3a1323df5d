"""Make a graph with any one output return a feature map or a vector, and measure the specification by trial runs.

Shapes in a graph are often missing or symbolic. Tokens of a transformer become a map by nodes that are added to the
graph: class, register and other tokens are before those of the patches and are left out.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import NetworkError
from ..utils.onnx_graph import GraphBuilder
from ..utils.schema import brief, text, whole
from .base import NetworkSpec, Preprocessing, stride_of
from .graph import all_nodes, patch_size
from .session import EndlessWorkError, Session

if TYPE_CHECKING:
    import onnx

_MAX_SIDE = 4096  # pixels of the input; the largest networks take about 1,000
_MAX_PIXELS = 1 << 26  # of a batch, where the graph fixes its size: 0.8 GB as float32
_MAX_OTHER_TOKENS = 16  # beside those of patches; a class token and eight registers are the most that is common
_MAX_STRIDE = 64  # pixels per token; the largest common patches have 32

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class OnnxSettings:
    """Settings that are not part of a graph; the keys of the TOML file beside it."""

    # Pixels become (x - mean) / scale, in the network's channel order.
    mean: float | tuple[float, ...] = 0.0
    scale: float | tuple[float, ...] = 1.0
    color: Literal["RGB", "BGR"] = "RGB"
    output: str | None = None  # any tensor of the graph; its output by default, if it has only one
    size: int | None = None  # of the square input in training; 224 where the graph does not fix it
    stride: int | None = None  # pixels between two cells of the feature map; measured by default

    def __post_init__(self) -> None:
        side, name = whole(1, _MAX_SIDE), text(1000)
        checks = {"size": side, "stride": side, "output": name}
        for key, check in checks.items():
            value = getattr(self, key)
            if value is not None and (fault := check(value)) is not None:
                raise NetworkError(f"{key}{fault}.")
        if self.color not in ("RGB", "BGR"):
            raise NetworkError(f"color must be 'RGB' or 'BGR', got {brief(self.color)}.")

    def preprocessing(self, layout: Literal["NCHW", "NHWC"]) -> Preprocessing:
        """Check the numbers and return them as a `Preprocessing`."""
        mean, scale = three_numbers("mean", self.mean), three_numbers("scale", self.scale)
        if not all(scale):
            raise NetworkError(f"scale must not be 0, got {brief(self.scale)}.")
        return Preprocessing(mean, scale, self.color, layout)


def three_numbers(name: str, value: Any) -> tuple[float, float, float]:
    """Return a number, or three, as three finite numbers."""
    try:
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), (3,))
    except (TypeError, ValueError, OverflowError):
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        raise NetworkError(f"{name} must be a finite number or three numbers, got {brief(value)}.")
    return float(values[0]), float(values[1]), float(values[2])


def adapt(
    part: onnx.ModelProto,
    wanted: NetworkSpec,
    settings: OnnxSettings,
    *,
    threads: int = 1,
    device: str = "cpu",
    bounded: bool = True,
) -> tuple[onnx.ModelProto, NetworkSpec, Session]:
    """Return the graph, its specification, and a session of it; `wanted` has the name and what to read."""

    def session_of(graph: onnx.ModelProto) -> Session:
        return Session(graph.SerializeToString(), wanted.name, threads=threads, device=device, bounded=bounded)

    part = _prepared(part)
    session = session_of(part)
    spec, others = _measured(session, part, wanted, settings)
    if others is not None or session.output_type != "tensor(float)":
        _add_map(part, spec, others)
        session = session_of(part)
    return part, spec, session


def _prepared(part: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a graph that takes float32, and one image per call where images would affect each other."""
    from onnx import TensorProto, helper

    changed = type(part)()
    changed.CopyFrom(part)
    constants = {constant.name for constant in part.graph.initializer}
    # A graph that quantises its tensors by their largest value: images of one batch would affect each other.
    scales_by_batch = any(node.op_type.startswith("DynamicQuantize") for node in all_nodes(part.graph.node))
    for image in changed.graph.input:
        kind = image.type.tensor_type
        if image.name in constants:
            continue
        if scales_by_batch and kind.shape.dim:
            kind.shape.dim[0].dim_value = 1
        if kind.elem_type == TensorProto.FLOAT16:
            old, image.name, kind.elem_type = image.name, "patchvote_image", TensorProto.FLOAT
            cast = helper.make_node("Cast", ["patchvote_image"], [old], name="patchvote_cast", to=TensorProto.FLOAT16)
            changed.graph.node.insert(0, cast)
    return changed


# --- trial runs -------------------------------------------------------------------------------------------------------


def _measured(
    session: Session, part: onnx.ModelProto, wanted: NetworkSpec, settings: OnnxSettings
) -> tuple[NetworkSpec, int | None]:
    """Return the specification of a graph, and the number of tokens before those of patches where it returns tokens.

    Two images go through it, the second twice as wide: it has so many more columns or tokens. Where the second run
    fails, the network takes one size only.
    """
    layout, fixed = _read_input(session, wanted.name)
    height, width = fixed or (settings.size or 224,) * 2
    preprocessing = settings.preprocessing(layout)
    noise = np.random.default_rng(0).integers(0, 256, (1, height, 2 * width, 3), np.uint8)
    square = session.run(preprocessing(noise[:, :, :width])).shape
    if session.run(preprocessing(np.zeros((1, height, width, 3), np.uint8))).shape != square:
        raise NetworkError(f"{wanted.name}: the shape of the output must depend on the size of the image alone.")
    if 0 in square:
        raise NetworkError(f"the tensor {wanted.output!r} of {wanted.name} has the shape {square}: nothing is in it.")
    wide = None
    if fixed is None:
        try:
            wide = session.run(preprocessing(noise)).shape
        except EndlessWorkError:
            raise
        except NetworkError:
            fixed = (height, width)
    wanted = dataclasses.replace(wanted, size=max(height, width), preprocessing=preprocessing, fixed_size=fixed)
    largest = wide or square
    if len(square) >= 2 and math.prod(largest) == square[0] * max(largest[1:]):
        return dataclasses.replace(wanted, dim=max(square[1:])), None
    if len(square) == 3:
        stride, others = _stride_of_tokens(square, wide, (height, width), settings.stride or patch_size(part))
        if stride:
            return dataclasses.replace(wanted, dim=square[2], stride=stride), others
    if len(square) == 4:
        return _spec_of_map(wanted, square, wide, (height, width), settings.stride), None
    raise NetworkError(
        f"the tensor {wanted.output!r} of {wanted.name} has the shape {square} for an image of {width} x {height} "
        "pixels: neither a vector nor a feature map, nor tokens of patches. Name another with output=…, or the side of "
        "a patch with stride=…"
    )


def _read_input(session: Session, name: str) -> tuple[Literal["NCHW", "NHWC"], tuple[int, int] | None]:
    """Return the order of the input's axes, and its height and width where they are fixed."""
    inputs = session.inputs
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type != "tensor(float)":
        shown = "; ".join(f"{value.name}: {value.type} {value.shape}" for value in inputs)[:500]
        raise NetworkError(f"{name} must take one float32 input of 4 axes, a batch of colour images; it takes {shown}.")
    shape = inputs[0].shape
    layout: Literal["NCHW", "NHWC"] = "NHWC" if shape[3] == 3 and shape[1] != 3 else "NCHW"
    height, width = shape[2:] if layout == "NCHW" else shape[1:3]
    sides = [side for side in (height, width) if isinstance(side, int)]
    batch = shape[0] if isinstance(shape[0], int) else 1
    if not all(1 <= side <= _MAX_SIDE for side in sides) or not 1 <= batch * math.prod(sides) <= _MAX_PIXELS:
        raise NetworkError(
            f"{name} takes {batch} images of {width} x {height} pixels at once; sides may have up to {_MAX_SIDE:,} "
            f"pixels, and all images of one call {_MAX_PIXELS:,}."
        )
    return layout, (height, width) if len(sides) == 2 else None


def _spec_of_map(
    wanted: NetworkSpec, square: Shape, wide: Shape | None, size: tuple[int, int], stride: int | None
) -> NetworkSpec:
    """Return the specification of a graph that returns a map for an image of `size`, and `wide` for one twice as wide.

    Rows and columns are the two neighbouring axes whose proportions are nearest to the image's.
    """
    (height, width), (_, rows, columns, last) = size, wide or square
    ratio = width / height if wide is None else 2 * width / height
    is_last = abs(math.log(columns / rows / ratio)) < abs(math.log(last / columns / ratio))
    place = 2 if is_last else 3
    more = None if wide is None else wide[place] - square[place]
    return dataclasses.replace(
        wanted,
        dim=square[3 if is_last else 1],
        stride=stride or _stride_of_map(width, square[place], more),
        output_layout="NHWC" if is_last else "NCHW",
    )


def _stride_of_map(side: int, cells: int, more: int | None) -> int:
    """Return the pixels between two cells, which need not be a power of two, from the cells of `more` pixels.

    Cells that a network without padding loses at the edges are as many for any size, so the cells that come with twice
    the width tell. For a network of one size, cells are taken to tile the image. Where they do not divide the size,
    there may be one too many or too few: then a power of two that is possible is likelier.
    """
    more, power = cells if more is None else more, stride_of(side, cells)
    if more < 2 or (side % more and side / (more + 1) <= power <= side / (more - 1)):
        return power
    return round(side / more)


def _stride_of_tokens(square: Shape, wide: Shape | None, size: tuple[int, int], patch: int | None) -> tuple[int, int]:
    """Return the stride, and the number of tokens before those of patches; 0 where the tokens are no map."""
    (height, width), count = size, square[1]
    more = 0 if wide is None else wide[1] - count
    if 0 < more <= count:
        strides = [math.isqrt(height * width // more)]
    else:  # one size only: the patches of a transformer are cut by its first convolution
        strides = [patch << power for power in range(7) if patch and patch << power <= max(_MAX_STRIDE, patch)]
    for stride in strides:
        others = count - (height // stride) * (width // stride)
        if 0 <= others <= _MAX_OTHER_TOKENS and more in (0, count - others):
            return stride, others
    return 0, 0


# --- nodes that are added ---------------------------------------------------------------------------------------------


def _add_map(part: onnx.ModelProto, spec: NetworkSpec, others: int | None) -> None:
    """Let a graph return a map, or a vector, in float32 of its output."""
    from onnx import TensorProto, helper

    builder, graph = GraphBuilder("patchvote_"), part.graph
    source, name = graph.output[0].name, "patchvote_map"
    shape: list[str | int] = (
        ["n", spec.dim, "rows", "columns"] if spec.output_layout == "NCHW" else ["n", "rows", "columns", spec.dim]
    )
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape if spec.stride else ["n", "d"])
    if others is None:
        builder.node("Cast", source, output=name, to=TensorProto.FLOAT)
    else:
        first = 2 if spec.preprocessing.layout == "NCHW" else 1
        sides = builder.node(
            "Slice",
            builder.node("Shape", graph.input[0].name),
            builder.ints(first),
            builder.ints(first + 2),
            builder.ints(0),
        )
        cells = builder.node("Div", sides, builder.ints(spec.stride or 1))
        patches = builder.node("Slice", source, builder.ints(others), builder.ints((1 << 31) - 1), builder.ints(1))
        columns = builder.node("Transpose", patches, perm=[0, 2, 1])
        wanted = builder.node("Concat", builder.ints(0, 0), cells, axis=0)  # in a new shape, 0 keeps an axis as it is
        builder.node("Cast", builder.node("Reshape", columns, wanted), output=name, to=TensorProto.FLOAT)
    graph.node.extend(builder.nodes)
    graph.initializer.extend(builder.constants.values())
    graph.output[0].CopyFrom(value)
