"""Read an ONNX file, whatever it holds.

A file may come from anyone. It is read without waiting for pipes and devices, and refused where its graph holds loops
(they need not end), operations whose cost depends on what a photo shows, functions that unfold without bound, or
weights in files outside its folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NetworkError
from ..utils.files import file_digest
from ..utils.onnx_graph import all_nodes, subgraphs
from ..utils.reading import open_regular, read_bytes

if TYPE_CHECKING:
    import onnx

_MAX_BYTES = (1 << 31) - 1  # of a graph with its weights: no message of protocol buffers can be larger
_MAX_NODES = 200_000  # with all functions unfolded; the largest networks have some thousands
_MAX_DEPTH = 100  # of functions that use functions

# Operations that take longer for some images than for others, or return more (a trial run would say nothing of the next
# photo), operations on text, and one that names a file. Descriptors need none; detectors have some behind the features.
_REFUSED = frozenset(
    {"NonMaxSuppression", "NonZero", "Unique", "Compress", "TfIdfVectorizer", "LabelEncoder", "Tokenizer", "EPContext"}
    | {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"}
)
# The standard, and ONNX Runtime's own for quantised and optimised graphs. A graph may define further ones itself.
_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")

Functions = dict[tuple[str, str], "onnx.FunctionProto"]


def read_graph(path: Path) -> tuple[Any, str]:
    """Read an ONNX file, and the digest of it and of the files beside it that hold its weights, where it has such.

    Raises
    ------
    NetworkError
        It cannot be read, is not an ONNX file, or holds what is refused.
    """
    import onnx

    try:
        content = read_bytes(path, _MAX_BYTES)
        model = onnx.load_from_string(content)
        digest = hashlib.sha256(content).hexdigest()
        _check_nodes(model, path)
        locations = _check_weights(model, path)
        if locations:
            onnx.load_external_data_for_model(model, str(path.parent))
            digests = [digest, *(file_digest(path.parent / location) for location in sorted(locations))]
            digest = hashlib.sha256("".join(digests).encode()).hexdigest()
            if any(_is_outside(tensor) for tensor in _tensors(model)):  # ONNX Runtime would look for them anywhere
                raise NetworkError(f"{path} has weights in other files where only ONNX Runtime would find them.")
    except NetworkError:
        raise
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror or error}. Is the path right?") from None
    except Exception as error:  # what the protobuf reader raises differs between its versions
        raise NetworkError(f"{path} is not an ONNX file: {error}") from None
    return model, digest


def weight_files(path: Path) -> list[Path]:
    """Return the files that hold weights of an ONNX file, wherever it says; none where it cannot be read."""
    import onnx

    try:
        model = onnx.load_from_string(read_bytes(path, _MAX_BYTES))
    except Exception:  # whoever uses the network will learn what is wrong with it
        return []
    told = [{entry.key: entry.value for entry in tensor.external_data} for tensor in _tensors(model)]
    return [path.parent / location for location in sorted({one["location"] for one in told if one.get("location")})]


# --- nodes ------------------------------------------------------------------------------------------------------------


def _check_nodes(model: onnx.ModelProto, path: Path) -> None:
    """Refuse loops, and functions that unfold to more than a network can have."""
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    for node in (node for body in bodies for node in all_nodes(body)):
        plain = node.op_type == "If" and node.domain in ("", "ai.onnx")
        if not plain and any(subgraphs(node)):
            raise NetworkError(
                f"{path} has a loop ({node.op_type[:40]!r}), which need not end. Networks that look at photos do "
                "without: export it with its loops unrolled."
            )
    functions = {(function.domain, function.name): function for function in model.functions}
    if _unfolded(model.graph.node, functions, {}, 0) > _MAX_NODES:
        raise NetworkError(f"{path} has more than {_MAX_NODES:,} operations, which is more than any network has.")


def check_operations(model: onnx.ModelProto, path: Path) -> None:
    """Refuse operations that no network needs to describe a photo; `model` is the part of a graph that is used.

    Raises
    ------
    NetworkError
        There is such an operation.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    for body in [model.graph.node, *(function.node for function in model.functions)]:
        for node in all_nodes(body):
            if (node.domain, node.op_type) in functions:
                continue
            if node.op_type in _REFUSED or node.domain not in _DOMAINS:
                name = f"{node.domain}.{node.op_type}" if node.domain not in _DOMAINS[:2] else node.op_type
                raise NetworkError(
                    f"{path} has the operation {name[:80]!r}, which descriptors of photos do not need and which may "
                    "take any time. Read a tensor before it (output=…), or export the network without it."
                )


def _unfolded(
    nodes: Iterable[onnx.NodeProto], functions: Functions, known: dict[tuple[str, str], int], depth: int
) -> int:
    """Return how many nodes there are once every function stands where it is used; above the limit, any such number."""
    if depth > _MAX_DEPTH:  # also where a function uses itself
        return _MAX_NODES + 1
    count = 0
    for node in all_nodes(nodes):
        key = (node.domain, node.op_type)
        if key in functions and key not in known:
            known[key] = _unfolded(functions[key].node, functions, known, depth + 1)
        count += known.get(key, 1)
        if count > _MAX_NODES:
            break
    return count


# --- weights in files of their own ------------------------------------------------------------------------------------


def _check_weights(model: onnx.ModelProto, path: Path) -> set[str]:
    """Return the files that hold weights; they must be ordinary files in the folder of the graph, and not too large."""
    folder, total, locations = path.parent.resolve(), 0, set()
    for tensor in filter(_is_outside, _tensors(model)):
        told = {entry.key: entry.value for entry in tensor.external_data}
        location = told.get("location", "")
        file = (folder / location).resolve()
        if not location or not file.is_relative_to(folder):
            raise NetworkError(f"{path} wants weights from {location[:80]!r}, which is not a file in its own folder.")
        with open_regular(file) as opened:
            size = opened.seek(0, 2)
        total += min(size, int(told.get("length") or size))
        if total > _MAX_BYTES:
            raise NetworkError(f"{path} has more than {_MAX_BYTES:,} bytes of weights.")
        locations.add(location)
    return locations


def _is_outside(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == tensor.EXTERNAL)


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all constants of a model, wherever they stand."""
    yield from _constants(model.graph)
    for body in [model.graph.node, *(function.node for function in model.functions)]:
        for node in all_nodes(body):
            for graph in subgraphs(node):
                yield from _constants(graph)
            for attribute in node.attribute:
                yield from [attribute.t, *attribute.tensors]
                for sparse in [attribute.sparse_tensor, *attribute.sparse_tensors]:
                    yield from (sparse.values, sparse.indices)


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
