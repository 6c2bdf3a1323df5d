"""One ONNX graph for a whole model: a photo in, class scores and maps of votes out.

Everything that answering takes is in the graph: resizing, the network at every scale, standardisation, votes, their
mean. It is made of plain operations that every runtime knows; even resizing is two matrix products, whose matrices the
graph makes from the size of the photo, and rounds to 8 bits where Pillow does.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backbones import graph_of
from ..backbones.joined import joined_spec
from ..backbones.names import parts_of
from ..bags.boxes import Dense
from ..errors import PatchvoteError
from ..utils.files import write_file
from ..utils.marks import NAME
from .export_veto import limited_nodes
from .model import Model

if TYPE_CHECKING:
    import onnx

OPSET = 17


def export_model(model: Model, path: str | Path, *, network: str | None = None) -> onnx.ModelProto:
    """Write a model as one ONNX graph, and return it.

    The graph takes ``photo``, uint8 of the shape (height, width, 3), RGB, upright. It gives ``scores`` and
    ``probability`` of the shape (classes,), and for each scale a map of votes ``votes_<side>`` of the shape
    (classes, rows, columns). Classes, threshold and recipe stand in its metadata.

    Parameters
    ----------
    model : Model
        Of `BagSVM`, `SNBNL` or `NBNL`, with `dense` bags.
    path : path
        The file to write.
    network : str, optional
        The network, where the model was read from a file and its network is not embedded.

    Raises
    ------
    PatchvoteError
        The model cannot be one graph; the message says why.
    """
    import onnx

    if not isinstance(model.recipe.sampling, Dense):
        raise PatchvoteError(
            "a model of patches cannot be one graph: it looks at parts of a photo one by one. Use dense."
        )
    if "values" in model.arrays:
        raise PatchvoteError(
            f"a model of {model.kind} searches among remembered descriptors, which is no graph. Fit it with another "
            "voter, such as the default."
        )
    making = _Graph(model, model.recipe.sampling, network or model.recipe.network)
    if making.spec.fingerprint != model.fingerprint:
        raise PatchvoteError(
            f"the model was made with a network of fingerprint {model.fingerprint}, but {making.spec.name} has "
            f"{making.spec.fingerprint}: its votes would mean nothing. Name the network that it was made with."
        )
    graph = making.build()
    onnx.checker.check_model(graph, full_check=True)
    write_file(Path(path), [graph.SerializeToString()])
    return graph


class _Graph:
    """Collects nodes and constants."""

    def __init__(self, model: Model, sampling: Dense, network: str) -> None:
        from onnx import TensorProto, helper, numpy_helper

        self._onnx, self._types, self._numpy = helper, TensorProto, numpy_helper
        self.model, self.sampling = model, sampling
        self.parts = [
            (_raised(graph), spec) for graph, spec in (graph_of(n, model.recipe.activation) for n in parts_of(network))
        ]
        self.spec = joined_spec([spec for _, spec in self.parts])
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.count = 0
        self.vector = ""  # of the bag, once linear votes have made it

    # --- small steps ------------------------------------------------------------------------------------------------

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        self.count += 1
        output = f"pv_{op.lower()}_{self.count}"
        self.nodes.append(self._onnx.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def name(self, value: str, name: str) -> str:
        self.nodes.append(self._onnx.make_node("Identity", [value], [name], name=f"pv_{name}"))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        array = np.asarray(value, dtype)
        name = f"pv_c{len(self.constants)}"
        self.constants[name] = self._numpy.from_array(array, name)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(list(values), np.int64)

    def cast(self, value: str, kind: str) -> str:
        return self.node("Cast", value, to=getattr(self._types, kind))

    def sum(self, value: str, axis: int, keep: bool = True) -> str:
        return self.node("ReduceSum", value, self.ints(axis), keepdims=int(keep))

    def round8(self, value: str) -> str:
        """Round products with whole-numbered weights to 8 bits, a half upwards, as Pillow does."""
        half = self.constant(_UNIT / 2, np.float64)
        whole = self.node("Div", self.node("Add", value, half), self.constant(_UNIT, np.float64))
        low, high = (self.constant(bound, np.float64) for bound in (0.0, 255.0))
        return self.node("Clip", self.node("Floor", whole), low, high)

    # --- from the photo to feature maps -----------------------------------------------------------------------------

    def build(self) -> onnx.ModelProto:
        sampling = self.sampling
        shape = self.node("Shape", "photo")
        height, width = (self.node("Gather", shape, self.ints(axis)) for axis in (0, 1))
        planes = self.cast(self.node("Transpose", "photo", perm=[2, 0, 1]), "DOUBLE")
        maps = [self.described(planes, height, width, side) for side in sampling.sides]
        votes, scores = self.linear(maps) if "linear" in self.model.arrays else self.prototypes(maps)
        self.name(scores, "scores")
        logits = self.node("Div", scores, self.constant(self.model.temperature))
        probability = self.node("Softmax", logits, axis=0)
        if "unadapted_linear" in self.model.arrays:
            model = self.model
            classes = len(model.classes)
            probability = limited_nodes(self, probability, self.vector, model.arrays, classes, model.threshold)
        self.name(probability, "probability")
        outputs = [self._onnx.make_tensor_value_info(name, self._types.FLOAT, ["classes"]) for name in _ANSWERS]
        for side, value in zip(sampling.sides, votes, strict=True):
            self.name(value, f"votes_{side}")
            axes = ["classes", f"rows_{side}", f"columns_{side}"]
            outputs.append(self._onnx.make_tensor_value_info(f"votes_{side}", self._types.FLOAT, axes))
        photo = self._onnx.make_tensor_value_info("photo", self._types.UINT8, ["height", "width", 3])
        graph = self._onnx.make_graph(self.nodes, "patchvote", [photo], outputs, list(self.constants.values()))
        opset = max(OPSET, *(part.opset_import[0].version for part, _ in self.parts))
        made: onnx.ModelProto = self._onnx.make_model(
            graph, opset_imports=[self._onnx.make_opsetid("", opset)], ir_version=8, producer_name=NAME
        )
        told = {
            "classes": json.dumps(list(self.model.classes)),
            "threshold": json.dumps(self.model.threshold),
            "recipe": self.model.recipe.to_json(),
            "kind": self.model.kind,
        }
        self._onnx.set_model_props(made, told)
        return made

    def described(self, planes: str, height: str, width: str, side: int) -> str:
        """Return the feature map ``(d, rows, columns)`` of the photo at one scale."""
        lengths = [self.ints(length) for length in self.spec.fixed_size or ()] or self.lengths(height, width, side)
        across = self.node("Transpose", self.cubic(width, lengths[1]), perm=[1, 0])
        small = self.round8(self.node("MatMul", planes, across))
        small = self.round8(self.node("MatMul", self.cubic(height, lengths[0]), small))
        pixels = self.node("Unsqueeze", self.cast(small, "FLOAT"), self.ints(0))
        maps = [self.through(part, spec, pixels, f"{side}_{k}_") for k, (part, spec) in enumerate(self.parts)]
        if len(maps) == 1:
            return maps[0]
        units = []
        for one in maps:
            length = self.node("Sqrt", self.sum(self.node("Mul", one, one), 0))
            nothing = self.node("Equal", length, self.constant(0.0))
            units.append(self.node("Div", one, self.node("Where", nothing, self.constant(1.0), length)))
        return self.node("Concat", *units, axis=0)

    def lengths(self, height: str, width: str, side: int) -> list[str]:
        """Return the height and width that a photo is resized to: whole cells, in nearly its proportions."""
        stride = self.spec.stride or 1
        longest = self.cast(self.node("Max", height, width), "DOUBLE")
        scale = self.node("Div", self.constant([float(side)], np.float64), longest)
        lengths = []
        for length in (height, width):
            cells = self.node("Mul", self.cast(length, "DOUBLE"), scale)
            cells = self.node("Div", cells, self.constant([float(stride)], np.float64))
            cells = self.node("Floor", self.node("Add", cells, self.constant([0.5], np.float64)))
            cells = self.node("Max", self.cast(cells, "INT64"), self.ints(1))
            lengths.append(self.node("Mul", cells, self.ints(stride)))
        return lengths

    def cubic(self, before: str, after: str) -> str:
        """Return the matrix that resizes a row of pixels as Pillow's bicubic filter does: whole numbers, of `_UNIT`.

        In float64, products with pixels are exact then, and so is their rounding.
        """

        def number(value: Any) -> str:
            return self.constant(value, np.float64)

        ratio = self.node("Div", self.cast(before, "DOUBLE"), self.cast(after, "DOUBLE"))
        wide = self.node("Max", ratio, number([1.0]))
        places = []
        for length in (before, after):
            count = self.node("Squeeze", length, self.ints(0))
            steps = self.node("Range", self.constant(0, np.int64), count, self.constant(1, np.int64))
            places.append(self.node("Add", self.cast(steps, "DOUBLE"), number(0.5)))
        centre = self.node("Unsqueeze", self.node("Mul", places[1], ratio), self.ints(1))
        apart = self.node("Sub", self.node("Unsqueeze", places[0], self.ints(0)), centre)
        x = self.node("Abs", self.node("Div", apart, wide))

        def polynomial(*terms: float) -> str:
            value = number(terms[0])
            for term in terms[1:]:
                value = self.node("Add", self.node("Mul", value, x), number(term))
            return value

        near, far = polynomial(1.5, -2.5, 0.0, 1.0), polynomial(-0.5, 2.5, -4.0, 2.0)
        outer = self.node("Where", self.node("Less", x, number(2.0)), far, number(0.0))
        weight = self.node("Where", self.node("Less", x, number(1.0)), near, outer)
        weight = self.node("Mul", self.node("Div", weight, self.sum(weight, 1)), number(_UNIT))
        size = self.node("Floor", self.node("Add", self.node("Abs", weight), number(0.5)))
        return self.node("Mul", self.node("Sign", weight), size)

    def through(self, part: onnx.ModelProto, spec: Any, pixels: str, prefix: str) -> str:
        """Put pixels through a network; return its feature map ``(d, rows, columns)``."""
        told = spec.preprocessing
        if told.color == "BGR":
            pixels = self.node("Gather", pixels, self.ints(2, 1, 0), axis=1)
        mean, scale = (self.constant(np.reshape(value, (1, 3, 1, 1))) for value in (told.mean, told.scale))
        x = self.node("Div", self.node("Sub", pixels, mean), scale)
        x = self.node("Transpose", x, perm=[0, 2, 3, 1]) if told.layout == "NHWC" else x
        graph, number = part.graph, prefix.split("_")[1]
        shared = {tensor.name: f"pv_net{number}_{tensor.name}" for tensor in graph.initializer}
        for tensor in graph.initializer:  # one copy, however many scales
            if shared[tensor.name] not in self.constants:
                copy = self._types()
                copy.CopyFrom(tensor)
                copy.name = shared[tensor.name]
                self.constants[copy.name] = copy
        renamed = shared | {graph.input[0].name: x}
        for node in graph.node:
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
                raise PatchvoteError("the network has branches or loops inside, and cannot be part of another graph.")
            copy = type(node)()
            copy.CopyFrom(node)
            copy.name = prefix + node.name
            del copy.input[:], copy.output[:]
            copy.input.extend(renamed.get(name, prefix + name) if name else "" for name in node.input)
            copy.output.extend(prefix + name if name else "" for name in node.output)
            self.nodes.append(copy)
        result = prefix + graph.output[0].name
        result = self.node("Transpose", result, perm=[0, 3, 1, 2]) if spec.output_layout == "NHWC" else result
        return self.node("Squeeze", result, self.ints(0))

    # --- from feature maps to votes ---------------------------------------------------------------------------------

    def cells(self, one: str) -> str:
        """Return a map ``(d, rows, columns)`` as ``(d, cells)``."""
        return self.node("Reshape", one, self.ints(0, -1))

    def size(self, flat: str) -> str:
        return self.cast(self.node("Gather", self.node("Shape", flat), self.ints(1)), "FLOAT")

    def as_map(self, flat: str, like: str) -> str:
        """Return ``(classes, cells)`` in the rows and columns of a map."""
        grid = self.node("Slice", self.node("Shape", like), self.ints(1), self.ints(3))
        return self.node("Reshape", flat, self.node("Concat", self.ints(-1), grid, axis=0))

    def whole(self, first: str) -> str:
        """Return the descriptor ``(d, 1)`` of the whole photo: the mean over the cells of the first scale."""
        return self.node("Div", self.sum(first, 1), self.size(first))

    def linear(self, maps: list[str]) -> tuple[list[str], str]:
        """Return the votes of `BagSVM`: maps ``(classes, rows, columns)``, and the scores."""
        arrays = self.model.arrays
        power = float(self.model.settings["power"])
        flat = [self.cells(one) for one in maps]
        every = [self.whole(flat[0]), *flat] if self.sampling.whole else flat
        total, count = self.sum(every[0], 1), self.size(every[0])
        for one in every[1:]:
            total, count = self.node("Add", total, self.sum(one, 1)), self.node("Add", count, self.size(one))
        mean = self.node("Div", total, count)
        root = mean
        if power != 1:
            root = self.node(
                "Mul", self.node("Sign", mean), self.node("Pow", self.node("Abs", mean), self.constant(power))
            )
        length = self.node("Sqrt", self.sum(self.node("Mul", root, root), 0))
        none = self.node("Equal", length, self.constant(0.0))
        vector = self.vector = self.node("Div", root, self.node("Where", none, self.constant(1.0), length))
        weights, bias = self.constant(arrays["linear"]), self.constant(arrays["bias"][:, None])
        scores = self.node("Add", self.node("MatMul", weights, vector), bias)
        empty = self.node("Equal", mean, self.constant(0.0))
        share = self.node("Div", vector, self.node("Where", empty, self.constant(1.0), mean))
        shared = self.node("Mul", weights, self.node("Transpose", share, perm=[1, 0]))
        votes = [self.node("Add", self.node("MatMul", shared, one), bias) for one in flat]
        result = [self.as_map(vote, one) for vote, one in zip(votes, maps, strict=True)]
        return result, self.node("Squeeze", scores, self.ints(1))

    def prototypes(self, maps: list[str]) -> tuple[list[str], str]:
        """Return the votes of prototypes: maps ``(classes, rows, columns)``, and the scores."""
        arrays = self.model.arrays
        count, classes, dim = arrays["weights"].shape
        flat = (arrays["weights"].reshape(-1, dim) * arrays["scale"]).astype(np.float32)
        shift = flat @ arrays["mean"].astype(np.float32)
        features = dim - 2 * self.model.positions

        def votes(cells: str, places: tuple[str, str] | None) -> str:
            z = self.node("MatMul", self.constant(flat[:, :features]), cells)
            z = self.node("Sub", z, self.constant(shift[:, None]))
            if places is not None:
                for column, place in enumerate(places):
                    own = self.constant(flat[:, features + column][:, None])
                    z = self.node("Add", z, self.node("Mul", own, place))
            z = self.node("Reshape", self.node("Relu", z), self.ints(count, classes, -1))
            return self.norm(z)

        total, number, result = None, None, []
        levels = [(self.cells(one), self.places(one) if self.model.positions else None, one) for one in maps]
        if self.sampling.whole:
            middle = self.constant([[0.5]])
            vote = votes(self.whole(levels[0][0]), (middle, middle) if self.model.positions else None)
            total, number = vote, self.constant([1.0])
        for cells, places, one in levels:
            vote = votes(cells, places)
            result.append(self.as_map(vote, one))
            own, size = self.sum(vote, 1), self.size(cells)
            total = own if total is None else self.node("Add", total, own)
            number = size if number is None else self.node("Add", number, size)
        scores = self.node("Div", total or "", number or "")
        return result, self.node("Squeeze", scores, self.ints(1))

    def norm(self, z: str) -> str:
        """Return ``||z||_q`` over the first axis of ``(prototypes, classes, cells)``."""
        told = self.model.settings["q"]
        q = math.inf if told == "inf" else float(told)
        if q == 1:
            return self.sum(z, 0, keep=False)
        if q == math.inf:
            parts = self.node("Transpose", z, perm=[1, 2, 0])
            top = self.node("MaxPool", parts, kernel_shape=[self.model.arrays["weights"].shape[0]])
            return self.node("Squeeze", top, self.ints(2))
        if q == 2:
            return self.node("Sqrt", self.sum(self.node("Mul", z, z), 0, keep=False))
        power = self.sum(self.node("Pow", z, self.constant(q)), 0, keep=False)
        return self.node("Pow", power, self.constant(1 / q))

    def places(self, one: str) -> tuple[str, str]:
        """Return the centres of the cells of a map, across and down, each ``(1, cells)``."""
        shape = self.node("Shape", one)
        lines = []
        for axis in (1, 2):
            count = self.node("Gather", shape, self.constant(axis, np.int64))
            steps = self.node("Range", self.constant(0, np.int64), count, self.constant(1, np.int64))
            middle = self.node("Add", self.cast(steps, "FLOAT"), self.constant(0.5))
            lines.append(self.node("Div", middle, self.cast(count, "FLOAT")))
        grid = self.node("Slice", shape, self.ints(1), self.ints(3))
        down = self.node("Expand", self.node("Unsqueeze", lines[0], self.ints(1)), grid)
        across = self.node("Expand", self.node("Unsqueeze", lines[1], self.ints(0)), grid)
        return self.node("Reshape", across, self.ints(1, -1)), self.node("Reshape", down, self.ints(1, -1))


_UNIT = float(1 << 22)  # what Pillow multiplies weights by before it rounds them to whole numbers
_ANSWERS = ("scores", "probability")


def _raised(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Bring a graph of an older set of operations to the one that is spoken here."""
    if graph.opset_import[0].version >= OPSET:
        return graph
    from onnx import version_converter

    return version_converter.convert_version(graph, OPSET)
