"""Networks of the Hugging Face hub, as ONNX files, without torch.

A name is ``hf:owner/name[@revision][/file.onnx][?key=value&…]`` (see `hub_names`). The files are downloaded once, into
the hub's own cache, by a name that the user types, and by nothing else. The backbone's name is pinned: it has the
commit and the SHA-256 of the file, both are checked whenever it is loaded, and models hold it.

Options: ``output`` names the tensor to read; ``whole=class`` describes a whole image by the class token instead of the
mean of its cells; ``size`` and ``stride`` are pixels, where the repository does not tell them; ``pixels`` names a usual
normalisation for a repository that has no ``preprocessor_config.json``; ``sha256`` is the digest that the file must
have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import NetworkError
from ..utils.files import file_digest
from .base import Activation, NetworkSpec
from .feature_tensor import find_features
from .graph_file import read_graph
from .hub_cache import SETTINGS, announced_digest, cache_folder
from .hub_files import HubFiles, files_of
from .hub_graph import assembled, prepared, tried
from .hub_names import HubName
from .hub_pixels import named_pixels, pixels_of, read_settings
from .names import CachedName, whole_pixels
from .onnx_backbone import OnnxBackbone
from .onnx_file import OnnxSettings, serialised


class HubBackbone(OnnxBackbone):
    """A network of the hub.

    Attributes
    ----------
    pinned_name : str
        Name with the commit and the SHA-256 of the file, which means the same network everywhere.
    """

    @property
    def pinned_name(self) -> str:
        """Name with the commit and the SHA-256 of the file."""
        return self.spec.name

    def with_whole(self, images: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Describe images as a call does; also return the class token of each."""
        maps, whole = self.describe_all(self.spec.preprocessing(images))
        return maps, whole


def load(name: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> HubBackbone:
    """Load a network of the hub; the engine of names that begin with ``hf:``.

    Raises
    ------
    NetworkError
        It is not there, or cannot be used; the message says what to do.
    """
    local = isinstance(name, CachedName)
    files, weights = files_of(HubName.parse(name), local=local), []
    model, digest = read_graph(
        files.graph, cache_folder(), lambda location: weights.append(files.weights(location, local=local))
    )
    pinned = _verified(files, weights, digest)
    tables = _tables(files)
    settings = _settings(pinned, *tables)
    tensor = find_features(model, settings.output, files.graph)
    part = prepared(model, tensor, activation, files.graph)
    features = tried(part, tensor, settings, files.graph)
    whole = _is_whole(pinned, features.others, tables[1])

    def graph() -> bytes:
        again = prepared(read_graph(files.graph, cache_folder())[0], tensor, activation, files.graph)
        return serialised(assembled(again, features, whole), files.graph)

    spec = NetworkSpec(
        name=str(pinned),
        dim=features.dim,
        size=features.size,
        stride=features.stride,
        preprocessing=features.preprocessing,
        activation=activation,
        weights=digest,
        output=tensor,
        fixed_size=features.fixed_size,
        output_layout="NHWC" if features.layout == "NHWC" else "NCHW",
        whole="class" if whole else "mean",
    )
    data = serialised(assembled(part, features, whole), files.graph)
    return HubBackbone(spec, data, threads, device, bounded=True, read=graph)


def _verified(files: HubFiles, weights: Sequence[Path], digest: str) -> HubName:
    """Return the pinned name, if the files are those that the hub and the name announced."""
    for path in (files.graph, *weights):
        announced = announced_digest(path)
        if announced not in (None, file_digest(path) if weights else digest):
            raise NetworkError(
                f"{path} was changed or damaged after it was downloaded: its SHA-256 is not {announced}. Delete the "
                "file that this link leads to, and run the same command with a connection."
            )
    wanted = files.name.options.get("sha256")
    if wanted is not None and wanted != digest:
        raise NetworkError(
            f"{files.name.file} of {files.name.repository} has the SHA-256 {digest}, but {wanted} was asked for: it is "
            "another file than the one that the model was made with, or that the name means."
        )
    return dataclasses.replace(files.name, options={**files.name.options, "sha256": digest})


def _tables(files: HubFiles) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Return the content of the files of settings, where they exist."""
    paths: list[Path | None] = [files.settings(file) for file in SETTINGS]
    first, second = (None if path is None else read_settings(path) for path in paths)
    return first, second


def _settings(name: HubName, preprocessor: Mapping[str, Any] | None, config: Mapping[str, Any] | None) -> OnnxSettings:
    """Return the settings of the repository, with those that the name has in their place."""
    options, shown = name.options, name.repository
    named = options.get("pixels")
    settings = pixels_of(preprocessor, config, shown) if named is None else named_pixels(named, shown)
    numbers: dict[str, Any] = {key: whole_pixels(key, options[key]) for key in ("size", "stride") if key in options}
    return dataclasses.replace(settings, output=options.get("output"), **numbers)


def _is_whole(name: HubName, others: int | None, config: Mapping[str, Any] | None) -> bool:
    """Whether the class token describes the whole image; refuse that where there is none."""
    word = name.options.get("whole", "mean")
    if word not in ("mean", "class"):
        raise NetworkError(f"whole must be 'mean' or 'class', got {word[:40]!r}.")
    arguments = (config or {}).get("model_args")
    without = isinstance(arguments, dict) and arguments.get("class_token") is False
    if word == "class" and (not others or without):
        raise NetworkError(f"{name.repository} has no class token: leave whole=class out.")
    return word == "class"
