"""Open an ONNX file as a network, and write one.

The preprocessing is given in arguments, in a TOML file beside it (`net.toml` beside `net.onnx`), or in the graph's
metadata. Everything else is read from the graph or found by running it (`feature_map`).

The file is not trusted. Loops (they need not end), functions (they can stand for any number of nodes), operations whose
cost depends on the content of a photo, and weights in files outside its folder are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NetworkError
from ..utils.files import file_digest, open_regular, read_bytes, write_file
from ..utils.schema import brief
from ..utils.terminal import nearest
from .base import Activation, NetworkSpec, Preprocessing
from .feature_map import OnnxSettings, adapt
from .graph import all_nodes, cut, output_names, subgraphs
from .session import OnnxBackbone

if TYPE_CHECKING:
    import onnx

_SETTINGS = "patchvote"  # key of a graph's metadata that holds the text of its TOML file
_MAX_TOML_BYTES = 1 << 14  # the largest of our files has 5 kB; the parser's time grows with the square of a line
_MAX_BYTES = (1 << 31) - 1  # of a graph with its weights: the limit of protocol buffers

# Operations whose time or output size depends on the content of an image (a trial run would not tell for the next
# photo), operations on text, and one that names a file. Detectors have some after the features.
_REFUSED = frozenset(
    {"NonMaxSuppression", "NonZero", "Unique", "Compress", "TfIdfVectorizer", "LabelEncoder", "Tokenizer", "EPContext"}
    | {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"}
)
# The standard's domains, and those of ONNX Runtime for quantised and optimised graphs.
_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")


def load(
    path: str | Path, *, activation: Activation = "after", threads: int = 1, device: str = "cpu", **settings: Any
) -> OnnxBackbone:
    """Open an ONNX file as a backbone; fields of `OnnxSettings` override those of the TOML file beside it."""
    path = Path(path)
    model, digest = read_graph(path)
    chosen = dataclasses.replace(_settings_of(path, model), **settings)
    names = output_names(model)
    if chosen.output is None and len(names) != 1:
        raise NetworkError(
            f"{path} has {len(names)} outputs ({', '.join(names)[:500]}): say which to read, with output=… or in a "
            f'line output = "…" of {path.with_suffix(".toml").name} beside it.'
        )
    wanted = NetworkSpec(str(path), 0, 0, None, Preprocessing(), activation, digest, chosen.output or names[0])
    return backbone_of(model, wanted, chosen, lambda: read_graph(path)[0], threads=threads, device=device)


def backbone_of(
    model: onnx.ModelProto,
    wanted: NetworkSpec,
    settings: OnnxSettings,
    read: Callable[[], onnx.ModelProto],
    *,
    threads: int,
    device: str,
) -> OnnxBackbone:
    """Return what computes `wanted.output` in an untrusted graph as a backbone; `read` reads the graph again."""

    def part(whole: onnx.ModelProto) -> onnx.ModelProto:
        used = cut(whole, wanted.output, wanted.activation)
        _check_operations(used, wanted.name)
        return used

    _, spec, session = adapt(part(model), wanted, settings, threads=threads, device=device)
    return OnnxBackbone(spec, session, lambda: adapt(part(read()), wanted, settings)[0])


def _settings_of(path: Path, model: onnx.ModelProto) -> OnnxSettings:
    """Read the TOML file beside an ONNX file; without one, the settings that the graph holds, or the defaults."""
    file = path.with_suffix(".toml")
    try:
        if os.path.exists(file):  # noqa: PTH110 - Path.exists raises for names that no file can have
            content = read_bytes(file, _MAX_TOML_BYTES).decode()
        else:
            content = next((one.value for one in model.metadata_props if one.key == _SETTINGS), "")
        if len(content) > _MAX_TOML_BYTES:
            raise ValueError(f"it has more than {_MAX_TOML_BYTES:,} characters")
        table = tomllib.loads(content)
    except OSError as error:
        raise NetworkError(f"{file} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise NetworkError(f"{file} is not a TOML file: {error}") from None
    known = [field.name for field in dataclasses.fields(OnnxSettings)]
    for key in table:
        if key not in known:
            raise NetworkError(f"{file} has an unknown key {brief(key)}.{nearest(key[:40], known)}")
    return OnnxSettings(**table)


def write_network(path: str | Path, graph: onnx.ModelProto, spec: NetworkSpec) -> Path:
    """Write a graph, whose first output is the descriptors, and its settings beside it and in it; return its path."""
    import onnx

    path, preprocessing = Path(path), spec.preprocessing
    lines = [
        "# Settings of a network, written by patchvote",
        f"output = {json.dumps(graph.graph.output[0].name, ensure_ascii=False)}",  # a name may hold quotes
        f"mean = {list(preprocessing.mean)}",
        f"scale = {list(preprocessing.scale)}",
        f'color = "{preprocessing.color}"',
        f"size = {spec.size}",
        *([] if spec.stride is None else [f"stride = {spec.stride}"]),
    ]
    text = "\n".join([*lines, ""])
    marked = onnx.ModelProto()
    marked.CopyFrom(graph)
    marked.producer_name = "patchvote"
    onnx.helper.set_model_props(marked, {_SETTINGS: text})
    write_file(path, [marked.SerializeToString()])
    write_file(path.with_suffix(".toml"), [text.encode()])
    return path


# --- reading a file that is not trusted -------------------------------------------------------------------------------


def read_graph(path: Path, locate: Callable[[str], Path] | None = None) -> tuple[onnx.ModelProto, str]:
    """Return the model of an ONNX file, and the digest of the file together with its files of weights.

    `locate` returns the file of weights for the name in the graph; by default, it is in the folder of the graph.
    """
    import onnx

    try:
        content = read_bytes(path, _MAX_BYTES)
        model = onnx.load_from_string(content)
        digest = hashlib.sha256(content).hexdigest()
        tensors = [tensor for tensor in _tensors(model) if tensor.data_location == tensor.EXTERNAL]
        locate = locate or functools.partial(_inside, path)
        files = {name: locate(name) for name in dict.fromkeys(map(_location, tensors))}
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


def _check_operations(model: onnx.ModelProto, name: str) -> None:
    """Refuse functions, loops, and operations that descriptors do not need; `model` is the part that is used."""
    if model.functions:
        raise NetworkError(f"{name} has functions of its own: inline them, with onnx.inliner.inline_local_functions.")
    for node in all_nodes(model.graph.node):
        is_branch = node.op_type == "If" and node.domain in ("", "ai.onnx")
        is_loop = any(subgraphs(node)) and not is_branch
        if is_loop or node.op_type in _REFUSED or node.domain not in _DOMAINS:
            operation = node.op_type if node.domain in _DOMAINS else f"{node.domain}.{node.op_type}"
            raise NetworkError(
                f"{name} has the operation {operation[:80]!r}, which descriptors of photos do not need and which may "
                "take unlimited time. Read a tensor before it (output=…), or export the network without it."
            )


def _inside(path: Path, name: str) -> Path:
    """Return a file of weights in the folder of a graph; refuse all others."""
    folder = path.parent.resolve()
    file = (folder / name).resolve()
    if not name or not file.is_relative_to(folder):
        raise NetworkError(f"{path} has weights in {name[:80]!r}, which is not a file in its folder.")
    return file


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
    """Yield all constants of a model, including those of nested graphs and attributes."""
    nodes = list(all_nodes(model.graph.node))
    attributes = [attribute for node in nodes for attribute in node.attribute]
    graphs = [model.graph, *(graph for node in nodes for graph in subgraphs(node))]
    sparse = [tensor for graph in graphs for tensor in graph.sparse_initializer]
    for graph in graphs:
        yield from graph.initializer
    for attribute in attributes:
        yield from (attribute.t, *attribute.tensors)
        sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)
