"""Networks of torch, timm and torchvision: converted to ONNX once, cached, and run by ONNX Runtime.

A name consists of the engine, the network and the layer to read:

- ``torch:package.module:function@layer``: the function returns the module, ready for use;
- ``timm:resnet18@layer4``, ``torchvision:vgg16@fc7``: a network of that library.

Without a layer, the output of the network is read (for timm, the features before the head). ``fc6`` and ``fc7`` are the
first and second linear layer of a network's ``classifier``, as in AlexNet and VGG. Where an activation follows the
layer, descriptors are read after it, or before it with ``activation="before"``. The tokens of a transformer become a
map of rows and columns without class and register tokens (a module may state their number in ``num_prefix_tokens``).

Options follow a question mark and are joined by ``&``: ``weights=FILE.safetensors`` loads weights, ``pretrained=yes``
lets timm or torchvision download theirs (nothing is downloaded otherwise), ``size=224`` is the side of the input, for
which timm interpolates the position embeddings of a transformer. A network is converted again when the file of the
function, the version of the library or the file of weights changes. Changes of weights that a function reads itself are
not detected.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
from pathlib import Path

from ..errors import NetworkError
from ..utils.files import file_digest
from .base import Activation, NetworkSpec, Preprocessing
from .cache import cached_graph
from .names import NetworkName, whole_pixels
from .onnx_backbone import OnnxBackbone

_BUILD = 2  # version of the conversion; increment it, and all cached networks are converted again
_OPTIONS = ("weights", "pretrained", "size")


def load(name: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> OnnxBackbone:
    """Load a network by its name; convert it where it is not in the cache.

    Raises
    ------
    NetworkError
        The library is not installed, there is no such network or layer, or it cannot be converted.
    """
    parsed = _parse(name)

    def read() -> bytes:
        return _graph(name, parsed, activation)

    graph = read()
    blank = NetworkSpec(name, 0, 0, None, Preprocessing(), activation, "", "")
    backbone = OnnxBackbone(blank, graph, threads, device, read=read)
    meta = json.loads(backbone.session.metadata["patchvote"])
    backbone.spec = NetworkSpec(
        name=name,
        dim=meta["dim"],
        size=meta["size"],
        stride=meta["stride"],
        preprocessing=Preprocessing(tuple(meta["mean"]), tuple(meta["scale"])),
        activation=activation,
        weights=hashlib.sha256(graph).hexdigest(),
        output=meta["output"],
        fixed_size=(meta["size"], meta["size"]) if meta["fixed"] else None,
    )
    return backbone


def _parse(name: str) -> NetworkName:
    """Split a name into its parts, and check them."""
    parsed = NetworkName.parse(name, _OPTIONS)
    if not parsed.what or (parsed.engine == "torch" and ":" not in parsed.what):
        form = "torch:package.module:function@layer" if parsed.engine == "torch" else f"{parsed.engine}:name@layer"
        raise NetworkError(f"{name!r} does not name a network. Names have the form {form}.")
    if "size" in parsed.options:
        whole_pixels("size", parsed.options["size"])
    return parsed


def _graph(name: str, parsed: NetworkName, activation: Activation) -> bytes:
    """Return the graph of a network, from its input to the layer, from the cache or newly converted."""
    parts = [name, activation, str(_BUILD), _source_digest(parsed)]
    if "weights" in parsed.options:
        parts.append(file_digest(_weights_file(parsed.options["weights"])))
    key = f"{parsed.engine}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"

    def build() -> bytes:
        from .torch_convert import convert

        return convert(parsed, activation)

    return cached_graph(key, build)


def _weights_file(path: str) -> Path:
    file = Path(path)
    if file.suffix != ".safetensors":
        raise NetworkError(
            f"{path} is not a safetensors file. A torch checkpoint may run any code when it is read; convert one that "
            "you trust with safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW)."
        )
    if not file.is_file():
        raise NetworkError(f"there is no file {path}.")
    return file


def _source_digest(parsed: NetworkName) -> str:
    """Return a value that changes with the code of a network: digest of a function's file, or version of a library."""
    if parsed.engine != "torch":
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(parsed.engine)
        return ""
    module = parsed.what.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module)  # imports the parent packages
    except (ImportError, ValueError) as error:
        if getattr(error, "name", None) == "torch":
            raise NetworkError("torch is not installed. Install it with: pip install 'patchvote[torch]'") from None
        spec = None
    if spec is None:
        raise NetworkError(f"there is no module {module!r} that Python can import. Is it on PYTHONPATH?")
    return file_digest(Path(spec.origin)) if spec.origin and Path(spec.origin).is_file() else ""
