"""Networks of torch, timm and torchvision: converted to ONNX once, cached, and run by ONNX Runtime.

- ``torch:package.module:function@layer``: the function returns the module, ready for use;
- ``timm:resnet18@layer4``, ``torchvision:vgg16@fc7``: a network of that library.

Without a layer, the output of the network is read (for timm, the features before the head). ``fc6`` and ``fc7`` are the
first and second linear layer of a network's ``classifier``, as in AlexNet and VGG. Where an activation follows the
layer, descriptors are read after it, or before it with ``activation="before"``.

Options: ``weights=FILE.safetensors`` loads weights, ``pretrained=yes`` lets timm or torchvision download theirs
(nothing is downloaded otherwise), ``size=224`` is the side of the input, for which timm interpolates the position
embeddings of a transformer. A network is converted again when the file of the function, the version of the library or
the file of weights changes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, first_line
from ..utils.files import file_digest
from ..utils.schema import brief
from .base import Activation, NetworkSpec, Preprocessing
from .cache import cached_graph
from .feature_map import OnnxSettings, adapt
from .graph import cut, cut_at_layer, output_names
from .names import NetworkName
from .session import OnnxBackbone, Session

if TYPE_CHECKING:
    import onnx

_BUILD = 3  # version of the conversion; increment it, and all cached networks are converted again
_IMAGENET = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # mean and scale that most networks were trained with
_SIZE = 224


def load(name: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> OnnxBackbone:
    """Load a network by its name; convert it where it is not in the cache."""
    parsed = NetworkName.parse(name, ("weights", "pretrained", "size"))
    if not parsed.what or (parsed.engine == "torch" and ":" not in parsed.what):
        form = "torch:package.module:function@layer" if parsed.engine == "torch" else f"{parsed.engine}:name@layer"
        raise NetworkError(f"{name!r} does not name a network. Names have the form {form}.")
    parts = [name, activation, str(_BUILD), _source_digest(parsed)]
    if file := parsed.options.get("weights"):
        if not file.endswith(".safetensors"):
            raise NetworkError(f"{file} is not a safetensors file. A checkpoint of torch may run any code.")
        try:
            parts.append(file_digest(Path(file)))
        except OSError as error:
            raise NetworkError(f"{file} cannot be read: {error.strerror or error}.") from None
    key = f"{parsed.engine}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"

    def read() -> bytes:
        return cached_graph(key, lambda: _converted(name, parsed, activation))

    def graph() -> onnx.ModelProto:
        import onnx

        return onnx.load_from_string(read())

    content = read()
    session = Session(content, name, threads=threads, device=device)
    fields = json.loads(session.metadata["patchvote"])
    pixels, fixed = fields.pop("preprocessing"), fields.pop("fixed_size")
    fields["preprocessing"] = Preprocessing(tuple(pixels["mean"]), tuple(pixels["scale"]))
    fields["fixed_size"] = fixed and tuple(fixed)
    fields["weights"] = hashlib.sha256(content).hexdigest()
    return OnnxBackbone(NetworkSpec(**fields), session, graph)


def _source_digest(parsed: NetworkName) -> str:
    """Return a value that changes with the code of a network: digest of a function's file, or version of a library."""
    if parsed.engine != "torch":
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(parsed.engine)
        return ""
    module = parsed.what.partition(":")[0]
    spec = _import(module, importlib.util.find_spec)  # imports the parent packages
    if spec is None:
        raise NetworkError(f"there is no module {module!r} that Python can import. Is it on PYTHONPATH?")
    return file_digest(Path(spec.origin)) if spec.origin and Path(spec.origin).is_file() else ""


def _import(module: str, find: Callable[[str], Any] = importlib.import_module) -> Any:
    try:
        return find(module)
    except Exception as error:  # a broken installation may raise anything
        package = str(getattr(error, "name", None) or "").partition(".")[0]
        extra = {"torch": "'patchvote[torch]'", "timm": "timm", "torchvision": "torchvision"}.get(package)
        hint = f". Install it with: pip install {extra}" if extra else "."
        raise NetworkError(f"{module} cannot be imported: {first_line(error)}{hint}") from None


# --- modules ----------------------------------------------------------------------------------------------------------


def _made(network: NetworkName) -> tuple[Any, OnnxSettings]:
    """Return the module of a name with its weights, in evaluation mode, and how pixels become its input."""
    library = network.engine != "torch"
    if library and network.options.get("pretrained") != "yes" and "weights" not in network.options:
        raise NetworkError(
            f"{network.engine}:{network.what} would have random weights: name a file of weights with "
            f"?weights=FILE.safetensors, or let {network.engine} download its own with ?pretrained=yes."
        )
    try:
        module, settings = {"timm": _of_timm, "torchvision": _of_torchvision}.get(network.engine, _of_function)(network)
        if "weights" in network.options and not (network.engine == "timm" and "size" in network.options):
            from safetensors.torch import load_file

            module.load_state_dict(load_file(network.options["weights"]))
    except NetworkError:
        raise
    except Exception as error:  # the user's code may raise anything, and the libraries where weights do not fit
        reason = " ".join(str(error).split())[:500] or type(error).__name__
        raise NetworkError(f"{network.what} cannot be made, or its weights do not fit: {reason}") from error
    if "size" in network.options:
        settings = dataclasses.replace(settings, size=int(network.options["size"]))
    return module.eval(), settings


def _of_timm(network: NetworkName) -> tuple[Any, OnnxSettings]:
    timm, options = _import("timm"), network.options
    if not timm.is_model(network.what):
        raise NetworkError(f"timm has no network {network.what!r}.")
    if "size" in options:
        # A transformer is built for one size. timm interpolates its position embeddings where it loads weights itself,
        # so a file of weights is handed to it. Networks that take images of any size have no setting img_size.
        overlay = {"pretrained_cfg_overlay": {"file": options["weights"]}} if "weights" in options else {}
        try:
            module = timm.create_model(network.what, True, img_size=int(options["size"]), **overlay)
        except TypeError:
            module = timm.create_model(network.what, True, **overlay)
    else:
        module = timm.create_model(network.what, options.get("pretrained") == "yes")
    config = getattr(module, "pretrained_cfg", {}) or {}
    size = int(config.get("input_size", (3, _SIZE, _SIZE))[1])
    return module, _of_pixels(config.get("mean"), config.get("std"), size)


def _of_torchvision(network: NetworkName) -> tuple[Any, OnnxSettings]:
    models = _import("torchvision.models")
    if network.what not in models.list_models():
        raise NetworkError(f"torchvision has no network {network.what!r}.")
    pretrained = network.options.get("pretrained") == "yes"
    module = models.get_model(network.what, weights="DEFAULT" if pretrained else None)
    transforms = None
    with contextlib.suppress(ValueError, AttributeError):  # a network that somebody registered may have no weights
        # Published weights state their preprocessing, which is known without downloading them.
        transforms = models.get_model_weights(network.what).DEFAULT.transforms()
    size = int(getattr(transforms, "crop_size", [_SIZE])[0])
    return module, _of_pixels(getattr(transforms, "mean", None), getattr(transforms, "std", None), size)


def _of_pixels(mean: Any, deviation: Any, size: int) -> OnnxSettings:
    """Return settings for 8-bit pixels, from those for pixels from 0 to 1."""
    if mean is None or deviation is None:
        return OnnxSettings(*_IMAGENET, size=size)
    return OnnxSettings(tuple(255 * value for value in mean), tuple(255 * value for value in deviation), size=size)


def _of_function(network: NetworkName) -> tuple[Any, OnnxSettings]:
    package, _, function = network.what.partition(":")
    torch, maker = _import("torch"), getattr(_import(package), function, None)
    if not callable(maker):
        raise NetworkError(f"the module {package} has no function {function!r}.")
    module = maker()
    if not isinstance(module, torch.nn.Module):
        raise NetworkError(f"{network.what} returned {brief(module)}, which is no module of torch.")
    declared: dict[str, Any] = {"size": _SIZE, "mean": _IMAGENET[0], "scale": _IMAGENET[1]}
    declared |= getattr(module, "preprocessing", {})
    if unknown := declared.keys() - {"size", "mean", "scale"}:
        raise NetworkError(f"preprocessing of {network.what} has unknown keys {sorted(unknown)}.")
    return module, OnnxSettings(**declared)


# --- conversion -------------------------------------------------------------------------------------------------------


def _converted(name: str, network: NetworkName, activation: Activation) -> bytes:
    """Return a network as a serialised ONNX graph, from its input to the layer, with its specification as metadata."""
    torch = _import("torch")
    module, settings = _made(network)
    size = settings.size or _SIZE
    settings.preprocessing("NCHW")  # checks the numbers
    reader = _reader(torch, module, network)
    probe = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, size, size)).astype(np.float32))
    try:
        with torch.no_grad():
            expected = reader(probe)[0]
    except Exception as error:  # the user's code may raise anything
        raise NetworkError(f"{network.what} cannot take images of {size} x {size} pixels: {error}") from error
    graph = cut_at_layer(_exported(torch, reader, probe, expected), activation)
    wanted = NetworkSpec(name, 0, 0, None, Preprocessing(), activation, "", output_names(graph)[0])
    graph, spec, _ = adapt(graph, wanted, settings, bounded=False)
    entry = graph.metadata_props.add()
    entry.key, entry.value = "patchvote", json.dumps(dataclasses.asdict(spec))
    return bytes(graph.SerializeToString())


def _reader(torch: Any, module: Any, network: NetworkName) -> Any:
    """Return a module with two outputs: that of the layer, and that of the network, which shows what follows it."""
    layer = _layer(module, network.layer) if network.layer else None
    features = layer is None and network.engine == "timm" and hasattr(module, "forward_features")

    class Reader(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.caught: Any = None
            if layer is not None:
                layer.register_forward_hook(self.catch)

        def catch(self, layer: Any, inputs: Any, output: Any) -> None:
            self.caught = output.clone()  # the next layer may work in place

        def forward(self, x: Any) -> Any:
            end = self.module.forward_features(x) if features else self.module(x)
            return end if layer is None else self.caught, end

    return Reader()


def _layer(module: Any, name: str) -> Any:
    named = dict(module.named_modules())
    if name in named:
        return named[name]
    if name not in ("fc6", "fc7"):
        last = [key for key in named if key][-12:]
        raise NetworkError(f"there is no layer {name!r}. The last ones are: {', '.join(last)}.")
    inner = [layer for key, layer in named.items() if key.startswith("classifier.")]
    linear = [layer for layer in inner if type(layer).__name__ == "Linear"]
    if len(linear) < 2:
        raise NetworkError(f"this network has no {name}: no classifier with two linear layers.")
    return linear[0 if name == "fc6" else 1]


def _exported(torch: Any, reader: Any, probe: Any, expected: Any) -> onnx.ModelProto:
    """Export for images of any size where the numbers are the same as in torch, else for this size only."""
    attempts = [(False, True), (False, False)]  # tracing may fix the number of images; then the graph takes one a call
    wide, expected_wide = torch.cat([probe, probe.flip(3)], dim=3), None
    with torch.no_grad(), contextlib.suppress(Exception):  # a network for one size only
        expected_wide = reader(wide)[0]
        attempts.insert(0, (True, True))
    for free, many in attempts:
        pairs = [(probe[:1], expected[:1])]
        pairs += [(probe, expected)] if many else []
        pairs += [(wide, expected_wide)] if free else []
        try:
            graph = _traced(torch, reader, probe if many else probe[:1], expected.ndim, free, many)
            if all(_is_same(cut(graph, "layer"), x.numpy(), y.numpy()) for x, y in pairs):
                return graph
        except Exception as error:  # the exporter and ONNX Runtime may raise anything
            if not many:
                raise NetworkError(f"the network cannot be converted to ONNX: {error}") from error
    raise NetworkError("the network returns other numbers after its conversion to ONNX, so it was not used.")


def _traced(torch: Any, reader: Any, inputs: Any, axes: int, free: bool, many: bool) -> onnx.ModelProto:
    """Trace a reader; `free` leaves the size of images open, and `many` their number."""
    import onnx

    number = {0: "n"} if many else {}
    dynamic = {
        "image": number | ({2: "height", 3: "width"} if free else {}),
        "layer": {axis: f"axis{axis}" for axis in range(axes)} if free else number,
        "end": number,
    }
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad(), _plain_attention(torch):
        warnings.simplefilter("ignore")
        names = {"input_names": ["image"], "output_names": ["layer", "end"], "dynamic_axes": dynamic}
        # The exporter of TorchScript: that of torch.export needs another package.
        torch.onnx.export(reader, (inputs,), file, **names, opset_version=17, dynamo=False)
    return onnx.load_from_string(file.getvalue())


@contextlib.contextmanager
def _plain_attention(torch: Any) -> Iterator[None]:
    """Make transformers use the attention that can be exported, not the fused one."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _is_same(graph: onnx.ModelProto, x: Any, expected: Any) -> bool:
    ours = Session(graph.SerializeToString(), "the network").run(x)
    tolerance = 1e-4 * (float(np.abs(expected).max()) or 1.0)
    return ours.shape == expected.shape and bool(np.abs(ours - expected).max() <= tolerance)
