"""Networks of torch, timm and torchvision: converted to ONNX once, kept in the cache, and run by ONNX Runtime.

A name says the engine, what it shall make, and the layer to read:

- ``torch:package.module:function@layer``: what the function returns, a module in the state it is to be used in;
- ``timm:resnet18@layer4``, ``torchvision:vgg16@fc7``: a network of that library.

Without a layer, the output of the network is read (of timm's, the features before its head). ``fc6`` and ``fc7`` mean
the first and second linear layer of a network's ``classifier``, as in AlexNet and VGG. A layer that an activation
follows is read after it, or before it with the recipe's ``activation``. Tokens of a transformer become a map of rows
and columns; class and register tokens are left out (a module may say how many they are: ``num_prefix_tokens``).

Options stand behind a question mark, joined by ``&``: ``weights=FILE.safetensors`` loads weights, ``pretrained=yes``
lets timm or torchvision fetch their own (nothing is downloaded otherwise), ``size=224`` is the side of the input. A
conversion is made again when the function's file, the library's version or the file of weights changes; weights that a
function reads by itself are not looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import re
from pathlib import Path

from ..errors import NetworkError
from ..utils.files import file_digest
from .base import Activation, NetworkSpec, Preprocessing
from .cache import cached_graph
from .names import NetworkName
from .onnx_backbone import OnnxBackbone

_BUILD = 1  # of the conversion; a higher number makes every cache convert again
_OPTIONS = ("weights", "pretrained", "size")


def load(name: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> OnnxBackbone:
    """Load a network by its name, converting it where the cache does not have it.

    Raises
    ------
    NetworkError
        The library is not installed, the network or layer is not there, or it cannot be converted.
    """
    asked = _parse(name)

    def read() -> bytes:
        return _graph(name, asked, activation)

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
    """Cut a name into its parts, and refuse one that no engine here can make."""
    asked = NetworkName.parse(name, _OPTIONS)
    if not asked.what or (asked.engine == "torch" and ":" not in asked.what):
        form = "torch:package.module:function@layer" if asked.engine == "torch" else f"{asked.engine}:name@layer"
        raise NetworkError(f"{name!r} does not name a network. Names have the form {form}.")
    size = asked.options.get("size", "1")
    if not re.fullmatch(r"[1-9]\d{0,3}", size):
        raise NetworkError(f"size must be a whole number of pixels, got {size!r}.")
    return asked


def _graph(name: str, asked: NetworkName, activation: Activation) -> bytes:
    """Return the graph of a network, from its input to the layer, as the cache has it or newly converted."""
    parts = [name, activation, str(_BUILD), _source_digest(asked)]
    if "weights" in asked.options:
        parts.append(file_digest(_weights_file(asked.options["weights"])))
    key = f"{asked.engine}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"

    def build() -> bytes:
        from .torch_convert import convert

        return convert(asked, activation)

    return cached_graph(key, build)


def _weights_file(path: str) -> Path:
    file = Path(path)
    if file.suffix != ".safetensors":
        raise NetworkError(
            f"{path} is not a safetensors file. A torch checkpoint may run anything when it is read; turn one that you "
            "trust into safetensors with safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW)."
        )
    if not file.is_file():
        raise NetworkError(f"there is no file {path}.")
    return file


def _source_digest(asked: NetworkName) -> str:
    """Return what changes when the code behind a name does: of a function its file, of a library its version."""
    if asked.engine != "torch":
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(asked.engine)
        return ""
    module = asked.what.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)  # imports the packages that it lies in
    except (ImportError, ValueError) as error:
        if getattr(error, "name", None) == "torch":
            raise NetworkError("torch is not installed. Install it with: pip install 'patchvote[torch]'") from None
        found = None
    if found is None:
        raise NetworkError(f"there is no module {module!r} that Python can import. Is it on PYTHONPATH?")
    return file_digest(Path(found.origin)) if found.origin and Path(found.origin).is_file() else ""
