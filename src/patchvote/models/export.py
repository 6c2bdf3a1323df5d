"""Export a model as one ONNX graph: its input is a photo, its outputs are class scores and maps of votes.

The graph includes everything: resizing and the network at every scale (`FeatureMaps`), then votes, their mean and
probabilities, whose nodes are added by the model's scorer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..bags.boxes import Dense
from ..errors import PatchvoteError
from ..networks import graph_of
from ..networks.base import Activation, joined_spec
from ..networks.graph import subgraphs
from ..networks.names import parts_of
from ..utils.files import write_file
from ..utils.onnx_graph import OPSET, GraphBuilder
from ..voters.onnx_nodes import familiarity_nodes
from .model import Model, check_network

if TYPE_CHECKING:
    import onnx

_UNIT = float(1 << 22)  # Pillow multiplies weights by this factor and rounds them to integers


def export_model(model: Model, path: str | Path, *, network: str | None = None) -> onnx.ModelProto:
    """Write a model as one ONNX graph, and return it.

    The input is ``photo``, uint8 of shape (height, width, 3), RGB, upright. The outputs are ``scores`` and
    ``probability`` of shape (classes,), and for each scale a map of votes ``votes_<side>`` of shape (classes, rows,
    columns). If the model has a familiarity, ``familiarity`` of shape (1,) is an output as well. The metadata holds
    classes, thresholds and recipe.

    Parameters
    ----------
    model : Model
        Model of `MomentRidge`, `SNBNL` or `NBNL` with `dense` bags.
    path : path
        File to write.
    network : str, optional
        Name of the network, where the model was read from a file and its network is not embedded.

    Raises
    ------
    PatchvoteError
        The model cannot be exported as one graph; the message gives the reason.
    """
    import onnx

    if not isinstance(model.recipe.sampling, Dense):
        raise PatchvoteError("a model of patches cannot be one graph: it reads parts of a photo one by one. Use dense.")
    graph = GraphBuilder()
    maps = FeatureMaps(graph, network or model.recipe.network, model.recipe.activation)
    check_network(model, maps.spec)
    exported = _build(model, model.recipe.sampling, graph, maps)
    onnx.checker.check_model(exported, full_check=True)
    write_file(Path(path), [exported.SerializeToString()])
    return exported


def _build(model: Model, sampling: Dense, graph: GraphBuilder, maps: FeatureMaps) -> onnx.ModelProto:
    features = maps.at(sampling.sides)
    added = model.scorer.to_onnx(graph, features, sampling.whole, model.temperature)
    outputs: dict[str, Sequence[int | str]] = {}
    for name, value in (("scores", added.scores), ("probability", added.probability)):
        outputs[graph.name(value, name)] = ["classes"]
    for side, value in zip(sampling.sides, added.votes, strict=True):
        outputs[graph.name(value, f"votes_{side}")] = ["classes", f"rows_{side}", f"columns_{side}"]
    metadata = {}
    if model.familiarity is not None:
        deciding = added.probability if added.unadapted is None else added.unadapted
        share = familiarity_nodes(graph, model.familiarity, features, sampling.whole, deciding)
        outputs[graph.name(share, "familiarity")] = [1]
        metadata["familiarity_threshold"] = json.dumps(model.limit())
    metadata |= {
        "classes": json.dumps(list(model.classes)),
        "threshold": json.dumps(model.threshold),
        "recipe": model.recipe.to_json(),
        "kind": model.kind,
    }
    return graph.model(
        "patchvote",
        {"photo": ["height", "width", 3]},
        outputs,
        kinds={"photo": "UINT8"},
        opset=maps.opset,
        metadata=metadata,
    )


# --- from the photo to feature maps -----------------------------------------------------------------------------------


class FeatureMaps:
    """Adds the nodes that turn the value ``photo``, uint8 (height, width, 3), into feature maps, at every scale.

    They are basic operations that every runtime supports. Even resizing is two matrix products: the graph computes the
    matrices from the size of the photo, and rounds to 8 bits where Pillow does.
    """

    def __init__(self, graph: GraphBuilder, network: str, activation: Activation) -> None:
        self.graph = graph
        self._parts = [
            (_upgraded(part), spec) for part, spec in (graph_of(name, activation) for name in parts_of(network))
        ]
        self.spec = joined_spec([spec for _, spec in self._parts])
        self.opset = max(OPSET, *(_opset(part) for part, _ in self._parts))

    def at(self, sides: tuple[int, ...]) -> list[str]:
        """Return one map ``(d, rows, columns)`` per length of the photo's longest side."""
        shape = self.graph.node("Shape", "photo")
        height, width = (self.graph.node("Gather", shape, self.graph.ints(axis)) for axis in (0, 1))
        planes = self.graph.cast(self.graph.node("Transpose", "photo", perm=[2, 0, 1]), "DOUBLE")
        return [self._feature_map(planes, height, width, side) for side in sides]

    def _feature_map(self, planes: str, height: str, width: str, side: int) -> str:
        """Return the feature map ``(d, rows, columns)`` of the photo at one scale."""
        lengths = [self.graph.ints(length) for length in self.spec.fixed_size or ()] or self._lengths(
            height, width, side
        )
        small = self._round8(self.graph.node("MatMul", planes, self._cubic(width, lengths[1], 0)))
        small = self._round8(self.graph.node("MatMul", self._cubic(height, lengths[0], 1), small))
        pixels = self.graph.node("Unsqueeze", self.graph.cast(small, "FLOAT"), self.graph.ints(0))
        maps = [self._through(part, spec, pixels, f"{side}_{k}_") for k, (part, spec) in enumerate(self._parts)]
        if len(maps) == 1:
            return maps[0]
        units = []
        for feature_map in maps:
            square = self.graph.node("Mul", feature_map, feature_map)
            length = self.graph.node("Sqrt", self.graph.sum(square, 0))
            is_zero = self.graph.node("Equal", length, self.graph.constant(0.0))
            divisor = self.graph.node("Where", is_zero, self.graph.constant(1.0), length)
            units.append(self.graph.node("Div", feature_map, divisor))
        return self.graph.node("Concat", *units, axis=0)

    def _lengths(self, height: str, width: str, side: int) -> list[str]:
        """Return the height and width to which a photo is resized: multiples of a cell, nearly in its proportions."""
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

    def _cubic(self, before: str, after: str, axis: int) -> str:
        """Return the matrix that resizes a row of pixels like Pillow's bicubic filter: integers, scaled by `_UNIT`.

        In float64, products of these integers with pixels are exact, and so is their rounding. The pixels before run
        along `axis`. The matrix is not transposed by a node: ONNX Runtime 1.18 to 1.25 fuse that with the product, and
        have no such operation in float64.
        """

        def number(value: Any) -> str:
            return self.graph.constant(value, np.float64)

        ratio = self.graph.node("Div", self.graph.cast(before, "DOUBLE"), self.graph.cast(after, "DOUBLE"))
        width = self.graph.node("Max", ratio, number([1.0]))
        positions = []
        for length in (before, after):
            count = self.graph.node("Squeeze", length, self.graph.ints(0))
            steps = self.graph.node("Range", self.graph.constant(0, np.int64), count, self.graph.constant(1, np.int64))
            positions.append(self.graph.node("Add", self.graph.cast(steps, "DOUBLE"), number(0.5)))
        centre = self.graph.node("Unsqueeze", self.graph.node("Mul", positions[1], ratio), self.graph.ints(axis))
        distance = self.graph.node("Sub", self.graph.node("Unsqueeze", positions[0], self.graph.ints(1 - axis)), centre)
        x = self.graph.node("Abs", self.graph.node("Div", distance, width))

        def polynomial(*terms: float) -> str:
            value = number(terms[0])
            for term in terms[1:]:
                value = self.graph.node("Add", self.graph.node("Mul", value, x), number(term))
            return value

        near, far = polynomial(1.5, -2.5, 0.0, 1.0), polynomial(-0.5, 2.5, -4.0, 2.0)
        outer = self.graph.node("Where", self.graph.node("Less", x, number(2.0)), far, number(0.0))
        weight = self.graph.node("Where", self.graph.node("Less", x, number(1.0)), near, outer)
        weight = self.graph.node("Mul", self.graph.node("Div", weight, self.graph.sum(weight, axis)), number(_UNIT))
        size = self.graph.node("Floor", self.graph.node("Add", self.graph.node("Abs", weight), number(0.5)))
        return self.graph.node("Mul", self.graph.node("Sign", weight), size)

    def _round8(self, value: str) -> str:
        """Round products with integer weights to 8 bits, halves upwards, as Pillow does."""
        half = self.graph.constant(_UNIT / 2, np.float64)
        whole = self.graph.node("Div", self.graph.node("Add", value, half), self.graph.constant(_UNIT, np.float64))
        low, high = (self.graph.constant(bound, np.float64) for bound in (0.0, 255.0))
        return self.graph.node("Clip", self.graph.node("Floor", whole), low, high)

    def _through(self, part: onnx.ModelProto, spec: Any, pixels: str, prefix: str) -> str:
        """Add the nodes of a network; return its feature map ``(d, rows, columns)``."""
        preprocessing = spec.preprocessing
        if preprocessing.color == "BGR":
            pixels = self.graph.node("Gather", pixels, self.graph.ints(2, 1, 0), axis=1)
        mean, scale = (
            self.graph.constant(np.reshape(value, (1, 3, 1, 1))) for value in (preprocessing.mean, preprocessing.scale)
        )
        x = self.graph.node("Div", self.graph.node("Sub", pixels, mean), scale)
        x = self.graph.node("Transpose", x, perm=[0, 2, 3, 1]) if preprocessing.layout == "NHWC" else x
        graph, number = part.graph, prefix.split("_")[1]
        shared = {tensor.name: f"pv_net{number}_{tensor.name}" for tensor in graph.initializer}
        for tensor in graph.initializer:  # one copy for all scales
            if shared[tensor.name] not in self.graph.constants:
                copy = type(tensor)()
                copy.CopyFrom(tensor)
                copy.name = shared[tensor.name]
                self.graph.constants[copy.name] = copy
        renamed = shared | {graph.input[0].name: x}
        for node in graph.node:
            if any(subgraphs(node)):
                raise PatchvoteError("the network contains branches or loops, and cannot be part of another graph.")
            copy = type(node)()
            copy.CopyFrom(node)
            copy.name = prefix + node.name if node.name else ""  # names of nodes are optional, but must be unique
            del copy.input[:], copy.output[:]
            copy.input.extend(renamed.get(name, prefix + name) if name else "" for name in node.input)
            copy.output.extend(prefix + name if name else "" for name in node.output)
            self.graph.nodes.append(copy)
        result = prefix + graph.output[0].name
        result = self.graph.node("Transpose", result, perm=[0, 3, 1, 2]) if spec.output_layout == "NHWC" else result
        return self.graph.node("Squeeze", result, self.graph.ints(0))


def _upgraded(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Convert a graph with an older operator set to the one that is used here."""
    foreign = sorted({node.domain for node in graph.graph.node} - {"", "ai.onnx"})
    if foreign:
        raise PatchvoteError(
            f"the network has operations that are not of ONNX's standard ({', '.join(foreign)[:200]}), so it cannot be "
            "part of another graph. Take a file that was not optimised or quantised for one runtime."
        )
    if _opset(graph) >= OPSET:
        return graph
    from onnx import version_converter

    return version_converter.convert_version(graph, OPSET)


def _opset(graph: onnx.ModelProto) -> int:
    """Return the version of the standard's operators that a graph needs."""
    return max((one.version for one in graph.opset_import if one.domain in ("", "ai.onnx")), default=OPSET)
