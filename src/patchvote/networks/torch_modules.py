"""Make the modules of networks of torch, timm and torchvision, with their weights and their preprocessing."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from ..errors import NetworkError, first_line
from ..utils.schema import brief
from .names import NetworkName
from .onnx_file import OnnxSettings

_IMAGENET = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # mean and scale that most networks were trained with
_INSTALL_TORCH = "pip install 'patchvote[torch]'"
_SIZE = 224


@dataclasses.dataclass(frozen=True)
class Made:
    """A module, ready for use, and the preprocessing of its images.

    Parameters
    ----------
    module : torch.nn.Module
        The network, in evaluation mode.
    size : int
        Side of the square input.
    mean, scale : tuple of three floats
        Mean and scale of the channels of 8-bit RGB pixels.
    """

    module: Any
    size: int = _SIZE
    mean: tuple[float, ...] = _IMAGENET[0]
    scale: tuple[float, ...] = _IMAGENET[1]


def import_torch() -> Any:
    """Import torch.

    Raises
    ------
    NetworkError
        It is not installed, or broken.
    """
    return _import("torch", _INSTALL_TORCH)


def make(network: NetworkName) -> Made:
    """Make the network of a name, and load the weights that its options name.

    Raises
    ------
    NetworkError
        The library is not installed, there is no such network, or it cannot be made.
    """
    makers = {"timm": _of_timm, "torchvision": _of_torchvision}
    made = makers.get(network.engine, _of_function)(network)
    if "weights" in network.options and not (network.engine == "timm" and "size" in network.options):
        _load_weights(made.module, network.options["weights"])
    size = int(network.options.get("size", made.size))
    return dataclasses.replace(made, module=made.module.eval(), size=size)


def _import(package: str, install: str) -> Any:
    try:
        return importlib.import_module(package)
    except Exception as error:  # a broken installation may raise anything
        absent = isinstance(error, ModuleNotFoundError) and error.name == package.partition(".")[0]
        problem = "is not installed" if absent else f"cannot be imported ({first_line(error)})"
        raise NetworkError(f"{package} {problem}. Install it with: {install}") from None


def _of_timm(network: NetworkName) -> Made:
    timm = _import("timm", "pip install timm")
    if not timm.is_model(network.what):
        raise NetworkError(f"timm has no network {network.what!r}.")
    _refuse_random_weights(network)
    pretrained = network.options.get("pretrained") == "yes"
    module = _sized(timm, network) if "size" in network.options else timm.create_model(network.what, pretrained)
    config = getattr(module, "pretrained_cfg", {}) or {}
    return Made(
        module,
        int(config.get("input_size", (3, _SIZE, _SIZE))[1]),
        _of_pixels(config.get("mean"), _IMAGENET[0]),
        _of_pixels(config.get("std"), _IMAGENET[1]),
    )


def _sized(timm: Any, network: NetworkName) -> Any:
    """Make a network of timm for images of another size, with its weights.

    A transformer is built for one size. timm interpolates its position embeddings where it loads weights itself, so a
    file of weights is handed to it. Networks that take images of any size have no such setting.
    """
    size = int(network.options["size"])
    arguments: dict[str, Any] = {"pretrained": True}
    if "weights" in network.options:
        arguments["pretrained_cfg_overlay"] = {"file": network.options["weights"]}
    try:
        try:
            module = timm.create_model(network.what, img_size=size, **arguments)
        except TypeError:  # there is no setting img_size
            return timm.create_model(network.what, **arguments)
    except RuntimeError as error:
        raise _unfit(network.options.get("weights", network.what), error) from None
    except (AssertionError, ValueError) as error:
        raise NetworkError(
            f"{network.what} cannot take images of {size} x {size} pixels: {first_line(error)}"
        ) from None
    patch = getattr(getattr(module, "patch_embed", None), "patch_size", None) or (1, 1)
    if size % patch[0]:
        raise NetworkError(
            f"size must be a multiple of {patch[0]}, the patch size of {network.what}, got {size}: try "
            f"size={max(1, round(size / patch[0])) * patch[0]}."
        )
    return module


def _of_torchvision(network: NetworkName) -> Made:
    models = _import("torchvision.models", "pip install torchvision (of the same build as torch)")
    if network.what not in models.list_models():
        raise NetworkError(f"torchvision has no network {network.what!r}.")
    _refuse_random_weights(network)
    pretrained = network.options.get("pretrained") == "yes"
    module = models.get_model(network.what, weights="DEFAULT" if pretrained else None)
    transforms = None
    with contextlib.suppress(ValueError, AttributeError):  # a network that somebody registered may have no weights
        # Published weights state their preprocessing, which is known without downloading them.
        transforms = models.get_model_weights(network.what).DEFAULT.transforms()
    return Made(
        module,
        int(getattr(transforms, "crop_size", [_SIZE])[0]),
        _of_pixels(getattr(transforms, "mean", None), _IMAGENET[0]),
        _of_pixels(getattr(transforms, "std", None), _IMAGENET[1]),
    )


def _of_function(network: NetworkName) -> Made:
    package, _, function = network.what.partition(":")
    try:
        maker = getattr(importlib.import_module(package), function, None)
    except Exception as error:  # the user's code may raise anything
        raise NetworkError(f"the module {package} cannot be imported: {first_line(error)}.") from error
    if not callable(maker):
        raise NetworkError(f"the module {package} has no function {function!r}.")
    try:
        module = maker()
    except Exception as error:  # the user's code may raise anything
        raise NetworkError(f"{network.what} failed: {first_line(error)}.") from error
    if not isinstance(module, import_torch().nn.Module):
        raise NetworkError(f"{network.what} returned {brief(module)}, which is no module of torch.")
    declared = getattr(module, "preprocessing", {})
    if not isinstance(declared, Mapping):
        raise NetworkError(
            f"preprocessing of {network.what} must be a dictionary with size, mean and scale, got {brief(declared)}."
        )
    return _preprocessed(module, declared, network.what)


def _preprocessed(module: Any, declared: Mapping[Any, Any], name: str) -> Made:
    """Return a module with the preprocessing that it declares, after checking it."""
    values: dict[str, Any] = {"size": _SIZE, "mean": _IMAGENET[0], "scale": _IMAGENET[1]}
    for key in declared:
        if key not in values:
            raise NetworkError(
                f"preprocessing of {name} has an unknown key {brief(key)}: it may have size, mean and scale."
            )
    values |= declared
    try:
        settings = OnnxSettings(**values)
        checked = settings.preprocessing("NCHW")
    except NetworkError as error:
        raise NetworkError(f"preprocessing of {name} cannot be used: {error}") from None
    mean, scale = _as_declared(values["mean"], checked.mean), _as_declared(values["scale"], checked.scale)
    return Made(module, settings.size or _SIZE, mean, scale)


def _as_declared(value: Any, checked: tuple[float, ...]) -> tuple[float, ...]:
    """Return plain numbers; where they are plain already, unchanged: whether they are whole affects fingerprints."""
    is_plain = isinstance(value, (tuple, list)) and [type(number) in (int, float) for number in value] == [True] * 3
    return tuple(value) if is_plain else checked


def _of_pixels(values: Any, default: tuple[float, ...]) -> tuple[float, ...]:
    """Return mean or scale of pixels from 0 to 255, where they are stated for pixels from 0 to 1."""
    return default if values is None else tuple(255 * float(value) for value in values)


def _refuse_random_weights(network: NetworkName) -> None:
    if network.options.get("pretrained") != "yes" and "weights" not in network.options:
        raise NetworkError(
            f"{network.engine}:{network.what} would have random weights: name a file of weights with "
            f"?weights=FILE.safetensors, or let {network.engine} download its own with ?pretrained=yes."
        )


def _load_weights(module: Any, path: str) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise NetworkError(f"{path} cannot be read: {first_line(error)}. Is it complete?") from None
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise _unfit(path, error) from None


def _unfit(weights: str, error: Exception) -> NetworkError:
    return NetworkError(f"{weights} does not fit the network: {' '.join(str(error).split())[:500]}")
