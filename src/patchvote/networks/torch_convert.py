"""Convert a network of torch, timm or torchvision to ONNX, from the input to the layer that is read.

The graph must return the same numbers as torch, for images of any size, or of the one size that the network takes; else
it is not used.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError
from .base import Activation, stride_of
from .graph import cut, cut_at_layer
from .names import NetworkName
from .torch_modules import import_torch, make

if TYPE_CHECKING:
    import onnx

_MAX_PREFIX_TOKENS = 5  # a class token and four registers


def convert(network: NetworkName, activation: Activation) -> bytes:
    """Return a network as a serialised ONNX graph, from its input to the layer, with its specification as metadata.

    Raises
    ------
    NetworkError
        The library is not installed, there is no such network or layer, or it cannot be converted.
    """
    torch = import_torch()
    made = make(network)
    size = made.size
    reader = _reader(torch, made.module, network)
    probe = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, size, size)).astype(np.float32))
    with torch.no_grad():
        try:
            expected = reader(probe)[0]
        except NetworkError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise NetworkError(f"{network.what} cannot take images of {size} x {size} pixels: {error}") from error
        reader.channels_last = _is_channels_last(torch, reader, probe, expected)
        expected = reader(probe)[0]
    graph, fixed = _exported(torch, reader, probe, expected)
    graph, output = cut_at_layer(graph, activation)
    shape = _run(graph, probe[:1].numpy()).shape
    if len(shape) not in (2, 4):
        raise NetworkError(
            f"layer {network.layer!r} of {network.what} returns the shape {shape[1:]} for an image: neither a vector "
            "nor a feature map."
        )
    meta = {
        "dim": shape[1],
        "size": size,
        "stride": _stride(size, shape[2], graph, fixed) if len(shape) == 4 else None,
        "mean": made.mean,
        "scale": made.scale,
        "fixed": fixed,
        "output": output,
    }
    entry = graph.metadata_props.add()
    entry.key, entry.value = "patchvote", json.dumps(meta)
    return bytes(graph.SerializeToString())


def _stride(size: int, cells: int, graph: onnx.ModelProto, fixed: bool) -> int:
    """Return the pixels between two cells of a feature map, which need not be a power of two.

    Cells that a network without padding loses at the edges are as many for any size, so the cells that come with twice
    the height tell. For a network of one size, such as a transformer, cells are taken to tile the image. Where they do
    not divide the size, there may be one too many or too few: then a power of two that is possible is likelier.
    """
    more = cells if fixed else _run(graph, np.zeros((1, 3, 2 * size, size), np.float32)).shape[2] - cells
    power = stride_of(size, cells)
    if more < 2 or (size % more and size / (more + 1) <= power <= size / (more - 1)):
        return power
    return round(size / more)


def _layer(module: Any, name: str) -> Any:
    named = dict(module.named_modules())
    if name in ("fc6", "fc7") and name not in named:
        inner = [layer for key, layer in named.items() if key.startswith("classifier.")]
        linear = [layer for layer in inner if type(layer).__name__ == "Linear"]
        if len(linear) < 2:
            raise NetworkError(f"this network has no {name}: no classifier with two linear layers.")
        return linear[0 if name == "fc6" else 1]
    if name not in named:
        last = [key for key in named if key][-12:]
        raise NetworkError(f"there is no layer {name!r}. The last ones are: {', '.join(last)}.")
    return named[name]


def _reader(torch: Any, module: Any, network: NetworkName) -> Any:
    """Return a module with two outputs: that of the layer, and that of the network, which shows what follows it."""
    features = not network.layer and network.engine == "timm" and hasattr(module, "forward_features")

    class Reader(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.caught: Any = None
            self.channels_last = False
            if network.layer:
                _layer(module, network.layer).register_forward_hook(self.catch)

        def catch(self, layer: Any, inputs: Any, output: Any) -> None:
            self.caught = output.clone()  # the next layer may work in place

        def forward(self, x: Any) -> Any:
            end = self.module.forward_features(x) if features else self.module(x)
            caught = self.caught if network.layer else end
            if caught.ndim == 3:
                return _as_map(caught, getattr(self.module, "num_prefix_tokens", None)), end
            return caught.permute(0, 3, 1, 2) if self.channels_last else caught, end

    return Reader()


def _as_map(tokens: Any, prefix: int | None) -> Any:
    """Convert the tokens ``(n, tokens, d)`` of a square image to a map, without class and register tokens."""
    count = tokens.shape[1]
    prefixes = range(_MAX_PREFIX_TOKENS + 1) if prefix is None else [prefix]
    cells = [count - length for length in prefixes]
    sides = [math.isqrt(area) for area in cells if area > 1 and math.isqrt(area) ** 2 == area]
    if len(sides) != 1:
        raise NetworkError(
            f"{count} tokens {'may be more than one square map' if sides else 'are no square map'}: state in the "
            "module's num_prefix_tokens how many of them are class and register tokens."
        )
    side = sides[0]
    return tokens[:, count - side * side :].transpose(1, 2).reshape(tokens.shape[0], -1, side, side)


def _is_channels_last(torch: Any, reader: Any, probe: Any, expected: Any) -> bool:
    """Return whether a map is ``(n, rows, columns, d)``: an image of twice the width has twice as many columns."""
    if expected.ndim != 4:
        return False
    try:
        wide = reader(torch.cat([probe, probe], dim=3))[0].shape
    except Exception:  # a network for one size only; it may declare its layout
        return str(getattr(reader.module, "output_fmt", "")).endswith("NHWC")
    return bool(wide[3] == expected.shape[3] and wide[2] == 2 * expected.shape[2])


def _exported(torch: Any, reader: Any, probe: Any, expected: Any) -> tuple[onnx.ModelProto, bool]:
    """Export for images of any size where the numbers are the same as in torch, else for this size only.

    Returns the graph, and whether the size is fixed.
    """
    import onnx

    with torch.no_grad():
        wide = torch.cat([probe, probe.flip(3)], dim=3)
        try:
            expected_wide = reader(wide)[0]
        except Exception:  # a network for one size only
            expected_wide = None
    # Tracing may fix the number of images; then the graph takes one image per call.
    for free, many in ((True, True), (False, True), (False, False)) if expected_wide is not None else _FIXED:
        example = probe if many else probe[:1]
        axes: dict[str, dict[int, str]] = {name: {0: "n"} if many else {} for name in ("image", "layer", "end")}
        if free:
            axes["image"] |= {2: "height", 3: "width"}
            axes["layer"] |= {2: "rows", 3: "columns"} if expected.ndim == 4 else {}
        file = io.BytesIO()
        try:
            with warnings.catch_warnings(), torch.no_grad(), _plain_attention(torch):
                warnings.simplefilter("ignore")
                # The exporter of TorchScript: that of torch.export needs another package.
                torch.onnx.export(
                    reader,
                    (example,),
                    file,
                    input_names=["image"],
                    output_names=["layer", "end"],
                    dynamic_axes=axes,
                    opset_version=17,
                    dynamo=False,
                )
            graph = onnx.load_from_string(file.getvalue())
            pairs = [(probe[:1], expected[:1])] + ([(probe, expected)] if many else [])
            pairs += [(wide, expected_wide)] if free else []
            if all(_same(_run(cut(graph, "layer"), x.numpy()), y.numpy()) for x, y in pairs):
                return graph, not free
        except Exception as error:  # the exporter and ONNX Runtime may raise anything
            if not many:
                raise NetworkError(f"the network cannot be converted to ONNX: {error}") from error
    raise NetworkError("the network returns other numbers after its conversion to ONNX, so it was not used.")


_FIXED = ((False, True), (False, False))  # free, many: what to try for a network of one size


@contextlib.contextmanager
def _plain_attention(torch: Any) -> Iterator[None]:
    """Make transformers use the attention that can be exported, not the fused one."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _same(ours: Any, theirs: Any) -> bool:
    scale = float(np.abs(theirs).max()) or 1.0
    return ours.shape == theirs.shape and bool(np.abs(ours - theirs).max() <= 1e-4 * scale)


def _run(graph: onnx.ModelProto, x: Any) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": x})[0]
