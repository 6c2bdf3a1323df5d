"""How pixels become the input of a network of the hub: its files of settings, read as data.

The hub's networks are described by ``preprocessor_config.json`` (the libraries transformers and transformers.js), or by
``pretrained_cfg`` in ``config.json`` (timm). Both are untrusted: whatever they hold, the result is an `OnnxSettings`,
whose values have bounds, or an error.

The size of the input is that after the centre crop, where there is one. Photos themselves are never cropped: votes must
see the whole photo, so photos for a network of one size are resized to it, whatever their proportions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import NetworkError
from ..utils.reading import read_text
from ..utils.schema import brief
from .onnx_file import OnnxSettings

_MAX_BYTES = 1 << 20  # of a file of settings: most have one kilobyte, some list 21,000 classes
_RESCALE = 1 / 255  # factor for 8-bit pixels, unless the file has another one
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

# What the option ``pixels`` may name, for repositories that do not describe their input: mean and standard deviation.
NAMED = {"imagenet": _IMAGENET, "clip": _CLIP, "half": _HALF, "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))}


def read_settings(path: Path) -> Mapping[str, Any]:
    """Return the content of a JSON file of the hub, which must be a table.

    Raises
    ------
    NetworkError
        The file cannot be read, or holds something else.
    """
    try:
        table = json.loads(read_text(path, _MAX_BYTES))
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise NetworkError(f"{path} is not a JSON file: {str(error)[:200]}") from None
    if not isinstance(table, dict):
        raise NetworkError(f"{path} must hold a table, got {brief(table)}.")
    return table


def pixels_of(preprocessor: Mapping[str, Any] | None, config: Mapping[str, Any] | None, name: str) -> OnnxSettings:
    """Return the settings that the files of a repository describe.

    Parameters
    ----------
    preprocessor, config : mapping or None
        Content of ``preprocessor_config.json`` and ``config.json``, where they exist.
    name : str
        Name of the network, for messages.

    Raises
    ------
    NetworkError
        Neither describes the input, or a value cannot be right.

    Examples
    --------
    >>> clip = {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224, "image_mean": 0.5}
    >>> settings = pixels_of(clip | {"image_std": 0.25}, None, "net")
    >>> settings.size, settings.mean, settings.scale
    (224, (127.5, 127.5, 127.5), (63.75, 63.75, 63.75))
    """
    for table in (preprocessor, config):
        timm = (table or {}).get("pretrained_cfg")
        if isinstance(timm, dict):
            return _of_timm(timm, name)
    if preprocessor is None:
        raise _undescribed(name, "which has no preprocessor_config.json")
    return _of_transformers(preprocessor, name)


def _undescribed(name: str, why: str) -> NetworkError:
    return NetworkError(
        f"it is not known how pixels become the input of {name}, {why}. Look it up, and add one of "
        f"?pixels={', ?pixels='.join(NAMED)} to the name; &size=… where the side is not 224."
    )


def named_pixels(word: str, name: str) -> OnnxSettings:
    """Return the settings that a value of the option ``pixels`` stands for.

    Raises
    ------
    NetworkError
        There is no such value.
    """
    if word not in NAMED:
        raise NetworkError(f"pixels of {name} must be one of {', '.join(NAMED)}, got {word[:40]!r}.")
    mean, deviation = NAMED[word]
    return _settings(mean, deviation, _RESCALE, "RGB", None, name)


def _of_transformers(table: Mapping[str, Any], name: str) -> OnnxSettings:
    factor = table.get("rescale_factor", _RESCALE) if table.get("do_rescale", True) else 1.0
    mean, deviation = (table.get("image_mean"), table.get("image_std")) if table.get("do_normalize", True) else (0, 1)
    if mean is None or deviation is None:
        raise _undescribed(name, "whose preprocessor_config.json has no image_mean and image_std")
    if table.get("rescale_offset") is True:  # EfficientNet's: pixels from -1 to 1 before the mean is subtracted
        mean = [value + 1.0 for value in _numbers(mean, "image_mean", name)]
    color = "BGR" if table.get("do_flip_channel_order") is True else "RGB"
    size = None
    if table.get("do_center_crop"):
        size = _side(table.get("crop_size"), name)
    return _settings(mean, deviation, factor, color, size or _side(table.get("size"), name), name)


def _of_timm(table: Mapping[str, Any], name: str) -> OnnxSettings:
    shape = table.get("input_size")
    side = shape[-1] if isinstance(shape, list) and len(shape) == 3 else None
    return _settings(
        table.get("mean", _IMAGENET[0]), table.get("std", _IMAGENET[1]), _RESCALE, "RGB", _side(side, name), name
    )


def _settings(mean: Any, deviation: Any, factor: Any, color: str, size: int | None, name: str) -> OnnxSettings:
    """Return settings for 8-bit pixels: the hub's are for pixels that were multiplied by `factor`."""
    scale, *others = _numbers(factor, "rescale_factor", name)
    if not scale > 0 or set(others) != {scale}:
        raise NetworkError(f"rescale_factor of {name} must be a number above 0, got {brief(factor)}.")
    means = _numbers(mean, "image_mean", name)
    deviations = _numbers(deviation, "image_std", name)
    return OnnxSettings(
        mean=(means[0] / scale, means[1] / scale, means[2] / scale),
        scale=(deviations[0] / scale, deviations[1] / scale, deviations[2] / scale),
        color=color,
        size=size,
    )


def _numbers(value: Any, key: str, name: str) -> tuple[float, float, float]:
    """Return a number, or a list of one or three, as three numbers."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    right = len(values) in (1, 3) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
    if not right:
        raise NetworkError(f"{key} of {name} must be a number or three numbers, got {brief(value)}.")
    values = values * 3 if len(values) == 1 else values
    try:
        return float(values[0]), float(values[1]), float(values[2])
    except OverflowError:
        raise NetworkError(f"{key} of {name} is too large: {brief(value)}.") from None


def _side(value: Any, name: str) -> int | None:
    """Return the side of a square input: a number, or a table with shortest_edge, or height and width."""
    if isinstance(value, dict):
        if value.get("height") != value.get("width"):
            raise NetworkError(f"{name} takes images of {brief(value)}: only square inputs are supported.")
        value = value.get("shortest_edge", value.get("height"))
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise NetworkError(f"the size of the input of {name} must be a whole number of pixels, got {brief(value)}.")
    return value
