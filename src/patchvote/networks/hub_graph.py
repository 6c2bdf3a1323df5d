"""Make a backbone's graph from a graph of the hub: pixels in float32 at one end, a feature map in float32 at the other.

Tokens become a map of rows and columns by nodes that are added to the graph, so that all other parts of the project
(export, evidence, joined networks) see a network like any other. Class, register and other tokens stand before those
of the patches and are left out; the first of them can describe the whole image.

Two trial runs tell what a graph returns: an image that is twice as wide has as many tokens more as the square one has
patches. Where the second run fails, position embeddings are for one size only, and the network gets no other.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NetworkError
from ..utils.onnx_graph import GraphBuilder
from .base import Activation, Preprocessing, stride_of
from .feature_tensor import patch_size, scales_by_batch
from .graph import cut
from .graph_file import check_operations
from .onnx_file import OnnxSettings, read_input, read_output, serialised, trial_run
from .session import EndlessWorkError, Session

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import onnx

MAP, WHOLE = "patchvote_map", "patchvote_whole"  # names of the outputs that are added
_IMAGE = "patchvote_image"  # name of the input that is added where the graph takes float16
_MAX_OTHER_TOKENS = 16  # beside those of patches; a class token and eight registers are the most that is common
_MAX_STRIDE = 64  # pixels per token; the largest common patches have 32


@dataclasses.dataclass(frozen=True)
class Features:
    """What a graph returns for an image.

    Parameters
    ----------
    dim : int
        Number of features.
    size : int
        Side of the square input.
    stride : int or None
        Pixels per cell; None for one vector per image.
    preprocessing : Preprocessing
        Conversion of pixels to the input.
    fixed_size : tuple of two ints or None
        Height and width, where only one size works.
    layout : {"NCHW", "NHWC"}
        Order of the axes of the map.
    others : int or None
        Number of tokens before those of the patches; None where the graph returns no tokens.
    """

    dim: int
    size: int
    stride: int | None
    preprocessing: Preprocessing
    fixed_size: tuple[int, int] | None
    layout: str = "NCHW"
    others: int | None = None


def prepared(model: onnx.ModelProto, tensor: str, activation: Activation, path: Path) -> onnx.ModelProto:
    """Return the part of a graph that computes a tensor; it takes float32, and one image per call where that matters.

    Raises
    ------
    NetworkError
        The part has an operation that is refused, or there is nothing before the activation.
    """
    from onnx import TensorProto

    part = cut(model, tensor, activation)
    check_operations(part, path)
    changed = type(part)()
    changed.CopyFrom(part)
    constants = {constant.name for constant in part.graph.initializer}
    for image in changed.graph.input:  # where it has several, `read_input` says what is wrong
        kind: Any = image.type.tensor_type
        if image.name in constants:
            continue
        if scales_by_batch(part) and kind.shape.dim:
            kind.shape.dim[0].dim_value = 1
        if kind.elem_type == TensorProto.FLOAT16:
            _take_float32(changed, image)
    return changed


def _take_float32(model: onnx.ModelProto, image: Any) -> None:
    """Let a graph for float16 take float32: a new input, and a node that converts it to the old one."""
    from onnx import TensorProto, helper

    old = image.name
    image.name, image.type.tensor_type.elem_type = _IMAGE, TensorProto.FLOAT
    nodes = [
        helper.make_node("Cast", [_IMAGE], [old], name=f"{_IMAGE}_cast", to=TensorProto.FLOAT16),
        *model.graph.node,
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def tried(part: onnx.ModelProto, tensor: str, settings: OnnxSettings, path: Path) -> Features:
    """Run a graph on two images, and return what it returns for an image.

    Parameters
    ----------
    part : onnx.ModelProto
        Graph from `prepared`.
    tensor : str
        Name of the tensor, for messages.
    settings : OnnxSettings
        Preprocessing, size and stride. A fixed size of the graph counts before the size here, which is rounded down to
        whole patches; for tokens, the stride is used only where two runs do not tell it.
    path : path
        File of the graph, for messages.

    Raises
    ------
    NetworkError
        The graph cannot take an image, or returns something else than a vector, tokens or a map.
    """
    session = Session(serialised(part, path), str(path), bounded=True)
    layout, fixed = read_input(session, path)
    patch, preprocessing = settings.stride or patch_size(part), settings.preprocessing(layout)
    size = max(fixed) if fixed else settings.size or 224
    height, width = fixed or (_multiple(size, patch),) * 2
    square, *_ = trial_run(session, preprocessing, [(height, width)], path)
    wide = None
    if fixed is None:
        try:
            wide, *_ = trial_run(session, preprocessing, [(height, 2 * width)], path)
        except EndlessWorkError:
            raise
        except NetworkError:  # position embeddings of one size
            fixed = (height, width)
    if square.ndim == 3:
        return _of_tokens(square, wide, (height, width), patch, preprocessing, tensor, path)
    result, columns = (square, width) if wide is None else (wide, 2 * width)
    dim, rows, order = read_output(result, height, columns, tensor, path)
    stride = None if rows is None else settings.stride or stride_of(height, rows)
    return Features(dim, max(height, width), stride, preprocessing, fixed, order)


def _multiple(size: int, patch: int | None) -> int:
    """Return the largest multiple of a patch's side up to `size`."""
    return size if patch is None or patch > size else size - size % patch


def _of_tokens(
    square: npt.NDArray[np.float32],
    wide: npt.NDArray[np.float32] | None,
    shape: tuple[int, int],
    patch: int | None,
    preprocessing: Preprocessing,
    tensor: str,
    path: Path,
) -> Features:
    """Return stride and number of other tokens, from the numbers of tokens of one or two images."""
    count, dim = square.shape[1:]
    height, width = shape
    fixed: tuple[int, int] | None = None
    cells = wide.shape[1] - count if wide is not None and wide.ndim == 3 and wide.shape[2] == dim else 0
    stride = math.isqrt(height * width // cells) if 0 < cells <= count else 0
    if not stride:  # one size only: the patches of a transformer are cut by its first convolution
        strides = [patch << power for power in range(7) if patch and patch << power <= max(_MAX_STRIDE, patch)]
        fits = [one for one in strides if 0 <= count - (height // one) * (width // one) <= _MAX_OTHER_TOKENS]
        stride, fixed = fits[0] if fits else 0, shape
        cells = (height // stride) * (width // stride) if stride else 0
    others = count - cells
    if not stride or (height // stride) * (width // stride) != cells or not 0 <= others <= _MAX_OTHER_TOKENS:
        raise NetworkError(
            f"the tensor {tensor!r} of {path} has {count:,} tokens for an image of {width} x {height} pixels, which is "
            "no map of patches. Name the side of a patch with ?stride=…, or another tensor with ?output=…"
        )
    return Features(dim, max(shape), stride, preprocessing, fixed, "NCHW", others)


def assembled(part: onnx.ModelProto, features: Features, whole: bool) -> onnx.ModelProto:
    """Return the whole graph: that of `prepared`, and nodes that make a map, or a vector, in float32 of its output.

    Parameters
    ----------
    part : onnx.ModelProto
        Graph from `prepared`.
    features : Features
        What it returns.
    whole : bool
        Whether the class token is a second output.
    """
    from onnx import TensorProto, helper

    model, builder = type(part)(), GraphBuilder("patchvote_")
    model.CopyFrom(part)
    graph, source = model.graph, model.graph.output[0].name
    values = [helper.make_tensor_value_info(MAP, TensorProto.FLOAT, _shape(features))]
    if features.others is None or features.stride is None:
        builder.node("Cast", source, output=MAP, to=TensorProto.FLOAT)
    else:
        _add_map(builder, source, graph.input[0].name, features)
        if whole:
            first = builder.node("Gather", source, builder.constant(0, "int64"), axis=1)
            builder.node("Cast", first, output=WHOLE, to=TensorProto.FLOAT)
            values.append(helper.make_tensor_value_info(WHOLE, TensorProto.FLOAT, ["n", features.dim]))
    graph.node.extend(builder.nodes)
    graph.initializer.extend(builder.constants.values())
    del graph.output[:]
    graph.output.extend(values)
    return model


def _shape(features: Features) -> list[str | int]:
    if features.stride is None:
        return ["n", "d"]
    return ["n", features.dim, "rows", "columns"] if features.layout == "NCHW" else ["n", "rows", "columns", "d"]


def _add_map(builder: GraphBuilder, tokens: str, image: str, features: Features) -> None:
    """Add nodes that arrange tokens ``(n, tokens, d)`` as a map ``(n, d, rows, columns)``."""
    from onnx import TensorProto

    first = 2 if features.preprocessing.layout == "NCHW" else 1
    shape = builder.node("Shape", image)
    sides = builder.node("Slice", shape, builder.ints(first), builder.ints(first + 2), builder.ints(0))
    cells = builder.node("Div", sides, builder.ints(features.stride or 1))
    end = builder.ints((1 << 31) - 1)
    patches = builder.node("Slice", tokens, builder.ints(features.others or 0), end, builder.ints(1))
    turned = builder.node("Transpose", patches, perm=[0, 2, 1])
    wanted = builder.node("Concat", builder.ints(0, 0), cells, axis=0)  # in a new shape, 0 means: as before
    reshaped = builder.node("Reshape", turned, wanted)
    builder.node("Cast", reshaped, output=MAP, to=TensorProto.FLOAT)
