"""Read an untrusted ONNX file.

Loops (they need not end), operations whose cost depends on the content of a photo, functions that expand to too many
nodes, and weights in files outside its folder are refused. Pipes and devices cannot block the reader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NetworkError
from ..utils.files import file_digest
from ..utils.onnx_graph import all_nodes, nodes_of, subgraphs
from ..utils.reading import open_regular, read_bytes

if TYPE_CHECKING:
    import onnx

_MAX_BYTES = (1 << 31) - 1  # of a graph with its weights: the limit of protocol buffers
_MAX_NODES = 200_000  # with all functions expanded; the largest networks have some thousands
_MAX_DEPTH = 100  # of functions that call functions; real networks have a few levels

# Operations whose time or output size depends on the content of an image (a trial run would not tell for the next
# photo), operations on text, and one that names a file. Detectors have some after the features.
_REFUSED = frozenset(
    {"NonMaxSuppression", "NonZero", "Unique", "Compress", "TfIdfVectorizer", "LabelEncoder", "Tokenizer", "EPContext"}
    | {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"}
)
# The standard's domains, and those of ONNX Runtime for quantised and optimised graphs. A graph may define more.
_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")


def read_graph(path: Path, locate: Callable[[str], Path] | None = None) -> tuple[onnx.ModelProto, str]:
    """Return the model of an ONNX file, and the digest of the file together with its files of weights.

    `locate` returns the file of weights for the name in the graph; by default, it is in the folder of the graph.
    """
    import onnx

    try:
        content = read_bytes(path, _MAX_BYTES)
        model = onnx.load_from_string(content)
        digest = hashlib.sha256(content).hexdigest()
        _check_nodes(model, path)
        tensors = [tensor for tensor in _tensors(model) if tensor.data_location == tensor.EXTERNAL]
        files = {name: (locate or _inside(path))(name) for name in dict.fromkeys(map(_location, tensors))}
        spans = [_span(tensor, files[_location(tensor)]) for tensor in tensors]
        if sum(length for _, _, length in spans) > _MAX_BYTES:
            raise NetworkError(f"{path} has more than {_MAX_BYTES:,} bytes of weights.")
        for tensor, (file, offset, length) in zip(tensors, spans, strict=True):
            with open_regular(file) as opened:
                opened.seek(offset)
                tensor.raw_data = opened.read(length)
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]
        if files:
            digests = [digest, *(file_digest(files[name]) for name in sorted(files))]
            digest = hashlib.sha256("".join(digests).encode()).hexdigest()
    except NetworkError:
        raise
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror or error}. Is the path right?") from None
    except Exception as error:  # what the protobuf reader raises differs between its versions
        raise NetworkError(f"{path} is not an ONNX file: {error}") from None
    return model, digest


def weight_files(path: Path) -> list[Path]:
    """Return the files of weights that an ONNX file names, in any folder; none where it cannot be read."""
    import onnx

    try:
        model = onnx.load_from_string(read_bytes(path, _MAX_BYTES))
    except Exception:  # loading the network will report what is wrong
        return []
    return [path.parent / name for name in sorted(filter(None, set(map(_location, _tensors(model)))))]


def _check_nodes(model: onnx.ModelProto, path: Path) -> None:
    """Refuse loops, and functions that expand to more nodes than any network has."""
    for node in nodes_of(model):
        is_branch = node.op_type == "If" and node.domain in ("", "ai.onnx")
        if not is_branch and any(subgraphs(node)):
            raise NetworkError(
                f"{path} has a loop ({node.op_type[:40]!r}), which need not end. Export it with its loops unrolled."
            )
    functions = {(function.domain, function.name): function for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def expanded(nodes: Iterable[onnx.NodeProto], depth: int) -> int:
        """Return the number of nodes with all functions expanded, or any number above the limit."""
        if depth > _MAX_DEPTH:  # also where a function calls itself
            return _MAX_NODES + 1
        count = 0
        for node in all_nodes(nodes):
            key = (node.domain, node.op_type)
            if key in functions and key not in sizes:
                sizes[key] = expanded(functions[key].node, depth + 1)
            count += sizes.get(key, 1)
            if count > _MAX_NODES:
                break
        return count

    if expanded(model.graph.node, 0) > _MAX_NODES:
        raise NetworkError(f"{path} has more than {_MAX_NODES:,} operations, which is more than any network has.")


def check_operations(model: onnx.ModelProto, name: str) -> None:
    """Refuse operations that descriptors do not need; `model` is the part of a graph that is used."""
    functions = {(function.domain, function.name) for function in model.functions}
    for node in nodes_of(model):
        if (node.domain, node.op_type) in functions:
            continue
        if node.op_type in _REFUSED or node.domain not in _DOMAINS:
            operation = node.op_type if node.domain in _DOMAINS else f"{node.domain}.{node.op_type}"
            raise NetworkError(
                f"{name} has the operation {operation[:80]!r}, which descriptors of photos do not need and which may "
                "take unlimited time. Read a tensor before it (output=…), or export the network without it."
            )


def _inside(path: Path) -> Callable[[str], Path]:
    """Return a function that finds files of weights in the folder of a graph, and refuses all others."""
    folder = path.parent.resolve()

    def locate(name: str) -> Path:
        file = (folder / name).resolve()
        if not name or not file.is_relative_to(folder):
            raise NetworkError(f"{path} has weights in {name[:80]!r}, which is not a file in its folder.")
        return file

    return locate


def _span(tensor: onnx.TensorProto, file: Path) -> tuple[Path, int, int]:
    """Return the file of weights that holds the content of a tensor, where it begins, and its length."""
    reference = {entry.key: entry.value for entry in tensor.external_data}
    with open_regular(file) as opened:
        size = opened.seek(0, 2)
    offset = int(reference.get("offset") or 0)
    length = int(reference.get("length") or max(0, size - offset))
    if offset < 0 or length < 0 or offset + length > size:
        raise ValueError(f"the tensor {tensor.name[:80]!r} is outside its file of weights")
    return file, offset, length


def _location(tensor: onnx.TensorProto) -> str:
    """Return the name of the file that holds the content of a tensor; empty where it is in the tensor itself."""
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all constants of a model, including those of nested graphs, functions and attributes."""
    for graph in (model.graph, *(graph for node in nodes_of(model) for graph in subgraphs(node))):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes_of(model):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
