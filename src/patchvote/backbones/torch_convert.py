"""Make a network of torch, timm or torchvision, and convert it to ONNX at the layer that is read.

The graph must give the numbers that torch gives, for images of any size where the network takes them, and else for the
one size that it takes; a graph that does not is not used.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, first_line
from .base import Activation, stride_of
from .graph import cut, cut_at_layer
from .names import NetworkName

if TYPE_CHECKING:
    import onnx

_IMAGENET = {"mean": (123.675, 116.28, 103.53), "scale": (58.395, 57.12, 57.375)}
_EXTRA = "pip install 'patchvote[torch]'"
_MOST_EXTRA_TOKENS = 5  # a class token and four registers


def _import(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except Exception as error:  # a broken install raises nearly anything
        absent = isinstance(error, ModuleNotFoundError) and error.name == package.partition(".")[0]
        why = "is not installed" if absent else f"cannot be imported ({first_line(error)})"
        raise NetworkError(f"{package} {why}. Install it with: {extra}") from None


def convert(asked: NetworkName, activation: Activation) -> bytes:
    """Return a network as a serialised graph in ONNX, from its input to the layer, its traits in the metadata.

    Raises
    ------
    NetworkError
        The library is not installed, the network or layer is not there, or it cannot be converted.
    """
    torch = _import("torch", _EXTRA)
    module, told = _make(asked)
    module = module.eval()
    if "weights" in asked.options:
        _load_weights(module, asked.options["weights"])
    size = int(asked.options.get("size", told["size"]))
    reader = _reader(torch, module, asked)
    probe = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, size, size)).astype(np.float32))
    with torch.no_grad():
        try:
            expected = reader(probe)[0]
        except NetworkError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise NetworkError(f"{asked.what} cannot take images of {size} x {size} pixels: {error}") from error
        reader.channels_last = _is_channels_last(torch, reader, probe, expected)
        expected = reader(probe)[0]
    graph, fixed = _exported(torch, reader, probe, expected)
    graph, output = cut_at_layer(graph, activation)
    shape = _answer(graph, probe[:1].numpy()).shape
    if len(shape) not in (2, 4):
        raise NetworkError(
            f"layer {asked.layer!r} of {asked.what} gives {shape[1:]} for an image, no vector and no map."
        )
    meta = {
        "dim": shape[1],
        "size": size,
        "stride": stride_of(size, shape[2]) if len(shape) == 4 else None,
        "mean": told["mean"],
        "scale": told["scale"],
        "fixed": fixed,
        "output": output,
    }
    entry = graph.metadata_props.add()
    entry.key, entry.value = "patchvote", json.dumps(meta)
    return bytes(graph.SerializeToString())


def _make(asked: NetworkName) -> tuple[Any, dict[str, Any]]:
    """Make the module, and tell its preprocessing."""
    told: dict[str, Any] = {"size": 224, **_IMAGENET}
    pretrained = asked.options.get("pretrained") == "yes"
    if asked.engine == "timm":
        timm = _import("timm", "pip install timm")
        if not timm.is_model(asked.what):
            raise NetworkError(f"timm has no network {asked.what!r}.")
        _refuse_random_weights(asked)
        module = timm.create_model(asked.what, pretrained=pretrained)
        config = getattr(module, "pretrained_cfg", {}) or {}
        told["size"] = int(config.get("input_size", (3, 224, 224))[1])
        told["mean"] = tuple(255 * float(value) for value in config.get("mean", (0.485, 0.456, 0.406)))
        told["scale"] = tuple(255 * float(value) for value in config.get("std", (0.229, 0.224, 0.225)))
        return module, told
    if asked.engine == "torchvision":
        models = _import("torchvision.models", "pip install torchvision (of the same build as torch)")
        if asked.what not in models.list_models():
            raise NetworkError(f"torchvision has no network {asked.what!r}.")
        _refuse_random_weights(asked)
        return models.get_model(asked.what, weights="DEFAULT" if pretrained else None), told
    package, _, function = asked.what.partition(":")
    try:
        maker = getattr(importlib.import_module(package), function, None)
    except ImportError as error:
        raise NetworkError(f"the module {package} cannot be imported: {first_line(error)}.") from None
    if not callable(maker):
        raise NetworkError(f"the module {package} has no function {function!r}.")
    try:
        module = maker()
    except Exception as error:  # the user's code may raise anything
        raise NetworkError(f"{asked.what} failed: {first_line(error)}.") from error
    told |= {key: value for key, value in getattr(module, "preprocessing", {}).items() if key in told}
    return module, told


def _refuse_random_weights(asked: NetworkName) -> None:
    if asked.options.get("pretrained") != "yes" and "weights" not in asked.options:
        raise NetworkError(
            f"{asked.engine}:{asked.what} would have random weights: name a file of them with "
            f"?weights=FILE.safetensors, or let {asked.engine} fetch its own with ?pretrained=yes."
        )


def _load_weights(module: Any, path: str) -> None:
    from safetensors.torch import load_file

    try:
        module.load_state_dict(load_file(path))
    except RuntimeError as error:
        raise NetworkError(f"{path} does not fit the network: {error}") from None


def _layer(module: Any, name: str) -> Any:
    named = dict(module.named_modules())
    if name in ("fc6", "fc7") and name not in named:
        linear = [own for key, own in named.items() if key.startswith("classifier.") and type(own).__name__ == "Linear"]
        if len(linear) < 2:
            raise NetworkError(f"this network has no {name}: no classifier with two linear layers.")
        return linear[0 if name == "fc6" else 1]
    if name not in named:
        near = [key for key in named if key][-12:]
        raise NetworkError(f"there is no layer {name!r}. The last ones are: {', '.join(near)}.")
    return named[name]


def _reader(torch: Any, module: Any, asked: NetworkName) -> Any:
    """Return a module that gives what the layer gives, and the end of the network: it shows what follows the layer."""
    features = not asked.layer and asked.engine == "timm" and hasattr(module, "forward_features")

    class Reader(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.caught: Any = None
            self.channels_last = False
            if asked.layer:
                _layer(module, asked.layer).register_forward_hook(self.catch)

        def catch(self, layer: Any, given: Any, answer: Any) -> None:
            self.caught = answer.clone()  # what follows may write into the answer itself

        def forward(self, x: Any) -> Any:
            end = self.module.forward_features(x) if features else self.module(x)
            caught = self.caught if asked.layer else end
            if caught.ndim == 3:
                return _as_map(caught, getattr(self.module, "num_prefix_tokens", None)), end
            return caught.permute(0, 3, 1, 2) if self.channels_last else caught, end

    return Reader()


def _as_map(tokens: Any, prefix: int | None) -> Any:
    """Turn the tokens ``(n, tokens, d)`` of a square image into a map, without those that stand for no place."""
    count = tokens.shape[1]
    extra = range(_MOST_EXTRA_TOKENS + 1) if prefix is None else [prefix]
    sides = [
        math.isqrt(count - few) for few in extra if count - few > 1 and math.isqrt(count - few) ** 2 == count - few
    ]
    if len(sides) != 1:
        raise NetworkError(
            f"{count} tokens {'may be more than one square map' if sides else 'are no square map'}: let the module say "
            "in num_prefix_tokens how many of them stand for no place."
        )
    side = sides[0]
    return tokens[:, count - side * side :].transpose(1, 2).reshape(tokens.shape[0], -1, side, side)


def _is_channels_last(torch: Any, reader: Any, probe: Any, expected: Any) -> bool:
    """Tell whether a map stands as (n, rows, columns, d): of an image twice as wide, its columns are twice as many."""
    if expected.ndim != 4:
        return False
    try:
        wide = reader(torch.cat([probe, probe], dim=3))[0].shape
    except Exception:  # a network for one size only: it may say so itself
        return str(getattr(reader.module, "output_fmt", "")).endswith("NHWC")
    return bool(wide[3] == expected.shape[3] and wide[2] == 2 * expected.shape[2])


def _exported(torch: Any, reader: Any, probe: Any, expected: Any) -> tuple[onnx.ModelProto, bool]:
    """Export for images of any size where that gives the same numbers, and else for this size alone."""
    import onnx

    with torch.no_grad():
        wide = torch.cat([probe, probe.flip(3)], dim=3)
        try:
            wanted = reader(wide)[0]
        except Exception:  # a network for one size only
            wanted = None
    # Code may fix the number of images when it is traced; then they go through one by one.
    for free, many in ((True, True), (False, True), (False, False)) if wanted is not None else _FIXED:
        asked = probe if many else probe[:1]
        axes: dict[str, dict[int, str]] = {name: {0: "n"} if many else {} for name in ("image", "layer", "end")}
        if free:
            axes["image"] |= {2: "height", 3: "width"}
            axes["layer"] |= {2: "rows", 3: "columns"} if expected.ndim == 4 else {}
        file = io.BytesIO()
        try:
            with warnings.catch_warnings(), torch.no_grad(), _plain_attention(torch):
                warnings.simplefilter("ignore")
                # The exporter of TorchScript, not that of torch.export: it needs no further package.
                torch.onnx.export(
                    reader,
                    (asked,),
                    file,
                    input_names=["image"],
                    output_names=["layer", "end"],
                    dynamic_axes=axes,
                    opset_version=17,
                    dynamo=False,
                )
            graph = onnx.load_from_string(file.getvalue())
            given = [(probe[:1], expected[:1])] + ([(probe, expected)] if many else [])
            given += [(wide, wanted)] if free else []
            if all(_same(_answer(cut(graph, "layer"), x.numpy()), y.numpy()) for x, y in given):
                return graph, not free
        except Exception as error:  # the exporter and ONNX Runtime raise nearly anything
            if not many:
                raise NetworkError(f"the network cannot be converted to ONNX: {error}") from error
    raise NetworkError("the network gives other numbers once it is converted to ONNX, so it was not used.")


_FIXED = ((False, True), (False, False))


@contextlib.contextmanager
def _plain_attention(torch: Any) -> Iterator[None]:
    """Let transformers go the way that can be exported, not the fused one."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _same(ours: Any, theirs: Any) -> bool:
    scale = float(np.abs(theirs).max()) or 1.0
    return ours.shape == theirs.shape and bool(np.abs(ours - theirs).max() <= 1e-4 * scale)


def _answer(graph: onnx.ModelProto, x: Any) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": x})[0]
