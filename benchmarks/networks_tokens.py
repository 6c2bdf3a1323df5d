"""Maps of the tokens of a vision transformer: an ONNX file that the other networks can be compared with.

A graph of a transformer returns tokens ``(n, 1 + cells, d)``, the class token first. Here they become a feature map
``(n, d, rows, columns)``: patch tokens of one or several blocks side by side, with the class token at every cell if it
is wanted, and pooled over neighbouring cells where another network with a coarser stride stands beside it. Several of
them have length 1 each, as descriptors of several networks do: an earlier block may have features a hundred times as
large as the last.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

PATCH = 16  # pixels per side of a patch of ViT-Tiny
CLASS = "cls"  # output with the class token, (n, d)
PREPROCESSING = "mean = 127.5\nscale = 127.5\n"  # of ViT-Tiny: pixels from -1 to 1


def write_token_maps(source: Path, path: Path, outputs: tuple[str, ...], pool: int = 1, *, unit: bool = True) -> Path:
    """Write the tokens of a transformer as a network of feature maps, with its preprocessing beside it.

    Parameters
    ----------
    source : path
        ONNX file of the transformer.
    path : path
        ONNX file to write; the same name with the suffix .toml holds the preprocessing.
    outputs : tuple of str
        Outputs of the transformer whose tokens stand side by side.
    pool : int, default 1
        Number of cells per side over which tokens are averaged.
    unit : bool, default True
        Whether each of several outputs has length 1.
    """
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(token_maps(onnx.load(source), outputs, pool, unit and len(outputs) > 1), path)
    path.with_suffix(".toml").write_text(f'{PREPROCESSING}size = 224\nstride = {PATCH * pool}\noutput = "map"\n')
    return path


def token_maps(model: onnx.ModelProto, outputs: tuple[str, ...], pool: int, unit: bool) -> onnx.ModelProto:
    """Return the graph with one more output, ``map``; see `write_token_maps`."""
    from onnx import helper, numpy_helper

    graph = model.graph
    image = graph.input[0].name

    def constant(name: str, value: list[int]) -> str:
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), f"map_{name}"))
        return f"map_{name}"

    def node(kind: str, *inputs: str, **attributes: object) -> str:
        made = f"map_{len(graph.node)}"
        graph.node.append(helper.make_node(kind, list(inputs), [made], **attributes))
        return made

    zero, one, two, end = (constant(name, [value]) for name, value in (("0", 0), ("1", 1), ("2", 2), ("end", 1 << 40)))
    shape = node("Shape", image)
    batch = node("Slice", shape, zero, one)
    cells = node("Div", node("Slice", shape, two, end), constant("patch", [PATCH]))
    size = node("Concat", batch, constant("features", [-1]), cells, axis=0)
    maps = []
    for output in outputs:
        if output == CLASS:
            token = node("Unsqueeze", output, constant(f"axes_{output}", [2, 3]))
            maps.append(node("Expand", token, node("Concat", one, one, cells, axis=0)))
        else:
            tokens = node("Slice", output, one, end, one)
            maps.append(node("Reshape", node("Transpose", tokens, perm=[0, 2, 1]), size))
    if pool > 1:
        maps = [node("AveragePool", one, kernel_shape=[pool, pool], strides=[pool, pool]) for one in maps]
    if unit:
        maps = [node("LpNormalization", one, axis=1, p=2) for one in maps]
    graph.node.append(helper.make_node("Concat", maps, ["map"], axis=1))
    graph.output.append(helper.make_empty_tensor_value_info("map"))
    return model
