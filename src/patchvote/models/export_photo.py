"""The first half of a model's graph: from the photo to the feature maps of its network, at every scale.

It is made of plain operations that every runtime knows; even resizing is two matrix products, whose matrices the graph
makes from the size of the photo, and rounds to 8 bits where Pillow does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backbones import graph_of
from ..backbones.base import Activation
from ..backbones.joined import joined_spec
from ..backbones.names import parts_of
from ..errors import PatchvoteError
from ..utils.onnx_graph import OPSET, GraphBuilder

if TYPE_CHECKING:
    import onnx

_UNIT = float(1 << 22)  # what Pillow multiplies weights by before it rounds them to whole numbers


class FeatureMaps:
    """Adds the nodes that turn the value ``photo``, uint8 (height, width, 3), into feature maps.

    Parameters
    ----------
    graph : GraphBuilder
        Where nodes are added.
    network : str
        The network, or several.
    activation : str
        Where the network is cut.

    Attributes
    ----------
    spec : NetworkSpec
        Of the network.
    opset : int
        Version of the operations that its graph takes.
    """

    def __init__(self, graph: GraphBuilder, network: str, activation: Activation) -> None:
        self.graph = graph
        self._parts = [
            (_raised(part), spec) for part, spec in (graph_of(name, activation) for name in parts_of(network))
        ]
        self.spec = joined_spec([spec for _, spec in self._parts])
        self.opset = max(OPSET, *(part.opset_import[0].version for part, _ in self._parts))

    def at(self, sides: tuple[int, ...]) -> list[str]:
        """Return a map ``(d, rows, columns)`` for each length of the photo's longest side."""
        shape = self.graph.node("Shape", "photo")
        height, width = (self.graph.node("Gather", shape, self.graph.ints(axis)) for axis in (0, 1))
        planes = self.graph.cast(self.graph.node("Transpose", "photo", perm=[2, 0, 1]), "DOUBLE")
        return [self._described(planes, height, width, side) for side in sides]

    def _described(self, planes: str, height: str, width: str, side: int) -> str:
        """Return the feature map ``(d, rows, columns)`` of the photo at one scale."""
        lengths = [self.graph.ints(length) for length in self.spec.fixed_size or ()] or self._lengths(
            height, width, side
        )
        across = self.graph.node("Transpose", self._cubic(width, lengths[1]), perm=[1, 0])
        small = self._round8(self.graph.node("MatMul", planes, across))
        small = self._round8(self.graph.node("MatMul", self._cubic(height, lengths[0]), small))
        pixels = self.graph.node("Unsqueeze", self.graph.cast(small, "FLOAT"), self.graph.ints(0))
        maps = [self._through(part, spec, pixels, f"{side}_{k}_") for k, (part, spec) in enumerate(self._parts)]
        if len(maps) == 1:
            return maps[0]
        units = []
        for one in maps:
            length = self.graph.node("Sqrt", self.graph.sum(self.graph.node("Mul", one, one), 0))
            nothing = self.graph.node("Equal", length, self.graph.constant(0.0))
            units.append(
                self.graph.node("Div", one, self.graph.node("Where", nothing, self.graph.constant(1.0), length))
            )
        return self.graph.node("Concat", *units, axis=0)

    def _lengths(self, height: str, width: str, side: int) -> list[str]:
        """Return the height and width that a photo is resized to: whole cells, in nearly its proportions."""
        stride = self.spec.stride or 1
        longest = self.graph.cast(self.graph.node("Max", height, width), "DOUBLE")
        scale = self.graph.node("Div", self.graph.constant([float(side)], np.float64), longest)
        lengths = []
        for length in (height, width):
            cells = self.graph.node("Mul", self.graph.cast(length, "DOUBLE"), scale)
            cells = self.graph.node("Div", cells, self.graph.constant([float(stride)], np.float64))
            cells = self.graph.node("Floor", self.graph.node("Add", cells, self.graph.constant([0.5], np.float64)))
            cells = self.graph.node("Max", self.graph.cast(cells, "INT64"), self.graph.ints(1))
            lengths.append(self.graph.node("Mul", cells, self.graph.ints(stride)))
        return lengths

    def _cubic(self, before: str, after: str) -> str:
        """Return the matrix that resizes a row of pixels as Pillow's bicubic filter does: whole numbers, of `_UNIT`.

        In float64, products with pixels are exact then, and so is their rounding.
        """

        def number(value: Any) -> str:
            return self.graph.constant(value, np.float64)

        ratio = self.graph.node("Div", self.graph.cast(before, "DOUBLE"), self.graph.cast(after, "DOUBLE"))
        wide = self.graph.node("Max", ratio, number([1.0]))
        places = []
        for length in (before, after):
            count = self.graph.node("Squeeze", length, self.graph.ints(0))
            steps = self.graph.node("Range", self.graph.constant(0, np.int64), count, self.graph.constant(1, np.int64))
            places.append(self.graph.node("Add", self.graph.cast(steps, "DOUBLE"), number(0.5)))
        centre = self.graph.node("Unsqueeze", self.graph.node("Mul", places[1], ratio), self.graph.ints(1))
        apart = self.graph.node("Sub", self.graph.node("Unsqueeze", places[0], self.graph.ints(0)), centre)
        x = self.graph.node("Abs", self.graph.node("Div", apart, wide))

        def polynomial(*terms: float) -> str:
            value = number(terms[0])
            for term in terms[1:]:
                value = self.graph.node("Add", self.graph.node("Mul", value, x), number(term))
            return value

        near, far = polynomial(1.5, -2.5, 0.0, 1.0), polynomial(-0.5, 2.5, -4.0, 2.0)
        outer = self.graph.node("Where", self.graph.node("Less", x, number(2.0)), far, number(0.0))
        weight = self.graph.node("Where", self.graph.node("Less", x, number(1.0)), near, outer)
        weight = self.graph.node("Mul", self.graph.node("Div", weight, self.graph.sum(weight, 1)), number(_UNIT))
        size = self.graph.node("Floor", self.graph.node("Add", self.graph.node("Abs", weight), number(0.5)))
        return self.graph.node("Mul", self.graph.node("Sign", weight), size)

    def _round8(self, value: str) -> str:
        """Round products with whole-numbered weights to 8 bits, a half upwards, as Pillow does."""
        half = self.graph.constant(_UNIT / 2, np.float64)
        whole = self.graph.node("Div", self.graph.node("Add", value, half), self.graph.constant(_UNIT, np.float64))
        low, high = (self.graph.constant(bound, np.float64) for bound in (0.0, 255.0))
        return self.graph.node("Clip", self.graph.node("Floor", whole), low, high)

    def _through(self, part: onnx.ModelProto, spec: Any, pixels: str, prefix: str) -> str:
        """Put pixels through a network; return its feature map ``(d, rows, columns)``."""
        told = spec.preprocessing
        if told.color == "BGR":
            pixels = self.graph.node("Gather", pixels, self.graph.ints(2, 1, 0), axis=1)
        mean, scale = (self.graph.constant(np.reshape(value, (1, 3, 1, 1))) for value in (told.mean, told.scale))
        x = self.graph.node("Div", self.graph.node("Sub", pixels, mean), scale)
        x = self.graph.node("Transpose", x, perm=[0, 2, 3, 1]) if told.layout == "NHWC" else x
        graph, number = part.graph, prefix.split("_")[1]
        shared = {tensor.name: f"pv_net{number}_{tensor.name}" for tensor in graph.initializer}
        for tensor in graph.initializer:  # one copy, however many scales
            if shared[tensor.name] not in self.graph.constants:
                copy = type(tensor)()
                copy.CopyFrom(tensor)
                copy.name = shared[tensor.name]
                self.graph.constants[copy.name] = copy
        renamed = shared | {graph.input[0].name: x}
        for node in graph.node:
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
                raise PatchvoteError("the network has branches or loops inside, and cannot be part of another graph.")
            copy = type(node)()
            copy.CopyFrom(node)
            copy.name = prefix + node.name if node.name else ""  # names of nodes are optional, and must differ
            del copy.input[:], copy.output[:]
            copy.input.extend(renamed.get(name, prefix + name) if name else "" for name in node.input)
            copy.output.extend(prefix + name if name else "" for name in node.output)
            self.graph.nodes.append(copy)
        result = prefix + graph.output[0].name
        result = self.graph.node("Transpose", result, perm=[0, 3, 1, 2]) if spec.output_layout == "NHWC" else result
        return self.graph.node("Squeeze", result, self.graph.ints(0))


def _raised(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Bring a graph of an older set of operations to the one that is spoken here."""
    if graph.opset_import[0].version >= OPSET:
        return graph
    from onnx import version_converter

    return version_converter.convert_version(graph, OPSET)
