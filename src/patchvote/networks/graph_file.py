"""Read an untrusted ONNX file.

Pipes and devices cannot block the reader. A file is refused where its graph has loops (they need not end), operations
whose cost depends on the content of a photo, functions that expand to too many nodes, or weights in files outside its
folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
# photo), operations on text, and one that names a file. Descriptors need none of them; detectors have some after the
# features.
_REFUSED = frozenset(
    {"NonMaxSuppression", "NonZero", "Unique", "Compress", "TfIdfVectorizer", "LabelEncoder", "Tokenizer", "EPContext"}
    | {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"}
)
# The standard's domains, and those of ONNX Runtime for quantised and optimised graphs. A graph may define more.
_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")

Functions = dict[tuple[str, str], "onnx.FunctionProto"]


def read_graph(path: Path, cache: Path | None = None, fetch: Callable[[str], object] | None = None) -> tuple[Any, str]:
    """Return the model of an ONNX file, and the digest of the file together with its files of weights.

    Parameters
    ----------
    path : path
        ONNX file.
    cache : path, optional
        Folder of a cache in which the files beside the graph may be links to other files of the cache; by default they
        may not lead out of the folder of the graph.
    fetch : function, optional
        Called with the name of every file of weights, relative to the graph, before it is opened.

    Raises
    ------
    NetworkError
        The file cannot be read, is not an ONNX file, or is refused.
    """
    import onnx

    try:
        content = read_bytes(path, _MAX_BYTES)
        model = onnx.load_from_string(content)
        digest = hashlib.sha256(content).hexdigest()
        _check_nodes(model, path)
        files = _check_weights(model, path, cache, fetch)
        if files:
            for tensor in filter(_is_outside, _tensors(model)):
                _load_weights(tensor, files)
            digests = [digest, *(file_digest(files[location]) for location in sorted(files))]
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
    locations = {location for tensor in _tensors(model) if (location := _reference(tensor).get("location"))}
    return [path.parent / location for location in sorted(locations)]


# --- nodes ------------------------------------------------------------------------------------------------------------


def _check_nodes(model: onnx.ModelProto, path: Path) -> None:
    """Refuse loops, and functions that expand to more nodes than any network has."""
    for node in nodes_of(model):
        is_branch = node.op_type == "If" and node.domain in ("", "ai.onnx")
        if not is_branch and any(subgraphs(node)):
            raise NetworkError(
                f"{path} has a loop ({node.op_type[:40]!r}), which need not end. Networks for photos need none: export "
                "it with its loops unrolled."
            )
    functions = {(function.domain, function.name): function for function in model.functions}
    if _expanded_size(model.graph.node, functions, {}, 0) > _MAX_NODES:
        raise NetworkError(f"{path} has more than {_MAX_NODES:,} operations, which is more than any network has.")


def check_operations(model: onnx.ModelProto, path: Path) -> None:
    """Refuse operations that descriptors do not need; `model` is the part of a graph that is used.

    Raises
    ------
    NetworkError
        The model has such an operation.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    for node in nodes_of(model):
        if (node.domain, node.op_type) in functions:
            continue
        if node.op_type in _REFUSED or node.domain not in _DOMAINS:
            name = f"{node.domain}.{node.op_type}" if node.domain not in _DOMAINS[:2] else node.op_type
            raise NetworkError(
                f"{path} has the operation {name[:80]!r}, which descriptors of photos do not need and which may "
                "take unlimited time. Read a tensor before it (output=…), or export the network without it."
            )


def _expanded_size(
    nodes: Iterable[onnx.NodeProto], functions: Functions, known: dict[tuple[str, str], int], depth: int
) -> int:
    """Return the number of nodes with all functions expanded, or any number above the limit where it is exceeded."""
    if depth > _MAX_DEPTH:  # also where a function calls itself
        return _MAX_NODES + 1
    count = 0
    for node in all_nodes(nodes):
        key = (node.domain, node.op_type)
        if key in functions and key not in known:
            known[key] = _expanded_size(functions[key].node, functions, known, depth + 1)
        count += known.get(key, 1)
        if count > _MAX_NODES:
            break
    return count


# --- weights in files of their own ------------------------------------------------------------------------------------


def _check_weights(
    model: onnx.ModelProto, path: Path, cache: Path | None, fetch: Callable[[str], object] | None
) -> dict[str, Path]:
    """Return the files of weights; they must be ordinary files in the folder of the graph, and not too large."""
    folder, total = path.parent.resolve(), 0
    files: dict[str, Path] = {}
    for tensor in filter(_is_outside, _tensors(model)):
        reference = _reference(tensor)
        location = reference.get("location", "")
        # In a cache, a link may lead out of the folder; the name itself may not.
        named = location and ".." not in Path(location).parts and (folder / location).is_relative_to(folder)
        if named and fetch is not None and location not in files:
            fetch(location)
        file = (folder / location).resolve()
        if not named or not file.is_relative_to(folder if cache is None else cache.resolve()):
            raise NetworkError(f"{path} has weights in {location[:80]!r}, which is not a file in its folder.")
        with open_regular(file) as opened:
            size = opened.seek(0, 2)
        total += min(size, int(reference.get("length") or size))
        if total > _MAX_BYTES:
            raise NetworkError(f"{path} has more than {_MAX_BYTES:,} bytes of weights.")
        files[location] = file
    return files


def _load_weights(tensor: onnx.TensorProto, files: dict[str, Path]) -> None:
    """Put the content of a tensor, which is in one of the files, into the tensor itself."""
    reference = _reference(tensor)
    with open_regular(files[reference["location"]]) as file:
        size, offset = file.seek(0, 2), int(reference.get("offset") or 0)
        length = int(reference.get("length") or max(0, size - offset))
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"the tensor {tensor.name[:80]!r} is said to lie outside of its file of weights")
        file.seek(offset)
        tensor.raw_data = file.read(length)
    tensor.data_location = tensor.DEFAULT
    del tensor.external_data[:]


def _reference(tensor: onnx.TensorProto) -> dict[str, str]:
    """Return where the content of a tensor is, by key; empty where it is in the tensor itself."""
    return {entry.key: entry.value for entry in tensor.external_data}


def _is_outside(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == tensor.EXTERNAL)


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all constants of a model, including those of nested graphs, functions and attributes."""
    yield from _constants(model.graph)
    for node in nodes_of(model):
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
